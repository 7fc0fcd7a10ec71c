"""Count how many items of its `reader.shard` each worker takes, for a resume.

Imports `reader.data.remaining_ranges` and `reader.errors`. The tracker is one per thread: the
fetcher of an iterable dataset sets it in the thread in which the dataset then calls `shard`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from operator import itemgetter, length_hint
from typing import Any, Literal

from reader.data.remaining_ranges import RemainingRanges, Splits
from reader.errors import StateError, workers_option

__all__ = ["Division", "ShardShare", "ShardTracker", "begin_share", "lose_track", "track_shards"]

_MANY = 1 << 60

# How the ranks divide a stream. "none": `shard` was not called; "even": all workers of all ranks
# have equally many items; "uneven": that is not known.
Division = Literal["none", "even", "uneven"]


class ShardShare:
    """One call of `shard` in a worker's iteration.

    Args:
        divided: the items to divide, as ranges.
        ranks: how many ranks divide them.
        contiguous: in runs; otherwise round robin.
        positions: of this worker's items; None: as `shard_items` divides a whole sequence.

    Attributes:
        is_even: whether all workers of all ranks are known to have equally many items; the caller
            sets it.
    """

    def __init__(
        self, divided: RemainingRanges, ranks: int, contiguous: bool, positions: list[range] | None
    ) -> None:
        self.is_even = False
        self.divided = divided
        self._ranks = ranks
        self._contiguous = contiguous
        self.positions = positions
        self._counter = iter(range(_MANY))

    def counted(self, items: Iterator[Any]) -> Iterator[Any]:
        """Return an iterator over the items that counts them."""
        return map(itemgetter(0), zip(items, self._counter))

    @property
    def taken(self) -> int:
        """How many items were taken."""
        return _MANY - length_hint(self._counter)

    def to_json(self) -> dict[str, Any]:
        """The division, as plain data; the same in all workers."""
        return {
            "rest": self.divided.to_json(),
            "ranks": self._ranks,
            "contiguous": self._contiguous,
        }


class ShardTracker:
    """Counts the items that one iteration takes of each call of `shard`.

    Args:
        left: the items that a resume divides anew: as `ShardShare.to_json`, with the `taken` of
            each worker; None: nothing.
        ranks: how many ranks must divide it when `left` is None; None: any number.
    """

    def __init__(self, left: dict[str, Any] | None, ranks: int | None = None) -> None:
        self.left = left
        self._ranks = ranks
        self.begun: list[ShardShare] = []
        self.is_lost = False  # there is not one sample for each item

    @property
    def division(self) -> Division:
        """What is known of how the ranks divide the items."""
        if not self.begun:
            return "none"
        return "even" if all(each.is_even for each in self.begun) else "uneven"

    @property
    def only_share(self) -> ShardShare | None:
        """The one share, if each of its items may be one sample; otherwise None."""
        return self.begun[0] if len(self.begun) == 1 and not self.is_lost else None

    def begin(self, splits: Splits, contiguous: bool, length: int | None) -> ShardShare:
        """Begin the share of one more call of `shard`."""
        left, self.left = self.left, None
        ranks = splits[0][0]
        if self._ranks is not None and self._ranks != ranks:
            raise StateError(
                f"reader.shard divided the items over {self._ranks} ranks when the state was saved,"
                f" and has world_size={ranks} now: with as many workers as before each continues"
                f" its own share. Pass world_size={self._ranks}, or {workers_option()} with another"
                " number, which divides the remaining items anew"
            )
        if left is None:
            share = ShardShare(RemainingRanges.whole(), ranks, contiguous, None)
        else:
            ranges = RemainingRanges.from_json(left["rest"])
            ranges = ranges.without(left["ranks"], left["taken"], left["contiguous"], length)
            share = ShardShare(ranges, ranks, contiguous, ranges.share(splits, contiguous, length))
        self.begun.append(share)
        return share


class _State(threading.local):
    tracker: ShardTracker | None = None


_state = _State()


def track_shards(tracker: ShardTracker | None) -> ShardTracker | None:
    """Make `tracker` note the calls of `shard` in this thread; returns the tracker before."""
    before, _state.tracker = _state.tracker, tracker
    return before


def lose_track() -> None:
    """Note that this thread does not make one sample of each item of `shard`."""
    if _state.tracker is not None:
        _state.tracker.is_lost = True


def begin_share(splits: Splits, contiguous: bool, length: int | None) -> ShardShare | None:
    """Note a share; return None where nothing tracks shares."""
    return None if _state.tracker is None else _state.tracker.begin(splits, contiguous, length)
