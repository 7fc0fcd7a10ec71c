"""A shuffled order that keeps to few shards at a time, and what it needs of a dataset.

Imports NumPy, the permutations, the cutting into groups, and `Dataset.map`. The values of an order
never change; it holds a few numbers for each shard, and none for each sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.plans.windows import group_shards
from reader.checks import as_byte_size, as_int
from reader.data.dataset import MappedDataset
from reader.data.padded import Padded
from reader.errors import ConfigError, got
from reader.random.permutation import Permutation, shuffled
from reader.random.seeds import order_key

__all__ = ["WindowedOrder", "as_window", "sharded", "starts_of"]

_ALL = "all"


def sharded(dataset: Any) -> Any:
    """Return the dataset of shards that `dataset` is, or maps; None: there is none.

    A dataset of shards has `starts`: the first sample of each shard, and how many samples there
    are. One that has `nbytes`, the bytes of all its files, takes windows of bytes.
    """
    while type(dataset) in (MappedDataset, Padded):
        dataset = dataset.dataset
    return dataset if hasattr(dataset, "starts") else None


def starts_of(dataset: Any) -> npt.NDArray[np.int64]:
    """Return a copy of the `starts` of a dataset of shards. ConfigError: they cannot be that."""
    starts, count = np.array(dataset.starts), len(dataset)
    is_right = starts.dtype.kind in "iu" and starts.ndim == 1 and len(starts) > 1
    if not is_right or starts[0] != 0 or starts[-1] != count or (starts[1:] < starts[:-1]).any():
        raise ConfigError(
            f"starts of a dataset must be the first sample of each shard and then its {count:,}"
            f" samples, integers that rise from 0 to {count}, got {got(dataset.starts)} of"
            f" {type(dataset).__name__}"
        )
    return starts.astype(np.int64)


def as_window(window: Any, dataset: Any) -> int | None:
    """Return how many samples of a dataset of shards a group has at least; None: all."""
    if isinstance(window, str) and window == _ALL:
        return None
    if isinstance(window, str):
        nbytes = as_byte_size("window", window)
        total: int | None = getattr(dataset, "nbytes", None)
        if total is None:
            raise ConfigError(
                f"window={window!r} is a number of bytes, and {type(dataset).__name__} has no"
                " nbytes, the bytes of its files. Pass a number of samples"
            )
        return max(1, nbytes * len(dataset) // max(1, total))
    return as_int("window", window, low=1, remedy='It is a number of samples, or "all".')


class WindowedOrder:
    """The order of the samples of one epoch, group by group.

    Args:
        starts: the first sample of each shard, and how many samples there are.
        window: how many samples a group has at least, but for the last one.
        seed: of the order.
        epoch: likewise.
    """

    def __init__(self, starts: npt.NDArray[np.int64], window: int, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        count = len(starts) - 1
        shards = self._shards = shuffled(count, seed, epoch).take(0, count)
        self._firsts = np.empty(count, np.int64)  # of the shards, in the order in which they come
        self._ends, cuts = np.empty(count, np.int64), np.empty(count + 1, np.int64)
        window = min(window, np.iinfo(np.int64).max)
        made = group_shards(starts, shards, window, self._firsts, self._ends, cuts)
        self._cuts = cuts[:made].copy()
        self._places = np.concatenate([[0], self._ends[self._cuts[1:] - 1]])  # where groups begin
        self._newest: tuple[int, Permutation] | None = None

    @property
    def groups(self) -> list[npt.NDArray[Any]]:
        """The numbers of the shards of each group."""
        return np.split(self._shards, self._cuts[1:-1])

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, place: int, /) -> int:
        """Return the index at a place."""
        group = int(self._places.searchsorted(place, "right")) - 1
        begin = int(self._places[group])
        found = begin + self._permutation(group)[place - begin]
        shard = int(self._ends.searchsorted(found, "right"))
        before = int(self._ends[shard - 1]) if shard else 0
        return int(self._firsts[shard]) + found - before

    def take(self, start: int, stop: int, step: int = 1) -> npt.NDArray[np.int64]:
        """Return the indices at the places of range(start, stop, step)."""
        parts = []
        places = range(start, min(stop, len(self)), step)
        while places:
            group = int(np.searchsorted(self._places, places.start, "right")) - 1
            begin, end = self._places[group : group + 2].tolist()
            within = range(places.start, min(places.stop, end), step)
            parts.append(
                self._of_group(group, range(within.start - begin, within.stop - begin, step))
            )
            places = places[len(within) :]
        return np.concatenate(parts) if parts else np.empty(0, np.int64)

    def _of_group(self, group: int, places: range) -> npt.NDArray[np.int64]:
        """Return the indices at some places of a group."""
        order = self._permutation(group)
        found = order.take(places.start, places.stop, places.step) + self._places[group]
        shards = np.searchsorted(self._ends, found, "right")
        before = np.where(shards > 0, self._ends[shards - 1], 0)
        indices: npt.NDArray[np.int64] = self._firsts[shards] + (found - before)
        return indices

    def _permutation(self, group: int) -> Permutation:
        """Return the order of the places of a group; that of the newest group is kept."""
        newest = self._newest
        if newest is None or newest[0] != group:  # threads may both make it, of equal values
            begin, end = self._places[group : group + 2].tolist()
            key = order_key(self._seed, self._epoch, group + 1)  # part 0 is that of the shards
            newest = self._newest = group, Permutation(end - begin, key)
        return newest[1]
