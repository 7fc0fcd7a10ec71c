"""The ranges that remain of a sequence that was divided and partly taken.

Imports `reader.data.shard_items` and `reader.errors`. RemainingRanges are a few plain numbers,
however much of the sequence was taken. They may include positions past the end, which are ignored.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

from reader.data.shard_items import shard_positions
from reader.errors import StateError, got

__all__ = ["RemainingRanges", "Splits"]

Splits = tuple[tuple[int, int], tuple[int, int]]  # (ranks, this rank), (workers, this worker)
_FAR = 1 << 62


class RemainingRanges:
    """Positions of a sequence that nobody has taken.

    Args:
        left: ranges of positions, each below `open_at`.
        open_at: all positions from here on remain, too; None: no others remain.
    """

    def __init__(self, left: list[range], open_at: int | None) -> None:
        self.left = left
        self.open_at = open_at

    @classmethod
    def whole(cls) -> RemainingRanges:
        """Return the ranges of a sequence of which nothing was taken."""
        return cls([], 0)

    def count(self, length: int) -> int:
        """Return how many positions below the length of the sequence remain."""
        ranges = self.left if self.open_at is None else [*self.left, range(self.open_at, length)]
        return sum(len(_below(each, length)) for each in ranges)

    def share(self, splits: Splits, contiguous: bool, length: int | None) -> list[range]:
        """Return the positions of one share, in ascending order.

        Args:
            splits: which share.
            contiguous: divide into runs; else round robin.
            length: of the sequence; must be given with `contiguous`.
        """
        (ranks, rank), (workers, worker_id) = splits
        stop = _FAR if length is None else length
        ranges = [*self.left] if self.open_at is None else [*self.left, range(self.open_at, stop)]
        ranges = [_below(each, stop) for each in ranges]
        if contiguous:
            ranges = sorted((each for each in ranges if each), key=lambda each: each.start)
            places = range(sum(len(each) for each in ranges))
            places = shard_positions(places, ranks, rank, True)
            places = shard_positions(places, workers, worker_id, True)
            return _ascending(_run(ranges, places))
        shares, index = ranks * workers, rank + ranks * worker_id
        found, before = [], 0
        for each in ranges:
            found.append(each[(index - before) % shares :: shares])
            before += len(each)
        return _ascending(found)

    def without(
        self, ranks: int, taken: list[int], contiguous: bool, length: int | None
    ) -> RemainingRanges:
        """Return what remains when each rank's workers have `taken` so much of their shares.

        Args:
            ranks: how many ranks there were, in lockstep.
            taken: how many positions each worker has taken.
            contiguous: how the positions were divided.
            length: of the sequence.
        """
        left: list[range] = []
        tails: list[range] = []
        for worker_id, count in enumerate(taken):
            for rank in range(ranks):
                splits = ((ranks, rank), (len(taken), worker_id))
                for each in _after(self.share(splits, contiguous, length), count):
                    (tails if _is_open(each) else left).append(each)
        if not tails:
            return RemainingRanges(left, None)
        open_at = max(each.start for each in tails)
        left += [_below(each, open_at) for each in tails]
        return RemainingRanges([each for each in left if each], open_at)

    def to_json(self) -> dict[str, Any]:
        """Return the ranges as JSON values."""
        left = [[each.start, each.stop, each.step] for each in self.left]
        return {"left": left, "open_at": self.open_at}

    @classmethod
    def from_json(cls, saved: Any) -> RemainingRanges:
        """Read what `to_json` wrote. StateError when it is something else."""
        left = saved.get("left") if isinstance(saved, dict) else None
        numbers: list[Any] = [None]
        if left is not None and _is_ranges(left):
            numbers = list(itertools.chain.from_iterable(left))
        numbers.append(saved.get("open_at", -1) if isinstance(saved, dict) else None)
        is_right = all(type(each) is int and each >= 0 for each in numbers[:-1])
        last = numbers[-1]
        if not is_right or not (last is None or (type(last) is int and last >= 0)):
            raise StateError(
                "the remaining ranges of a divided sequence cannot be read from the state, got"
                f" {got(saved)}. The state is damaged: load another one"
            )
        return cls([range(*each) for each in left or []], last)


def _is_ranges(left: Any) -> bool:
    return isinstance(left, list) and all(
        isinstance(each, list) and len(each) == 3 and each[2] != 0 for each in left
    )


def _is_open(positions: range) -> bool:
    return positions.stop >= _FAR - positions.step


def _below(positions: range, stop: int) -> range:
    return range(positions.start, min(positions.stop, stop), positions.step)


def _run(ranges: list[range], places: range) -> Iterator[range]:
    """Yield the positions at `places` of the ranges joined end to end."""
    before = 0
    for each in ranges:
        start, stop = max(0, places.start - before), min(len(each), places.stop - before)
        if start < stop:
            yield each[start:stop]
        before += len(each)


def _ascending(ranges: Any) -> list[range]:
    """Sort ranges; interleaved ones become single positions, except one without an end."""
    found = sorted((each for each in ranges if each), key=lambda each: each.start)
    if all(one[-1] < other.start for one, other in itertools.pairwise(found)):
        return found
    open_ = [each for each in found if _is_open(each)]
    singles = sorted(itertools.chain.from_iterable(each for each in found if not _is_open(each)))
    return [*(range(each, each + 1) for each in singles), *open_]


def _after(ranges: list[range], count: int) -> Iterator[range]:
    """Yield what remains of ascending ranges without their first `count` positions."""
    for each in ranges:
        if count < len(each):
            yield each[count:]
        count = max(0, count - len(each))
