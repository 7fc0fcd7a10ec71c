"""A backend without workers: the thread that iterates makes each batch when it asks for it.

Imports the worker's loop. It is what `num_workers=0` means: there is no thread, and an arena only
where samples are stacked. One backend serves one iterator.
"""

from __future__ import annotations

import functools
import pickle
from collections.abc import Callable
from typing import Any, ClassVar

from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind
from reader._core.wire.local_channel import LocalChannel, LocalFeeder, LocalMemory
from reader.available_memory import available_bytes
from reader.engine.backends.backend import Death, Watch, WorkerStatus
from reader.random.seeds import CapturedState
from reader.worker import context
from reader.worker.global_rng_lock import GlobalRngLock
from reader.worker.loop import WorkerConfig, WorkerError, WorkerLoop
from reader.worker.stream import StreamFetcher

__all__ = ["InlineBackend"]


class InlineBackend:
    """Makes batches in the thread that takes them.

    Args:
        config: as of a worker.
        max_bytes: limit of the memory in which samples are stacked; None: what the machine has.
        spare: the memory of earlier iterators.
        convert: makes the user's batch of what is not stacked; see LocalChannel.
    """

    works_ahead: ClassVar[bool] = False
    takes_keys: ClassVar[bool] = True
    num_workers = started = 1
    window = 1

    def __init__(
        self,
        config: WorkerConfig,
        max_bytes: int | None,
        spare: list[LocalMemory],
        convert: Callable[[Any], Any] | None,
    ) -> None:
        self.rng_lock = GlobalRngLock() if config.seeds_each_batch else None
        make_memory = functools.partial(_make_memory, config, max_bytes)
        self._base_seed = config.base_seed
        self._channel = LocalChannel(make_memory, spare, convert)
        self._loop = WorkerLoop(self._channel, config, 0, None, self.rng_lock, is_inline=True)
        self.feeder = LocalFeeder(self._channel, _stepping(self._loop))

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in the process that made it."""
        return self._channel.is_usable

    @property
    def is_open(self) -> bool:
        """Whether it is not closed."""
        return not self._channel.is_closed

    @property
    def arena(self) -> Arena | None:
        """Where samples are stacked; None before the first, and at the end."""
        return self._channel.arena

    @property
    def is_fresh(self) -> bool:
        """Whether no epoch has left anything in it, so that it may serve another iterator."""
        loop = self._loop
        is_at_start = loop.start_error is None and loop.base_seed == self._base_seed
        return is_at_start and self._channel.is_idle and loop.fetcher.is_stateless

    def open_epoch(self, send_starts: Callable[[], bool], progress: Any) -> None:
        """Begin the epoch of the dataset now, and note the state that it has then."""
        send_starts()
        loop = self._loop
        is_stream = isinstance(loop.fetcher, StreamFetcher)
        workers = progress.worker_cursors
        if workers is None or workers.all[0].made or (is_stream and workers.all[0].is_ended):
            if workers is not None and workers.all[0].is_ended:
                loop.pass_end()
            return
        if loop.start_error is not None or (is_stream and self.rng_lock is not None):
            return  # seeded: `__iter__` is called when the first batch is made
        before = context.entered()
        try:
            found = loop.begin_epoch()
        finally:
            context.leave(before)
        if found is not None:
            workers.note(found)

    def replace_ended(self) -> list[Death]:
        """Return nothing: no worker can die."""
        return []

    def name_of(self, worker_id: int) -> str:  # noqa: ARG002
        """Name the worker in a message."""
        return "the thread that iterates (num_workers=0)"

    def open_error(self, payload: WorkerError) -> WorkerError:
        """Return what was raised in the place of a batch."""
        return payload

    @property
    def handles(self) -> list[Any]:
        """The handles of workers: none."""
        return []

    def statuses(self) -> list[WorkerStatus]:
        """Return nothing: there is no worker."""
        return []

    def kill_worker(self, worker_id: int) -> bool:  # noqa: ARG002
        """Return False: a thread cannot be killed."""
        return False

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:  # noqa: ARG002
        """Find none: no other loader uses this thread."""
        return list

    def cancel_epoch(self) -> None:
        """Drop what was asked for."""
        self.feeder.begin_run(0)

    def close_soon(self, grace_s: float | None = None) -> None:  # noqa: ARG002  no workers
        """Release the arena, after the batch in hand if another thread makes one."""
        self.feeder.close()

    def close(self, grace_s: float | None = None) -> None:  # noqa: ARG002
        """As `close_soon`."""
        self.feeder.close()


def _make_memory(config: WorkerConfig, max_bytes: int | None) -> LocalMemory:
    uncached_from = config.uncached_from(in_flight=1)
    return LocalMemory(config.policy.rules, max_bytes, available_bytes, uncached_from)


def _stepping(loop: WorkerLoop) -> Callable[[int, Any], None]:
    """Return a function that does a task as a worker would, and leaves no trace in the thread."""
    do = loop.step

    def step(kind: int, payload: Any) -> None:
        before = context.entered()
        try:
            if kind == TaskKind.TASK_EPOCH:
                _start_epoch(loop, payload)
            else:
                do(kind, payload)
        finally:
            context.leave(before)

    return step


def _start_epoch(loop: WorkerLoop, payload: bytes) -> None:
    put_own_back = CapturedState().put_back if loop.seeds_globals else None
    try:
        loop.step(TaskKind.TASK_EPOCH, pickle.loads(payload))
    finally:
        if put_own_back is not None:  # a state may set the random state: each batch has its own
            put_own_back()
