"""The process that brings the batches of remote workers into the trainer's arena.

Imports the relays, and Ray where it runs. It is a process beside the trainer, which Ray's client
does not slow: it takes tasks off the rings as a worker does, sends them to actors, and lands their
answers. When an actor ends, its pipe is closed, at which the trainer sees a worker that died.
"""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pickle
import socket
import time
from collections import deque
from typing import Any, NamedTuple

from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.relay import RelayedTask, TaskRelay
from reader._core.wire.wake_words import WakeWords
from reader.available_memory import available_bytes
from reader.cluster.ray_backend import Ray
from reader.cluster.remote_worker import RemoteWorker, Sent
from reader.errors import ReaderError
from reader.processes.process import InheritedFd, read_file
from reader.processes.shared_process import Stop, received
from reader.worker.loop import carried

__all__ = ["Ended", "Kill", "LanderJob", "Start"]

_CALLS = 2  # of one actor at a time: the next one is there when it has done with one
_MANY = 32  # tasks of one call
_SMALL_NBYTES = 1 << 16  # of a batch: so small ones travel together
_LOOK_S = 0.001


@dataclasses.dataclass(frozen=True)
class Start:
    """Start a remote worker. `worker`: its number; `keep_slots`: see WorkerChannel."""

    worker: int
    keep_slots: int
    in_flight: int


@dataclasses.dataclass(frozen=True)
class Kill:
    """End a remote worker at once."""

    worker: int


class Ended(NamedTuple):
    """What the trainer is told of a worker that ended: its process there, and why."""

    pid: int
    cause: str


@dataclasses.dataclass(frozen=True)
class LanderJob:
    """Brings the batches of all remote workers of a pool.

    `control`: messages of the trainer; `words`: see WakeWords; `config`: a memory file with the
    pickled config.
    """

    control: InheritedFd
    words: InheritedFd
    config: InheritedFd
    backend: Ray
    makes_stale: bool

    def work(self, worker_id: int) -> None:
        """Land batches until it is told to stop."""
        import ray

        words = WakeWords(self.words.fd, 1)
        config = bytes(read_file(self.config.fd))
        error: BaseException | None = None
        try:
            connect(ray, self.backend)
            stored = ray.put(config)
            kind = ray.remote(RemoteWorker).options(**self.backend.actor_options())
        except BaseException as found:  # told at each worker
            error = found
        lines: list[_Line] = []
        with socket.socket(fileno=self.control.fd) as control:
            while True:
                if words.take(worker_id):
                    for order, fds in received(control):
                        if isinstance(order, Stop):
                            with contextlib.suppress(Exception):
                                ray.shutdown()
                            return
                        if isinstance(order, Kill):
                            for line in lines:
                                if line.worker == order.worker:
                                    line.kill(ray)
                            continue
                        line = _Line(order, fds, self.makes_stale)
                        if error is not None:
                            line.fail(error)
                            continue
                        line.start(kind.remote(stored, order.worker, order.in_flight))
                        lines.append(line)
                refs: dict[Any, _Line] = {}
                lines = [line for line in lines if not line.is_ended]
                for line in lines:
                    line.send(ray)
                    refs.update((call.ref, line) for call in line.calls)
                if not refs:
                    words.wait(worker_id, [line.channel for line in lines])
                    continue
                firsts = [line.calls[0].ref for line in lines if line.calls]
                ready, _ = ray.wait(firsts, num_returns=len(firsts), timeout=0)
                if not ready:
                    ready, _ = ray.wait(firsts, num_returns=1, timeout=_LOOK_S)
                for ref in ready:
                    refs[ref].land(ray)


def connect(ray: Any, backend: Ray) -> None:
    """Connect this process to the cluster, or start a local one."""
    ray.init(
        address=backend.address,
        runtime_env=backend.runtime_env,
        log_to_driver=False,
        logging_level="ERROR",
        include_dashboard=False if backend.address is None else None,
    )


@dataclasses.dataclass
class _Call:
    ref: Any
    tasks: list[RelayedTask]  # [] of the start


class _Line:
    """What goes to one remote worker, and comes from it."""

    def __init__(self, order: Start, fds: list[int], makes_stale: bool) -> None:
        arena, bell, self._pipe = fds
        self.worker = order.worker
        self.calls: deque[_Call] = deque()
        self.is_ended = False
        self._bell = bell
        self.channel = WorkerChannel(
            Arena.attach(arena), order.worker, bell, order.keep_slots, available_bytes
        )
        self._relay = TaskRelay(self.channel, makes_stale)
        self._actor: Any = None
        self._host, self._pid = "a node that did not take it", 0
        self._nbytes = _SMALL_NBYTES + 1  # of the last batch
        self._is_quick = False

    def start(self, actor: Any) -> None:
        """Have the actor say that it runs."""
        self._actor = actor
        self.calls.append(_Call(actor.start.remote(), []))

    def send(self, ray: Any) -> None:
        """Send the tasks that wait, as far as the actor may have them."""
        if self.channel.is_stopped:
            self.kill(ray)
            self._end(None)
            return
        while len(self.calls) < _CALLS:
            most = _MANY if self._nbytes <= _SMALL_NBYTES and self._is_quick else 1
            tasks: list[RelayedTask] = []
            while len(tasks) < most and (task := self._relay.next_task()) is not None:
                tasks.append(task)
            if not tasks:
                return
            ref = self._actor.work.remote([tuple(task) for task in tasks])
            self.calls.append(_Call(ref, tasks))

    def land(self, ray: Any) -> None:
        """Land the answers of the oldest call."""
        call = self.calls[0]
        began = time.monotonic()
        try:
            found = ray.get(call.ref)
        except Exception as error:  # the actor is gone, with its node or alone
            self._end(error)
            return
        self._is_quick = time.monotonic() - began < 0.05
        self.calls.popleft()
        if call.tasks:
            answers: list[Sent] = found
        else:
            self._host, self._pid, answers = found
        for sent in answers:
            for number, schema in sent.schemas.items():
                self._relay.keep(number, schema)
            self._relay.land(sent.answer, sent.data)
            if sent.data is not None:
                self._nbytes = len(sent.data)

    def kill(self, ray: Any) -> None:
        """End the actor at once."""
        if self._actor is not None:
            with contextlib.suppress(Exception):
                ray.kill(self._actor)

    def fail(self, error: BaseException) -> None:
        """Say that the worker cannot start."""
        told = ReaderError(f"workers on Ray cannot be started: {type(error).__name__}: {error}")
        self.channel.fail(carried(told))  # the pipe stays: its end would be a death

    def _end(self, error: BaseException | None) -> None:
        self.is_ended = True
        self.calls.clear()
        with contextlib.suppress(OSError):
            if error is not None:
                words = " ".join(str(error).split())[:1000]
                cause = f"pid {self._pid} on {self._host}: {type(error).__name__}: {words}"
                os.write(self._pipe, pickle.dumps(Ended(self._pid, cause)))
        os.close(self._pipe)
        os.close(self._bell)
