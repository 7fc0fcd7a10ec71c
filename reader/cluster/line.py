"""The line to one remote worker: the calls that are under way, and their landing.

Imports the channels and relays. A line belongs to the lander. When the actor of it has ended, its
pipe is closed, at which the trainer sees a worker that died.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NamedTuple

from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader._core.wire.relay import RelayedTask, TaskRelay
from reader._version import __version__
from reader.available_memory import available_bytes
from reader.cluster.remote_worker import Sent
from reader.errors import ReaderError
from reader.worker.loop import carried

__all__ = ["Ended", "HasRoom", "Line", "Start", "Started"]

_CALLS = 2  # of one actor at a time: the next one is there when it has done with one
_MANY = 32  # tasks of one call
_TOGETHER_NBYTES = 1 << 20  # of batches that travel together, where they are made quickly
_QUICK_S = 0.005
_SAID = 1000  # characters of what Ray says


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a remote worker.

    `worker`: its number; `keep_slots`: see WorkerChannel; `in_flight`: the most tasks it may have.
    """

    worker: int
    keep_slots: int
    in_flight: int


class Started(NamedTuple):
    """What the trainer is told of a worker that runs: its process, and the machine of that."""

    worker: int
    pid: int
    host: str


class HasRoom(NamedTuple):
    """How many workers the cluster has room for, those that there are included."""

    workers: int


class Ended(NamedTuple):
    """What the trainer is told of a worker that ended: its process there, and why."""

    pid: int
    cause: str


class _Call(NamedTuple):
    result: Future[Any]
    tasks: int  # that are answered


class Line:
    """What goes to one remote worker, and comes from it.

    Args:
        order: of the trainer.
        fds: of the arena, the bell, and the pipe whose end says that the worker has ended.
        makes_stale: see TaskRelay.
        schemas: of the batches of all workers, by worker and number.
        wake: called in a thread of Ray's when a result has come.

    Attributes:
        actor: None before `start`.
        calls: without a result so far, the oldest first.
        is_told: the trainer has heard of its start.
    """

    def __init__(
        self,
        order: Start,
        fds: list[int],
        makes_stale: bool,
        schemas: dict[tuple[str, int], bytes],
        wake: Callable[[Any], None],
    ) -> None:
        arena, self._bell, self._pipe = fds
        self.worker = order.worker
        self.calls: deque[_Call] = deque()
        self.actor: Any = None
        self._starting: Future[Any] | None = None
        self.is_ended = False
        self.is_started = self.is_told = False
        self.channel = WorkerChannel(
            Arena.attach(arena), order.worker, self._bell, order.keep_slots, available_bytes
        )
        self._relay = TaskRelay(self.channel, makes_stale)
        self._schemas = schemas
        self._wake = wake
        self._epoch: RelayedTask | None = None  # that the own actor was not told of
        self._place = Started(order.worker, 0, "a node that did not take it")
        self._nbytes = 0  # of the last batch
        self._is_quick = False

    def start(self, actor: Any) -> None:
        """Have the actor say that it runs."""
        self.actor, self._starting = actor, self._awaited(actor.start.remote())

    def _awaited(self, ref: Any) -> Future[Any]:
        """Return the result of a call, which wakes the lander when it has come."""
        found: Future[Any] = ref.future()
        found.add_done_callback(self._wake)
        return found

    @property
    def started(self) -> Started:
        """Where it runs."""
        return self._place

    @property
    def in_flight_nbytes(self) -> int:
        """How many bytes the batches under way take, as far as one knows."""
        return self._nbytes * sum(call.tasks for call in self.calls)

    @property
    def is_full(self) -> bool:
        """Whether enough is under way."""
        return len(self.calls) >= _CALLS

    def send(self, actor: Any) -> bool:
        """Send tasks that wait to an actor; False: there are none, or it has enough."""
        if self.is_full:
            return False
        most = 1
        if self._is_quick and self._nbytes:
            most = max(1, min(_MANY, _TOGETHER_NBYTES // self._nbytes))
        tasks: list[RelayedTask] = []
        while len(tasks) < most:
            task = self._relay.next_task()
            if task is None:
                break
            if task.kind == TaskKind.TASK_EPOCH:
                self._epoch = task
                continue
            tasks.append(task)
        if not tasks:
            return False
        sent = [tuple(task) for task in tasks]
        if self._epoch is not None:
            sent.insert(0, tuple(self._epoch))
            if actor is self.actor:
                self._epoch = None
        self.calls.append(_Call(self._awaited(actor.work.remote(sent)), len(tasks)))
        return True

    def land(self) -> None:
        """Land the results that have come. Raises what Ray raises where the actor is gone."""
        if self._starting is not None and self._starting.done():
            starting, self._starting = self._starting, None
            self._begin(*starting.result())
        while self.calls and self.calls[0].result.done():
            call = self.calls.popleft()
            seconds, answers = call.result.result()
            self._is_quick = seconds < _QUICK_S * call.tasks
            for sent in answers:
                self._take(sent)

    def _begin(self, host: str, pid: int, version: str, answers: list[Sent]) -> None:
        self.is_started = True
        self._place = Started(self.worker, pid, host)
        if version != __version__:
            self.fail(
                ReaderError(
                    f"the node {host} has lodreader {version}, and this one {__version__}: install"
                    " the same version on all nodes, or name it in runtime_env"
                )
            )
            return
        for sent in answers:
            self._take(sent)

    def _take(self, sent: Sent) -> None:
        key = sent.worker, sent.answer.schema
        for number, schema in sent.schemas.items():
            self._schemas[sent.worker, number] = schema
        if sent.answer.schema and not self._relay.knows(key):
            self._relay.keep(key, self._schemas[key])
        self._relay.land(sent.answer, sent.data, key)
        if sent.data is not None:
            self._nbytes = len(sent.data)

    def fail(self, error: BaseException) -> None:
        """Say that the worker cannot start."""
        self.channel.fail(carried(error))  # the pipe stays open: its end would be a death
        self.is_ended = True

    def end(self, error: BaseException | None) -> None:
        """Let go of the worker, which has ended; the trainer is told why."""
        self.is_ended = True
        self.calls.clear()
        with contextlib.suppress(OSError):
            if error is not None:
                words = " ".join(str(error).split())[:_SAID]
                _, pid, host = self._place
                cause = f"pid {pid} on {host}. {type(error).__name__}: {words}"
                os.write(self._pipe, pickle.dumps(Ended(pid, cause)))
        os.close(self._pipe)
        os.close(self._bell)
