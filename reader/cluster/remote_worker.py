"""A worker on another machine: an actor of Ray, which runs the same loop as every other worker.

Imports the core, the loop and the pickled configs; not Ray. It belongs to the process that Ray
started it in. It stacks batches in an arena of its own, whose slots Ray copies into its store.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from typing import Any, NamedTuple

from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel
from reader._core.wire.relay import Answer, AnswerRelay, RelayedTask
from reader._version import __version__
from reader.available_memory import available_bytes
from reader.cluster.sent_config import SentConfig
from reader.worker.loop import WorkerLoop, carried, open_loop

__all__ = ["RemoteWorker", "Sent"]


_SMALL_NBYTES = 1 << 14


class Sent(NamedTuple):
    """An answer of a worker, the bytes of its slot, and new schemas, by number.

    `worker` names the process for good, which has its own numbers.
    """

    worker: str
    answer: Answer
    data: Any
    schemas: dict[int, bytes]


class RemoteWorker:
    """Makes the batches of one worker.

    Args:
        config: that of all workers.
        worker_id: from 0.
        in_flight: the most tasks that it may have.
    """

    def __init__(self, config: SentConfig, worker_id: int, in_flight: int) -> None:
        self._arena = Arena.create(1, in_flight)
        self._channel = WorkerChannel(self._arena, 0, -1, in_flight + 1, available_bytes)
        self._relay = AnswerRelay(self._channel)
        self._sent: set[int] = {0}  # schemas
        self._name = uuid.uuid4().hex
        self._loop: WorkerLoop | None = None
        try:
            found = config.unpickled()
        except BaseException as error:
            self._channel.fail(carried(error))
        else:
            self._loop = open_loop(self._channel, found, worker_id)

    def start(self) -> tuple[str, int, str, list[Sent]]:
        """Return the machine, the process, this version, and whether the worker could start."""
        return socket.gethostname(), os.getpid(), __version__, self._answers()

    def work(self, tasks: list[tuple[Any, ...]]) -> tuple[float, list[Sent]]:
        """Do tasks, in their order; returns the seconds that they took, and the answers."""
        began = time.monotonic()
        self._relay.release()  # what was returned last has been copied by now
        for each in tasks if self._loop is not None else ():
            task = self._relay.begin(RelayedTask(*each))
            if task is not None and self._loop is not None:
                self._loop.step(*task)
        return time.monotonic() - began, self._answers()

    def _answers(self) -> list[Sent]:
        found = []
        while (taken := self._relay.take()) is not None:
            answer, rows = taken
            data: Any = rows
            if rows is not None and len(rows) <= _SMALL_NBYTES:
                data = rows.tobytes()  # within the pickle: quicker than a buffer beside it
            new: dict[int, bytes] = {}
            if answer.schema not in self._sent:
                self._sent.add(answer.schema)
                new[answer.schema] = self._relay.schema(answer.schema)
            found.append(Sent(self._name, answer, data, new))
        return found
