"""How many items each worker takes of those that `reader.shard` divides, and where it goes on.

Imports `reader.data.remaining_ranges` and `reader.errors`. The tracker is one per thread: the
fetcher of an iterable dataset sets it in the thread in which the dataset then calls `shard`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from operator import itemgetter, length_hint
from typing import Any

from reader.data.remaining_ranges import RemainingRanges, Shares
from reader.errors import StateError

__all__ = ["ShardShare", "ShardTracker", "begin_share", "track_shards"]

_MANY = 1 << 60


class ShardShare:
    """One call of `shard` in a worker's iteration.

    Args:
        rest: what was there to divide.
        ranks: over how many ranks.
        contiguous: in runs; else in turn.
        positions: those of this worker, None for those of the plain rule.
    """

    def __init__(
        self, rest: RemainingRanges, ranks: int, contiguous: bool, positions: list[range] | None
    ) -> None:
        self._rest = rest
        self._ranks = ranks
        self._contiguous = contiguous
        self.positions = positions
        self._counter = iter(range(_MANY))

    def counted(self, items: Iterator[Any]) -> Iterator[Any]:
        """Yield the items, and count them."""
        return map(itemgetter(0), zip(items, self._counter))

    @property
    def taken(self) -> int:
        """How many items were taken."""
        return _MANY - length_hint(self._counter)

    def to_json(self) -> dict[str, Any]:
        """What was divided, and how; the same in all workers."""
        return {
            "rest": self._rest.to_json(),
            "ranks": self._ranks,
            "contiguous": self._contiguous,
        }


class ShardTracker:
    """What one iteration takes of each call of `shard`.

    Args:
        left: what was divided before and is to be divided anew: as `ShardShare.to_json`, with
            `taken` by each worker; None: nothing.
        ranks: over how many ranks it has to be divided, with nothing `left`; None: any.
    """

    def __init__(self, left: dict[str, Any] | None, ranks: int | None = None) -> None:
        self.left = left
        self._ranks = ranks
        self.begun: list[ShardShare] = []

    def begin(self, cuts: Shares, contiguous: bool, length: int | None) -> ShardShare:
        """Begin another one."""
        left, self.left = self.left, None
        ranks = cuts[0][0]
        if self._ranks is not None and self._ranks != ranks:
            raise StateError(
                f"reader.shard divided the items over {self._ranks} ranks when the state was saved,"
                f" and has world_size={ranks} now: with as many workers as then each goes on by"
                f" itself. Pass world_size={self._ranks}, or another num_workers, with which what"
                " is left is divided anew"
            )
        if left is None:
            share = ShardShare(RemainingRanges.whole(), ranks, contiguous, None)
        else:
            rest = RemainingRanges.from_json(left["rest"])
            rest = rest.without(left["ranks"], left["taken"], left["contiguous"], length)
            share = ShardShare(rest, ranks, contiguous, rest.share(cuts, contiguous, length))
        self.begun.append(share)
        return share


class _State(threading.local):
    tracker: ShardTracker | None = None


_state = _State()


def track_shards(tracker: ShardTracker | None) -> None:
    """Have what `shard` divides from now on, in this thread, noted here."""
    _state.tracker = tracker


def begin_share(cuts: Shares, contiguous: bool, length: int | None) -> ShardShare | None:
    """Note a share; None where nobody tracks them."""
    return None if _state.tracker is None else _state.tracker.begin(cuts, contiguous, length)
