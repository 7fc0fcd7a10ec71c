"""The loops of several loaders in one worker process: one task of each, in rotation.

Imports this package's loop and context, and the random state. It belongs to the main thread of a
worker process. Each loader finds the worker as it left it: `get_worker_info`, and the global random
state, which no other loader draws from.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable
from typing import Any

from reader._core.wire.channel import WorkerChannel
from reader.random.seeds import CapturedState
from reader.worker import context, interruption, library_info
from reader.worker.interruption import LoaderEnded
from reader.worker.library_info import LibraryInfo
from reader.worker.loop import WorkerConfig, WorkerLoop, carried, open_loop

__all__ = ["SharedLoops"]

_COUNT_NS = 10_000_000  # interval at which CPU time is read while it works for one loader


@dataclasses.dataclass
class _Desk:
    """A loader's loop in this worker, and its saved view of the worker, None while it works."""

    channel: WorkerChannel
    part: int
    config: WorkerConfig
    loop: WorkerLoop
    seen: Any = None  # the state of `context`
    shown: LibraryInfo | None = None  # the answer of other libraries
    random: CapturedState | None = None

    def leave(self) -> None:
        """Save the view of the worker: it works for another loader next."""
        self.seen = context.entered()
        self.shown = library_info.shown()
        if not self.config.seeds_each_batch:
            self.random = CapturedState()

    def enter(self) -> None:
        """Restore the view of the worker."""
        context.leave(self.seen)
        if self.shown is not None:
            library_info.show(self.shown)
        if self.random is not None:
            self.random.put_back()


class SharedLoops:
    """Makes the batches of several loaders, one task of each in rotation.

    Args:
        worker_id: from 0; the same for all of them.
        enter: called with the number of a loader's part before code of that loader runs.
    """

    def __init__(self, worker_id: int, enter: Callable[[int], None]) -> None:
        self._worker_id = worker_id
        self._enter_part = enter
        self._part = 0  # its last argument
        self._desks: list[_Desk] = []
        self._at: _Desk | None = None  # the loader that the worker works for
        self._running: WorkerChannel | None = None  # whose loader's code runs
        # the last reading of CPU time, and when it was read
        self._computed_ns, self._counted_ns = time.process_time_ns(), time.monotonic_ns()

    @property
    def channels(self) -> list[WorkerChannel]:
        """The channels from which tasks come."""
        return [desk.channel for desk in self._desks]

    @property
    def is_interruptible(self) -> bool:
        """Whether the running code belongs to a loader that has stopped."""
        return self._running is not None and self._running.is_stopped

    def open(
        self, channel: WorkerChannel, part: int, find_config: Callable[[], WorkerConfig]
    ) -> None:
        """Begin to work for a loader, unless it has stopped; a failure is reported to it."""
        self._leave()
        self._say(part)
        if channel.is_stopped:
            return
        self._running = channel
        interruption.begin()
        try:
            config = find_config()  # may unpickle it
            loop = open_loop(channel, config, self._worker_id)
        except BaseException as error:
            self._running = None
            channel.fail(carried(error))
            return
        self._running = None
        self._count(None)  # the CPU time of a start is not counted for batches
        if loop is None:
            context.entered()
            return
        self._at = _Desk(channel, part, config, loop)
        self._desks.append(self._at)

    def rest(self) -> None:
        """Show that no code of a loader runs: there is nothing to do."""
        self._count(self._at)
        self._say(0)

    def _say(self, part: int) -> None:
        self._part = part
        self._enter_part(part)

    def work(self) -> bool:
        """Do one task of each loader that has one; returns whether any had."""
        has_worked = False
        for desk in list(self._desks):
            task = self._next_task(desk)
            if task is not None:
                self._step(desk.channel, desk.loop, task)
                if time.monotonic_ns() > self._counted_ns + _COUNT_NS:
                    self._count(desk)
                has_worked = True
            del task
            if desk.channel.is_stopped:
                self._close(desk)
        return has_worked

    def _step(self, channel: WorkerChannel, loop: WorkerLoop, task: tuple[int, Any]) -> None:
        interruption.begin()
        try:
            self._running = channel
            loop.step(*task)
            self._running = None
        except LoaderEnded:  # it came just after the sample
            self._running = None

    def enter(self, channel: WorkerChannel) -> WorkerLoop | None:
        """Switch to the loader of a channel; returns its loop, or None if there is none."""
        for desk in self._desks:
            if desk.channel is channel:
                if self._at is not desk:
                    self._enter(desk)
                return desk.loop
        return None

    def close_stopped(self) -> None:
        """Stop working for the loaders that have stopped."""
        for desk in list(self._desks):
            if desk.channel.is_stopped:
                self._close(desk)

    def close(self) -> None:
        """Stop working for any loader."""
        for desk in list(self._desks):
            self._close(desk)

    def _next_task(self, desk: _Desk) -> tuple[int, Any] | None:
        if self._at is not desk:
            if not desk.channel.has_work:
                return None
            self._enter(desk)  # before any code of the user's runs or unpickles
        if self._part != desk.part:
            self._say(desk.part)
        return desk.channel.next_task(waits=False)

    def _enter(self, desk: _Desk) -> None:
        self._leave()
        desk.enter()
        self._at = desk

    def _count(self, desk: _Desk | None) -> None:
        """Count the CPU time since the last reading for a loader."""
        before, self._computed_ns = self._computed_ns, time.process_time_ns()
        self._counted_ns = time.monotonic_ns()
        if desk is not None:
            desk.channel.note_computed(self._computed_ns - before)

    def _leave(self) -> None:
        desk, self._at = self._at, None
        if desk is None:
            return
        self._count(desk)
        desk.leave()

    def _close(self, desk: _Desk) -> None:
        if self._at is desk:
            self._leave()
        self._desks.remove(desk)
        desk.loop.close()
