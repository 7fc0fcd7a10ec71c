"""An epoch whose batches the thread that iterates makes, for as long as nothing unusual comes.

Imports the compiled steps, orders and cursors. It belongs to one iterator; what more an epoch may
need (errors, retries, states of a sampler that was interrupted) is made when it is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, final

from reader._core.interpreter.signals import interrupt_after
from reader._core.steps.handover import Made, WaitStats
from reader._core.steps.inline_steps import InlineSteps
from reader._core.steps.window import Window
from reader.engine.backends.pool_cache import Loan
from reader.engine.cursor import MapCursor
from reader.orders.seekable_order import SeekableOrder
from reader.processes.pool_registry import leave_with_program

__all__ = ["InlineEpoch"]


@final
class InlineEpoch(InlineSteps):
    """Yields the batches of one epoch as an EpochIterator does, which it opens where one is needed.

    That is where the sampler or a sample raises something, a key is no usual one, a batch takes
    very long, or the backend is closed or another process's; and where anything is asked of this
    iterator that is not defined here. The epoch then goes on from where it is.

    Args:
        loan: of an inline backend, whose run has begun.
        order: of the epoch.
        batches: its iterator.
        cursor: of the epoch.
        sized, takes_any, convert, stats, slow_s: see InlineSteps.
        length: returns how many batches the epoch has.
        open_rest: returns the EpochIterator over the rest of this epoch, by the number of its first
            task and what is called with its window and schedule.
    """

    copiers = ()  # the place is no device
    awaits_initial_states = False  # there are no workers

    def __init__(
        self,
        loan: Loan,
        order: SeekableOrder,
        batches: Iterator[Any],
        cursor: MapCursor,
        sized: Any,
        takes_any: bool,
        convert: Callable[[Any], Any],
        stats: WaitStats,
        slow_s: float | None,
        length: Callable[[], int],
        open_rest: Callable[[int, Callable[[Window, Any], None]], Any],
    ) -> None:
        feeder: Any = loan.backend.feeder
        super().__init__(feeder, batches, sized, takes_any, convert, cursor, stats)
        if slow_s is not None:
            self.slow_s = slow_s
        self.loan = loan
        self.order = order
        self.cursor = cursor
        self._length = length
        self._open_rest = open_rest
        self._is_over = False

    @property
    def backend(self) -> Any:
        """What makes the batches."""
        return self.loan.backend

    def note_first(self) -> None:
        """Record what the order was drawn with, once its first batch was drawn."""
        self.order.note_first(0, b"")
        self.cursor.know(self.order)

    def note_initial_states(self) -> None:
        """Do nothing: there are no workers."""

    def give_way(self) -> None:
        """Do nothing: no thread waits for another one here."""

    def draw_first(self) -> None:
        """Draw the first batch of keys now, so that a state can describe the order."""
        if self.is_first and not self._is_over:
            self.rest.draw_first()

    def leave_with_program(self) -> None:
        """See EpochIterator."""
        leave_with_program()

    @property
    def rest(self) -> Any:
        """The EpochIterator over the rest of the epoch, which makes all from now on."""
        if self.source is None:
            feeder: Any = self.feeder
            rest = self._open_rest(feeder.accepted, self._pass_on)
            self.is_usual, self.is_watched, self.stats, self.made = False, _never, None, None
            self.source = rest
            if self.is_slow:
                rest.tell_slow()
        return self.source

    def _pass_on(self, window: Window, schedule: Any) -> None:
        """Give the window and the schedule of the rest what is in flight, or was drawn."""
        # what was made and not handed over is still the feeder's answer
        task = self.task if self.made is None else self.made.task
        if task is not None:
            window.add(task)
        else:
            schedule._keys += self.keys
        schedule._is_first = self.is_first
        schedule._torn += self.torn
        if self.error is not None:
            schedule._early.append(self.error)

    def prepare(self) -> None:
        """Make what is no usual step, or end the epoch."""
        if self._is_over:
            raise StopIteration
        if self.is_drained and self.source is None:
            self._end()
        found = self.made_by(self.rest)
        self.made = Made(found.value, is_error=found.is_error, step=self.rest.hand_over)

    def reword(self, error: Exception) -> None:
        """Return None: the error is raised as it is."""

    def _end(self) -> None:
        if self.is_first:
            self.cursor.know(self.order)  # an empty sampler has drawn its seed, too
        self._let_go()
        self.cursor.count_handed()
        self.cursor.is_finished = True
        raise StopIteration

    def close(self) -> None:
        """End the epoch here. Idempotent."""
        if self.source is not None:
            self.rest.close()
        self.drop()
        self.cursor.count_handed()
        self._let_go()

    def _let_go(self) -> None:
        with interrupt_after():
            self.loan.give_back()
        self._is_over = True

    def __len__(self) -> int:
        """The number of batches of the whole epoch."""
        return self._length()

    def __getattr__(self, name: str) -> Any:
        """Ask the EpochIterator for what is not defined here."""
        if name.startswith("__") or "_open_rest" not in self.__dict__:
            raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)
        return getattr(self.rest, name)


def _never() -> bool:
    return False
