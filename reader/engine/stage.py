"""The stage: how batches land with the user, and the one place that counts deliveries.

Imports the cursor and what crosses. It belongs to one iterator; threads that share that take turns.
With several places the batches of a step are its group: they count when the group is handed over.
"""

from __future__ import annotations

import dataclasses
import time
import warnings
from collections.abc import Callable
from typing import Any

from reader.engine.cursor import Cursor
from reader.engine.schedule import Outcome, Task

__all__ = ["Stage", "WaitStats"]

Convert = Callable[[Any], Any]


@dataclasses.dataclass
class WaitStats:
    """What the consumer saw: how many batches it got, and how long it waited for them."""

    batches: int = 0
    wait_s: float = 0.0
    last_wait_s: float = 0.0
    waiting_since: float | None = None  # by time.monotonic; None: it does not wait

    def times(self) -> tuple[float, float]:
        """Return the seconds of all waits and of the last one, with one that still lasts."""
        since = self.waiting_since
        if since is None:
            return self.wait_s, self.last_wait_s
        last = time.monotonic() - since
        return self.wait_s + last, last


class Stage:
    """Makes the user's batch of what a worker sent, for each place, and counts it.

    Attributes:
        land: returns the user's batch of an item; with several places keeps it in the group.
        places: how many.
        cursor: the position of the last batch delivered.

    Args:
        converts: for each place, what makes the user's batch.
        cursor: moved with each delivery.
        stats: counted up with each batch.
        drop_last_group: what becomes of a last group that is short: False: it is delivered; True:
            it is left out; None: it is left out with a UserWarning that says so.
    """

    def __init__(
        self,
        converts: list[Convert],
        cursor: Cursor,
        stats: WaitStats,
        drop_last_group: bool | None = False,
    ) -> None:
        self.cursor = cursor
        self.places = len(converts)
        self.land: Convert = converts[0] if self.places == 1 else self._add
        self._converts = converts
        self._stats = stats
        self._drop_last_group = drop_last_group
        self._group: list[tuple[int | None, Any]] = []  # (number of the batch, batch)
        self._held: list[Outcome] = []  # outcomes that count when the group is handed over
        self._groups = 0

    def _add(self, item: Any) -> None:
        """Put a batch into the group.

        The same item comes again if Ctrl-C came before it counted.
        """
        if not self._group or self._group[-1][0] != item.seq:
            self._group.append((item.seq, self._converts[len(self._group)](item)))

    def count(self, outcome: Outcome) -> None:
        """Count the outcome of a task: now, or with the group that is under way."""
        if self._group:
            self._held.append(outcome)
        else:
            self.cursor.count(outcome)

    def count_batch(self, task: Task, snapshot: Any) -> None:
        """Count a batch that has landed, with the state that its worker sent."""
        self._stats.batches += 1
        if self._group:
            self._held.append(Outcome(task, snapshot))
        else:
            self.cursor.advance(task, snapshot)

    @property
    def is_full(self) -> bool:
        """Whether each place has its batch."""
        return len(self._group) == self.places

    def hand_over(self) -> list[Any]:
        """Return the group, which counts from now on."""
        group, self._group = self._group, []
        held, self._held = self._held, []
        self._groups += len(group) == self.places
        for outcome in held:
            self.cursor.count(outcome)
        return [batch for _, batch in group]

    def drop(self) -> None:
        """Drop the group: the user never got it."""
        self._group, self._held = [], []

    def last_group(self) -> list[Any]:
        """Return the short group at the end of the epoch; [] if it is left out."""
        if self._drop_last_group is False:
            return self.hand_over()
        left = len(self.hand_over())
        if left and self._drop_last_group is None:
            warnings.warn(
                f"the last {left} of {self._groups * self.places + left} batches were left out:"
                f" they do not fill a group of {self.places} places. Pass drop_last_group=False to"
                " get the short group, or drop_last_group=True to leave it out without this"
                " warning",
                stacklevel=4,
            )
        return []
