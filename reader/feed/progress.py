"""How far an epoch was delivered: shared by its iterator and by the loader that may be asked.

Imports the log of orders and the parts. While the iterator lives the feeder counts for it; when it
lets go of its pool the count is frozen here. It names no object of the user's.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from reader._core.feeder import Feeder
from reader.data.order_log import OrderLog, Position
from reader.feed.parts import Parts

__all__ = ["Progress"]


class Progress:
    """How far one epoch was delivered.

    Args:
        epoch: its number.
        first: where in it the iterator began.
        parts: those of the workers, where they have any.
        epochs: which epochs the user's samplers and datasets were at when it began.
        turn: whose turn the first batch is, where workers take turns.
    """

    def __init__(
        self,
        epoch: int,
        first: Position,
        parts: Parts | None,
        epochs: dict[str, int],
        turn: int | None = None,
    ) -> None:
        self.epoch = epoch
        self.first = first
        self.parts = parts
        self.epochs = epochs
        self.turn = turn
        self.log: OrderLog | None = None  # of a map-style dataset, once the order is begun
        self.is_finished = False  # the user's loop was told that the epoch is over
        self.resumed: dict[str, Any] | None = None  # the state that it was begun from
        self._settle: weakref.WeakMethod[Callable[[], None]] | None = None
        self._feeder: Feeder | None = None
        self._taken = first.batches
        self.passed: tuple[int, ...] = ()  # batches beyond `first` that were delivered before
        # where batches come in any order: how many came without a gap, and which beyond it
        self._done: Callable[[], tuple[int, list[int]]] | None = None
        self._beyond: list[int] = []
        self._held: int | None = None  # the first batch that waits in a group of places

    def follow(self, feeder: Feeder) -> None:
        """The feeder counts from now on what is delivered."""
        self._feeder = feeder

    def ask_first(self, settle: Callable[[], None]) -> None:
        """Have `settle`, of an object that may go, called before the order is looked at."""
        self._settle = weakref.WeakMethod(settle)

    def settle(self) -> None:
        """Have an order that is drawn late draw what is first, so that a state can tell it."""
        kept, self._settle = self._settle, None
        settle = None if kept is None else kept()
        if settle is not None:
            settle()

    def watch(self, done: Callable[[], tuple[int, list[int]]]) -> None:
        """Batches come in any order; `done` tells which were delivered."""
        self._done = done

    def freeze(self) -> None:
        """The iterator lets go of its pool."""
        done, self._done = self._done, None
        if done is not None:
            self._feeder = None
            self._taken, self._beyond = done()
        feeder, self._feeder = self._feeder, None
        if feeder is not None:
            self._taken = feeder.accepted

    def advance(self) -> None:
        """A batch was delivered that no feeder counts."""
        self._taken += 1

    def hold(self, batch: int | None) -> None:
        """A batch waits for others of its group: the user does not have it yet."""
        self._held = batch
        if self.parts is not None:
            self.parts.is_held = True

    def release(self) -> None:
        """The user got the group."""
        self._held = None
        if self.parts is not None:
            self.parts.release()

    @property
    def batches(self) -> int:
        """How many batches of a map-style dataset the user got, exceptions too."""
        if self._held is not None:
            return self._held
        if self._done is not None:
            return self._done()[0]
        return self._taken if self._feeder is None else self._feeder.accepted

    @property
    def beyond(self) -> list[int]:
        """The numbers of batches that were delivered behind one that was not."""
        return self._beyond if self._done is None else self._done()[1]

    def next_turn(self, workers: int) -> int | None:
        """Whose turn it is, where workers take turns."""
        if self.turn is None:
            return None
        return (self.turn + self.batches - self.first.batches) % workers
