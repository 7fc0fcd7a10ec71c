"""An Epoch without workers that is made when its iterator needs it for the first time.

Imports the table of tasks and the loan of a backend. It belongs to one iterator, whose usual steps
need the dispatcher alone.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reader._core.epoch.tasks import TaskTable
from reader.engine.backends.backend import Backend
from reader.engine.backends.pool_cache import Loan
from reader.engine.epoch import Epoch
from reader.engine.progress import Progress

__all__ = ["EpochByNeed"]


class EpochByNeed:
    """Ends an epoch of usual steps, and leaves everything else to an Epoch.

    Args:
        loan: of the inline backend.
        table: of the tasks.
        progress: counts what was handed over.
        length: returns how many batches the epoch has.
        make: returns the Epoch.
    """

    awaits_initial_states = False  # there are no workers
    copiers = ()  # the place is no device

    def __init__(
        self,
        loan: Loan,
        table: TaskTable,
        progress: Progress,
        length: Callable[[], int],
        make: Callable[[], Epoch],
    ) -> None:
        self.progress = progress
        self.length = length
        self.count = progress.count
        self._loan = loan
        self._table = table
        self._make = make
        self._epoch: Epoch | None = None

    @property
    def backend(self) -> Backend:
        """What makes the batches."""
        return self._loan.backend

    @property
    def needed(self) -> Epoch:
        """The Epoch, which takes all steps from now on."""
        if self._epoch is None:
            self._epoch = self._make()
        return self._epoch

    def note_initial_states(self) -> None:
        """Do nothing: there are no workers."""

    def next_made(self) -> Any:
        """Make what is handed over next, or end the epoch. It may be called again at any time."""
        table = self._table
        is_whole = self._epoch is None and table.is_over and table.error is None
        if not is_whole or not (table.is_closed or self._loan.backend.is_usable):
            return self.needed.next_made()
        table.close()
        self._loan.release()
        self.count(is_finished=True)
        raise StopIteration

    def __getattr__(self, name: str) -> Any:
        """Ask the Epoch for what is not defined here."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__} has no {name}", name=name, obj=self)
        return getattr(self.needed, name)
