"""What is kept of an order while it is drawn, so that it can be entered where it was delivered to.

Imports `reader.data.random_state`. Plain data: a log names no sampler and no iterator, so it may
outlive them; the order that draws writes it, and whoever saves a state reads it.
"""

from __future__ import annotations

import dataclasses
from collections import deque
from typing import Any

from reader.data.random_state import to_json

__all__ = ["OrderLog", "Position"]


@dataclasses.dataclass(frozen=True)
class Position:
    """Where in an epoch: how many batches, and samples (None: not known), come before it."""

    batches: int = 0
    samples: int | None = 0


class OrderLog:
    """What is known of one epoch's order.

    Args:
        way: "entry", "world", "stateful" or "replay"; see `reader.data.order.Order`.
        first: where the order was entered.
        batch_size: samples of each batch; None where they are the user's.
    """

    def __init__(self, way: str, first: Position, batch_size: int | None) -> None:
        self.way = way
        self.first = first
        self.batch_size = batch_size
        self.fixed: dict[str, Any] = {}  # what holds at every position
        self.random: list[dict[str, Any]] = []  # the global random state that the order began with
        self.last_iterator: Any = None  # the state of the sampler's iterator when it was used up
        self._checksums: list[int] = []  # after each of the last batches, in a ring
        self._states: deque[tuple[int, dict[str, Any]]] = deque()  # (batches before it, state)

    def samples(self, batches: int) -> int | None:
        """Return how many samples come before batch `batches`, where that is known."""
        if self.batch_size is None or self.first.samples is None:
            return None
        return self.first.samples + (batches - self.first.batches) * self.batch_size

    def keep_checksums(self, depth: int, checksum: int) -> None:
        """Keep the checksums of the last `depth` positions; `checksum` is that of the first."""
        self._checksums = [checksum] * (depth + 2)

    def note_checksum(self, batches: int, checksum: int) -> None:
        """Note the checksum of all tasks before batch `batches`."""
        self._checksums[batches % len(self._checksums)] = checksum

    def keep_states(self, depth: int, every: int) -> None:
        """Keep the states that the last `depth` positions need."""
        self._states = deque(maxlen=depth // every + 4)

    def note_state(self, batches: int, state: dict[str, Any]) -> None:
        """Note the sampler's state, from which batch `batches` is drawn next."""
        self._states.append((batches, state))

    def state(self, batches: int) -> dict[str, Any]:
        """Return the order's part of a state before batch `batches`."""
        found: dict[str, Any] = {"way": self.way, **self.fixed}
        if self._states:
            at, state = next(each for each in reversed(self._states) if each[0] <= batches)
            found.update(state)
            found["skip"] = (batches - at) * (self.batch_size or 1)
        if self._checksums:
            found["checksum"] = self._checksums[batches % len(self._checksums)]
        if self.random:
            found["random"] = [to_json(each) for each in self.random]
        if self.way == "world":
            taken = min((batches - self.first.batches) * (self.batch_size or 1), found.pop("share"))
            found["consumed"] += taken * found["num_replicas"]
        return found
