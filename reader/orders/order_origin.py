"""Positions and marks of an order: plain data that goes with tasks and outlives samplers.

Imports `reader.random.random_state`. An order writes its origin while it is opened and when its
first batch is drawn; a mark belongs to one task. Neither refers to a sampler or its iterator.
"""

from __future__ import annotations

import copy
import dataclasses
import enum
from typing import Any, NamedTuple

from reader.random.random_state import to_json

__all__ = ["OrderOrigin", "Position", "StateMark"]


@dataclasses.dataclass(frozen=True)
class Position:
    """A position in an epoch: how many batches, and samples (None: unknown), come before it."""

    batches: int = 0
    samples: int | None = 0


class StateMark(NamedTuple):
    """The state of a sampler, taken after it had drawn `batches` batches."""

    batches: int
    state: dict[str, Any]


class OrderKind(enum.Enum):
    """The kinds of orders; the value of each is its name in saved states."""

    SEEKABLE = "entry"
    SHARDED = "world"
    STATEFUL = "stateful"
    REPLAYED = "replay"


@dataclasses.dataclass
class OrderOrigin:
    """The data of one epoch's order that is the same at every position.

    Attributes:
        kind: how the order is opened again.
        first: the position where it was opened.
        batch_size: samples of each batch; None where the batches are the user's.
        fixed: entries of saved states that do not depend on the position. `changes` is the
            sampler's own list, which grows.
        random: its initial global random state.
        last_iterator: the state of the sampler's iterator when it was exhausted.
    """

    kind: OrderKind
    first: Position
    batch_size: int | None
    fixed: dict[str, Any] = dataclasses.field(default_factory=dict)
    random: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    last_iterator: Any = None

    def fix(self, entries: dict[str, Any], random: list[dict[str, Any]] | None = None) -> None:
        """Note entries that hold at every position; `random`: None: it has its initial state."""
        self.fixed.update(entries)
        if random is not None:
            self.random = random

    def note_end(self, states: dict[str, Any]) -> None:
        """Note the states of the sampler after the last batch."""
        self.last_iterator = states.get("iterator")

    def samples(self, batches: int) -> int | None:
        """Return how many samples come before batch number `batches`; None: unknown."""
        if self.batch_size is None or self.first.samples is None:
            return None
        return self.first.samples + (batches - self.first.batches) * self.batch_size

    def taken(self, batches: int) -> int | None:
        """Return how many samples of the order all ranks have taken; None: unknown."""
        if self.kind is not OrderKind.SHARDED:
            return self.samples(batches)
        own = min((batches - self.first.batches) * (self.batch_size or 1), self.fixed["share"])
        consumed: int = self.fixed["consumed"] + own * self.fixed["num_replicas"]
        return consumed

    def state(self, batches: int, mark: Any) -> dict[str, Any]:
        """Return the entry `order` of a saved state.

        Args:
            batches: how many batches come before the position.
            mark: the mark after the last of them.
        """
        found: dict[str, Any] = {"way": self.kind.value, **self.fixed}
        if self.kind is OrderKind.STATEFUL:
            found.update(mark.state)
            found["skip"] = (batches - mark.batches) * (self.batch_size or 1)
        elif self.kind is OrderKind.REPLAYED:
            found["checksum"] = mark
        elif self.kind is OrderKind.SHARDED:
            del found["share"]
            found["consumed"] = self.taken(batches)
        if "changes" in found:
            found["changes"] = copy.deepcopy([*found["changes"]])  # another thread may change it
        if self.random:
            found["random"] = [to_json(each) for each in self.random]
        return found
