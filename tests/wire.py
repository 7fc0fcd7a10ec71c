"""The connection of one worker and the trainer, with both ends in this process.

Imports the core. A Wire owns its arena and its feeder until `close`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from reader._core.batch.side_table import SideTable
from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader._core.wire.feeder import Feeder

Answer = Callable[[WorkerChannel], Any]


class TakingFeeder:
    """Takes each task that it is sent, and has no worker."""

    sends = 0

    def dispatch(self, number: int, kind: int, payload: bytes, worker: int) -> bool:
        self.sends += 1
        return True

    def accept(self) -> None:
        """Keep nothing."""


class Wire:
    """A feeder and the channel of its only worker: a process's, or a thread's with `is_thread`."""

    def __init__(self, is_thread: bool = False) -> None:
        side = SideTable() if is_thread else None
        self.arena = Arena.create(1, 8)
        self.feeder = Feeder(self.arena, 1, 4, 8, None, side)
        self.channel = WorkerChannel(self.arena, 0, self.feeder.bell, 4, None, side)
        self.feeder.attach(0)
        self.feeder.begin_run(0)
        self._is_thread = is_thread
        self._sent = 0

    def carry(self, answer: Answer) -> LoDTensorArray:
        """Let the worker answer one task with `answer(channel)`; returns the batch that came."""
        assert self.feeder.dispatch(self._sent, TaskKind.TASK_NEXT, b"")
        self._sent += 1
        assert self.channel.next_task() is not None
        try:
            answer(self.channel)
        except BaseException:
            self.channel.send_error(None if self._is_thread else b"")
            self.feeder.take(5)
            self.feeder.accept()
            raise
        batch = self.feeder.take(5)
        self.feeder.accept()
        assert isinstance(batch, LoDTensorArray), getattr(batch, "payload", batch)
        return batch

    def write(self, batch: Any) -> LoDTensorArray:
        """A ready-made batch."""
        return self.carry(lambda channel: channel.write(batch))

    def stack(self, samples: list[Any]) -> LoDTensorArray:
        """A batch of samples, stacked in place."""
        keys = list(range(len(samples)))
        return self.carry(lambda channel: channel.stack(samples, keys, keys))

    def stream(self, samples: list[Any]) -> LoDTensorArray:
        """A batch of samples, drawn one by one."""
        return self.carry(lambda channel: channel.stream(iter(samples), len(samples), False))

    def close(self) -> None:
        """Release everything."""
        self.feeder.close()
        self.arena.close()
        self.arena.release()


@contextmanager
def wire(is_thread: bool = False) -> Iterator[Wire]:
    """A Wire for the length of a block."""
    made = Wire(is_thread)
    try:
        yield made
    finally:
        made.close()
