"""What of an epoch was delivered: the position that a state is saved from.

Imports the table of tasks, workers' cursors and orders. A Progress counts what the iterator handed
over; `state_dict` reads it, also when the iterator is gone. It refers to no object of the user's
but the keys of batches that are not counted yet.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from typing import Any

from reader._core.epoch.tasks import TaskTable
from reader._core.interpreter.signals import interrupt_after
from reader.engine.failed_samples import EpochFailures
from reader.engine.worker_cursors import WorkerCursors
from reader.orders.order import Order
from reader.orders.order_origin import OrderOrigin, Position

__all__ = ["Progress"]


class Progress:
    """The position in one epoch.

    Args:
        epoch: its number.
        epochs: the epochs of the user's samplers and datasets when it began.
        table: its tasks.
        first: the position at which it is opened.
        turn: the worker that makes the first batch, where workers take turns; None: they do not.
        failures: the failed samples, where samples may fail; None: none may.

    Attributes:
        is_finished: the user's loop got the end of the epoch.
        origin: of the order, once its first batch was drawn.
        has_shard: whether `shard` was at work in the first batches of a stream; None: no batch was
            counted.
    """

    def __init__(
        self,
        epoch: int,
        epochs: dict[str, int],
        table: TaskTable,
        first: Position,
        turn: int | None = None,
        failures: EpochFailures | None = None,
    ) -> None:
        self.epoch = epoch
        self.epochs = epochs
        self.failures = failures
        self.is_finished = False
        self.origin: OrderOrigin | None = None
        self.has_shard: bool | None = None
        self.lock = RLock()  # a thread may save while another one iterates
        self._table = table
        self._first = first
        self._turn = turn
        self._listener: Callable[[], None] | None = None
        if failures is not None:
            table.report_first()

    @property
    def is_stream(self) -> bool:
        """Whether each worker has a position of its own."""
        return bool(self._table.is_stream)

    @property
    def batches(self) -> int:
        """How many batches were delivered without a gap, exceptions in their places too."""
        if self._table.is_stream:
            cursors: WorkerCursors = self._table.worker_cursors
            return cursors.batches
        return int(self._table.delivered)

    def position(self) -> tuple[int, Any, list[int], WorkerCursors | None]:
        """Return the position at one moment; another thread may iterate meanwhile.

        It is: how many batches were delivered without a gap; the mark of the last of them, see
        Order; the numbers of batches that were delivered early; the cursors of the workers.
        """
        delivered, mark, beyond, cursors = self._table.position()
        return (cursors.batches if self.is_stream else delivered), mark, beyond, cursors

    @property
    def worker_cursors(self) -> WorkerCursors | None:
        """The cursors of the workers; None: these have no state."""
        found: WorkerCursors | None = self._table.worker_cursors
        return found

    @property
    def is_known(self) -> bool:
        """Whether the order is known: its first batch was drawn, or the dataset is a stream."""
        return self.is_stream or self.origin is not None

    def know(self, order: Order) -> None:
        """Take note of an order whose first batch was just drawn."""
        self.origin = order.origin
        self._table.begin(order.start)

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call this function, or none, after each count; it replaces the one before."""
        self._listener = listener
        if listener is not None:
            self._table.report_first()

    def count(self, is_finished: bool = False) -> None:
        """Count what was handed over; `is_finished`: the user's loop gets the end next.

        An exception may interrupt it anywhere; it is called again.
        """
        table, has_counted = self._table, False
        with self.lock:
            while tasks := table.countable():
                if self.failures is not None:
                    for task in tasks:
                        self.failures.note(task)
                for task in tasks:
                    if task.snapshot is not None and task.snapshot.has_shard is not None:
                        self.has_shard = task.snapshot.has_shard
                cursors = self.worker_cursors
                if cursors is not None:
                    cursors = cursors.after(tasks, self.is_stream)
                has_counted |= table.count(tasks, cursors)
            if self.failures is not None:
                self._end_at_excess(self.failures)
        if has_counted and self._listener is not None:
            self._listener()
        if is_finished:
            self.is_finished = True

    def _end_at_excess(self, failures: EpochFailures) -> None:
        """End the epoch if too many samples failed."""
        with interrupt_after():  # `excess` returns it once
            error = failures.excess()
            if error is not None:
                self._table.note_end(error)
                self._table.close()

    def turn_at(self, batches: int, num_workers: int) -> int | None:
        """Return the worker whose turn it is after so many batches; None: workers take no turns."""
        if self._turn is None:
            return None
        return (self._turn + batches - self._first.batches) % num_workers

    def to_start(self, worker_id: int) -> bytes | None:
        """Return what a worker is sent to resume, pickled; None: nothing."""
        self.count()
        return None if self.worker_cursors is None else self.worker_cursors.to_start(worker_id)

    def begin_with(self, cursors: WorkerCursors | None) -> None:
        """Begin with the states that workers have sent; call it before anything is handed over."""
        self._table.begin_with(cursors)
