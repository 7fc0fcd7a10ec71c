"""What of an epoch was delivered: the positions that states are saved from.

Imports the table of tasks, workers' cursors, orders and the trail. A Progress counts what the
iterator handed over; `state_dict` reads it, also when the iterator is gone. It refers to no object
of the user's but the keys of batches that are not counted yet.
"""

from __future__ import annotations

from _thread import RLock
from collections.abc import Callable
from typing import Any

from reader._core.epoch.tasks import Task, TaskTable
from reader._core.interpreter.signals import interrupt_after
from reader.engine.failed_samples import EpochFailures
from reader.engine.trail import Reached, Trail
from reader.engine.worker_cursors import WorkerCursors
from reader.errors import ConfigError
from reader.orders.order import Order
from reader.orders.order_origin import OrderKind, OrderOrigin, Position
from reader.worker.shard_tracker import Division

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
        step_size: how many batches a step has; None: it differs.
        steps: how many steps come before `first`; None: as many as these batches make.
        keep: how many steps back the position stays known where it does not follow from their
            number alone.
        lengths: of the dataset when the epoch began, and each time that it had grown within it;
            none: it did not grow.

    Attributes:
        is_finished: the user's loop got the end of the epoch.
        origin: of the order, once its first batch was drawn.
        division: how the ranks divide a stream, as its first batches have shown; None: no batch
            was counted.
    """

    # most epochs have none of these
    _listener: Callable[[], None] | None = None
    _trail: Trail | None = None
    _raised: tuple[Task, ...] = ()  # exceptions in the places of batches, in steps of several

    def __init__(
        self,
        epoch: int,
        epochs: dict[str, int],
        table: TaskTable,
        first: Position,
        turn: int | None = None,
        failures: EpochFailures | None = None,
        *,
        step_size: int | None = 1,
        steps: int | None = None,
        keep: int = 0,
        lengths: tuple[int, ...] = (),
    ) -> None:
        self.epoch = epoch
        self.lengths = lengths
        self.epochs = epochs
        self.failures = failures
        self.is_finished = False
        self.origin: OrderOrigin | None = None
        self.division: Division | None = None
        self.lock = RLock()  # a thread may save while another one iterates
        self._table = table
        self._first = first
        self._turn = turn
        self._step_size = step_size
        self._keep = keep
        if steps is None:
            steps = first.batches // (step_size or 1)
        self._first_steps = table.steps = steps
        if failures is not None:
            table.report_first()
        # whether the position behind a step follows from its number, within the order
        is_plain = failures is None and step_size is not None
        self._is_pure = is_plain and table.in_order and table.worker_cursors is None
        if not self._is_pure:
            self._keep_trail()

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

    @property
    def steps(self) -> int:
        """How many steps of the epoch the user has, those before a resume included."""
        return self._table.steps

    def steps_of(self, batches: int) -> int:
        """Return how many steps so many batches make, where no step was another one."""
        return batches // (self._step_size or 1)

    def reached(self) -> Reached:
        """Return the position at one moment; another thread may iterate meanwhile."""
        steps = self._table.steps
        delivered, mark, beyond, cursors = self._table.position()
        batches = cursors.batches if self.is_stream else delivered
        failed = 0 if self.failures is None else self.failures.count
        return Reached(steps, batches, mark, beyond, cursors, failed)

    def behind(self, steps: int) -> Reached:
        """Return the position behind so many steps of the epoch. The caller has counted.

        Raises:
            ConfigError: so many were not handed over, or this position is not kept any more.
        """
        now = self.reached()
        if steps > now.steps:
            raise ConfigError(
                f"trained={steps} is beyond what was handed out: {now.steps} batches of epoch"
                f" {self.epoch}. Count the batches of this epoch, from its beginning, that the"
                " program has trained"
            )
        if steps == now.steps:
            return now
        trail = self._trail
        oldest = self._oldest(now) if trail is None else trail.oldest
        if steps < oldest:
            raise ConfigError(self._too_old(steps, oldest, now))
        if trail is not None:
            return trail.at(steps, now)
        return now._replace(steps=steps, batches=self._batches_of(steps, now))

    def begin_of(self, step: int) -> tuple[int, Any]:
        """Return how many batches come before a step, and the mark there. The caller has counted.

        The step may be one that is not delivered yet, where the order tells it.

        Raises:
            ConfigError: the order does not tell it, or this position is not kept any more.
        """
        origin, first, now = self.origin, self._first, self.reached()
        if self._step_size is None:
            at = self.behind(step)
            return at.batches, at.mark
        batches = step * self._step_size
        if origin is not None and origin.kind in (OrderKind.SEEKABLE, OrderKind.SHARDED):
            size = origin.batch_size
            is_alike = size is None or first.samples == first.batches * size
            if batches >= first.batches or (is_alike and origin.kind is OrderKind.SEEKABLE):
                return batches, None
        marks = {now.batches: now.mark}
        if self._trail is not None:
            marks |= self._trail.marks()
        if batches in marks:
            return batches, marks[batches]
        raise ConfigError(
            f"the place of batch {step} in the order of epoch {self.epoch} is not known: those of"
            f" batches {min(marks)} to {max(marks)} are. Ask sooner, or pass a larger keep_states"
            " to DataLoader"
        )

    def _oldest(self, now: Reached) -> int:
        """Return the fewest steps behind which the position follows from their number."""
        origin, first = self.origin, self._first
        if not self._is_pure or origin is None or self._step_size is None:
            return now.steps
        size = origin.batch_size
        is_alike = size is None or first.samples == first.batches * size
        is_alike &= self._first_steps * self._step_size == first.batches
        return 0 if origin.kind is OrderKind.SEEKABLE and is_alike else self._first_steps

    def _batches_of(self, steps: int, now: Reached) -> int:
        """Return how many batches come before a step of an order that keeps no marks."""
        size = self._step_size or 1
        batches = self._first.batches + (steps - self._first_steps) * size
        if self._raised:
            raised = sorted(task.number for task in self._raised if 0 < task.step <= steps)
            batches -= len(raised) * size
            for number in raised:
                batches += number <= batches
        return min(batches, now.batches)

    def _too_old(self, steps: int, oldest: int, now: Reached) -> str:
        said = f"trained={steps} is older than what is kept of epoch {self.epoch}: "
        if oldest == self._first_steps:
            return (
                f"{said}this loader began it behind batch {oldest}, and an earlier position has"
                f" another order or is not known. Pass {oldest} to {now.steps}"
            )
        return (
            f"{said}{now.steps} batches were handed out, and the positions behind {oldest} to"
            f" {now.steps} of them are known. Pass keep_states={now.steps - steps} or more to"
            f" DataLoader, which has {self._keep}"
        )

    def note_raised(self, task: Task) -> None:
        """Note an exception in the place of one of several batches that would make a step."""
        if task not in self._raised[-1:]:
            self._raised = (*self._raised, task)

    def _keep_trail(self) -> None:
        if self._keep and self._trail is None:
            self._trail = Trail(self._table, self._keep)
            self._table.report_first()

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
        if order.mark is not None:
            self._is_pure = False
            self._keep_trail()
            if self._trail is not None and not self._table.in_order:
                self._table.keep_marks()

    def listen(self, listener: Callable[[], None] | None) -> None:
        """Call this function, or none, after each count and at the end, in the place of another."""
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
                before = None if self._trail is None else self.reached()
                if self.failures is not None:
                    for task in tasks:
                        self.failures.note(task)
                for task in tasks:
                    if task.snapshot is not None and task.snapshot.division is not None:
                        self.division = task.snapshot.division
                cursors = self.worker_cursors
                if cursors is not None:
                    cursors = cursors.after(tasks, self.is_stream)
                is_counted = table.count(tasks, cursors)
                has_counted |= is_counted
                if is_counted and before is not None and self._trail is not None:
                    self._trail.add(before, tasks)
            if self.failures is not None:
                self._end_at_excess(self.failures)
        if is_finished:
            self.is_finished = True
        if (has_counted or is_finished) and self._listener is not None:
            self._listener()

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
