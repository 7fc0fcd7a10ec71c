"""A worker on another machine: a Ray actor that runs the same loop as every other worker.

Imports the core, the loop and the pickled configs; not Ray. It belongs to the process that Ray
started for it. It stacks batches in its own arena, whose slots Ray copies into its store.
"""

from __future__ import annotations

import os
import pickle
import socket
import sys
import time
import uuid
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

from reader._core.interpreter.signals import is_interrupt
from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.relay import Answer, AnswerRelay, RelayedTask
from reader.available_memory import available_bytes
from reader.cluster.release import release
from reader.cluster.sent_config import SentConfig
from reader.errors import ReaderError
from reader.log import log as _log
from reader.worker.shared_loops import SharedLoops
from reader.worker_clock import RunnableClock

__all__ = ["CallTimes", "Place", "RemoteWorker", "Sent"]


_SMALL_NBYTES = 1 << 14


class Sent(NamedTuple):
    """An answer of a worker, the bytes of its slot, and the new schemas of its call, by number.

    `worker`: a unique name of the process, which numbers its own schemas.
    """

    worker: str
    answer: Answer
    data: Any
    schemas: dict[int, bytes]


class CallTimes(NamedTuple):
    """When a call ran, by `time.monotonic_ns` there, and its times in ns.

    `computed_ns`: CPU time; `runnable_ns`: time in which it was ready and had no core; `stored_ns`:
    time in which Ray copied the previous call's batches into its store; `others_ns`: time of other
    programs' calls since this program's last one.
    """

    begun_ns: int
    ended_ns: int
    computed_ns: int = 0
    runnable_ns: int = 0
    stored_ns: int = 0
    others_ns: int = 0


class Place(NamedTuple):
    """The place of a worker: the machine's name, the process, and Ray's id of the node.

    `arena`: descriptor of its memory in that process.
    """

    host: str
    pid: int
    node: str = ""
    arena: int = -1


class RemoteWorker:
    """Makes the batches of one worker.

    Args:
        theirs: the trainer's `release`.
        config: of all workers.
        worker_id: from 0.
        in_flight: the most tasks that it may have.
        loops: of the process, if it works for several loaders; None: for this one alone.

    Raises:
        ReaderError: this package or Python has another version here, so the messages may differ.
    """

    def __init__(
        self,
        theirs: str,
        config: SentConfig,
        worker_id: int,
        in_flight: int,
        loops: SharedLoops | None = None,
    ) -> None:
        if theirs != (own := release()):
            raise ReaderError(f"{socket.gethostname()} has {own}, and the trainer {theirs}")
        self._arena = Arena.create(1, in_flight)
        self._channel = WorkerChannel(self._arena, 0, -1, in_flight + 1, available_bytes)
        self._relay = AnswerRelay(self._channel)
        self._name = uuid.uuid4().hex
        self._loops = SharedLoops(worker_id, lambda _: None) if loops is None else loops
        self._loops.open(self._channel, 0, config.unpickled)
        self._runnable = RunnableClock()
        self._lent: list[weakref.ref[Any]] = []  # arrays that Ray copies after a call has ended
        self._ended_ns = self._stored_ns = 0
        self._calls: dict[str, Callable[[], Any]] = {}  # which may hold what they opened

    def start(self) -> tuple[CallTimes, Place, list[Sent]]:
        """Return its place, and whether the worker could start."""
        begun_ns = time.monotonic_ns()
        ray = sys.modules.get("ray")
        node = "" if ray is None else ray.get_runtime_context().get_node_id()
        place = Place(socket.gethostname(), os.getpid(), node, self._arena.fd)
        answers = self._answers()
        return CallTimes(begun_ns, time.monotonic_ns()), place, answers

    def work(self, tasks: list[tuple[Any, ...]]) -> tuple[CallTimes, list[Sent]]:
        """Do tasks in order; returns the times and the answers."""
        begun_ns, computed_ns = time.monotonic_ns(), time.process_time_ns()
        runnable_ns = self._runnable.read_ns()  # between calls others may wait for a core
        stored_ns = max(0, self._stored_ns - self._ended_ns)
        self._lent.clear()
        self._relay.release()  # the last answers have been copied by now
        loop = self._loops.enter(self._channel)  # before any object of the user's is unpickled
        for each in tasks if loop is not None else ():
            task = self._relay.begin(RelayedTask(*each))
            if task is not None and loop is not None:
                loop.step(*task)
        ended_ns, computed_ns = time.monotonic_ns(), time.process_time_ns() - computed_ns
        runnable_ns = max(0, self._runnable.read_ns() - runnable_ns)
        self._ended_ns, self._stored_ns = ended_ns, 0
        times = CallTimes(begun_ns, ended_ns, computed_ns, runnable_ns, stored_ns)
        return times, self._answers()

    def call(self, key: str, data: bytes) -> Any:
        """Make a call that is pickled, and return its result; None: it failed.

        It is kept until the next one of the same key.
        """
        try:
            call = pickle.loads(data)
            found = call()
        except Exception as error:
            if is_interrupt(error):
                raise
            _log.debug("a call was not made: %r", error)
            return None
        self._calls[key] = call
        return found

    def _note_stored(self, _: Any) -> None:
        self._stored_ns = time.monotonic_ns()

    def close(self) -> None:
        """Stop working for the loader; the process may work for others."""
        self._calls.clear()
        self._arena.stop()
        self._loops.close_stopped()
        self._arena.close()
        self._arena.release()
        self._runnable.close()

    def _answers(self) -> list[Sent]:
        found = []
        # only of this call: it is unknown which earlier calls were landed, and in which order
        told = {0}
        while (taken := self._relay.take()) is not None:
            answer, rows = taken
            data: Any = rows
            if rows is not None and len(rows) <= _SMALL_NBYTES:
                data = rows.tobytes()  # within the pickle: faster than a separate buffer
            elif rows is not None:  # Ray drops it after copying it
                self._lent.append(weakref.ref(rows, self._note_stored))
            new: dict[int, bytes] = {}
            if answer.schema not in told:
                told.add(answer.schema)
                new[answer.schema] = self._relay.schema(answer.schema)
            found.append(Sent(self._name, answer, data, new))
        return found
