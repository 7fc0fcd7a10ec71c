"""A shuffled order that keeps to few shards at a time, and can be opened at any place.

Imports the samplers and the permutations. An order never changes once it is made; it holds a few
numbers for each shard, and none for each sample.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_byte_size, as_int
from reader.data.dataset import MappedDataset
from reader.data.distributed_env import world_and_rank
from reader.data.distributed_sampler import DistributedSampler
from reader.errors import ConfigError, ConfigTypeError, got
from reader.random.permutation import Order, Permutation, shuffled
from reader.random.seeds import order_key
from reader.shards.shards import ShardImages, Shards

__all__ = ["ShardOrder", "WindowedOrder"]

_WINDOW = 1 << 16  # samples
_ALL = "all"


class ShardOrder(DistributedSampler):
    """Yield each sample of shards once, in an order that keeps to few shards at a time.

    The shards come in random order; so many of them as have `window` samples are a group, and the
    samples of a group come in random order, before those of the next group. What is read from a
    disk or a network is then a few files at a time. With ``window="all"`` all shards are one group:
    every order of the samples can come.

    The order is a pure function of (seed, epoch, the shards' lengths, `window`), whatever the
    number of ranks and workers: of that one sequence rank r takes the places r, r + world_size, and
    so on. To start, or to seek to any place, takes time for the number of shards alone.

    Each iteration takes the order of `epoch` and increments `epoch`. Another number of ranks can
    continue an epoch: see `resume_from`.

    Args:
        dataset: `reader.Shards`, its `images`, or its `map`.
        seed: an int in [0, 2**64), the same one in all ranks; None: a fresh order in each
            iteration, for one rank.
        window: how many samples a group has at least, such as 65536; bytes of the files, such as
            "1GB"; or "all". None: 65,536 samples.
        rank: the number of this process, below `world_size`. None: as the training's library or
            launcher says; see `shard`.
        world_size: how many processes take part. None: likewise.
        drop_last: drop the samples over at the end, rather than take a few samples twice, so that
            all ranks take equally many.

    Raises:
        ConfigError, ConfigTypeError: an argument is invalid, or the dataset has no shards.
    """

    def __init__(
        self,
        dataset: Any,
        seed: int | None = None,
        window: int | str | None = None,
        *,
        rank: int | None = None,
        world_size: int | None = None,
        drop_last: bool = False,
    ) -> None:
        shards = _shards_of(dataset)
        self.window = _as_window(window, shards)
        names = ("world_size", "rank")
        world_size, rank = world_and_rank(world_size, rank, names, may_be_alone=True)
        if seed is None and world_size > 1:
            raise ConfigError(
                f"seed must be an int, the same one in all {world_size} ranks, got None: each rank"
                " would take samples of an order of its own"
            )
        self._starts = np.array(shards.starts)
        super().__init__(dataset, world_size, rank, True, seed or 0, drop_last)
        self._seed = seed

    def _order(self, seed: int, epoch: int) -> Order:
        if self.window is None:
            return shuffled(self._count, seed, epoch)
        return WindowedOrder(self._starts, self.window, seed, epoch)


class WindowedOrder:
    """The order of the samples of one epoch, group by group.

    Args:
        starts: the first sample of each shard, and how many samples there are.
        window: how many samples a group has at least, but for the last one.
        seed: of the order.
        epoch: likewise.
    """

    def __init__(self, starts: npt.NDArray[Any], window: int, seed: int, epoch: int) -> None:
        self._seed, self._epoch = seed, epoch
        shards = shuffled(len(starts) - 1, seed, epoch).take(0, len(starts) - 1)
        self._firsts = starts[:-1][shards]  # of the shards, in the order in which they come
        self._ends = np.cumsum(np.diff(starts)[shards])
        cuts = [0]  # shards
        while cuts[-1] < len(shards):
            taken = self._ends[cuts[-1] - 1] if cuts[-1] else 0
            cuts.append(min(len(shards), int(np.searchsorted(self._ends, taken + window)) + 1))
        self._cuts = np.array(cuts)
        self._places = np.concatenate([[0], self._ends])[self._cuts]  # where each group begins

    def __len__(self) -> int:
        return int(self._ends[-1])

    def __getitem__(self, place: int, /) -> int:
        """Return the index at a place."""
        return int(self.take(place, place + 1)[0])

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
        begin, end = self._places[group : group + 2].tolist()
        key = order_key(self._seed, self._epoch, group + 1)  # part 0 is that of the shards
        found = Permutation(end - begin, key).take(places.start, places.stop, places.step) + begin
        shards = np.searchsorted(self._ends, found, "right")
        before = np.where(shards > 0, self._ends[shards - 1], 0)
        indices: npt.NDArray[np.int64] = self._firsts[shards] + (found - before)
        return indices


def _shards_of(dataset: Any) -> Shards:
    """Return the shards that a dataset has. ConfigTypeError: it has none."""
    found = dataset
    while type(found) in (MappedDataset, ShardImages):
        found = found.dataset if type(found) is MappedDataset else found.shards
    if not isinstance(found, Shards):
        raise ConfigTypeError(
            "ShardOrder takes reader.Shards, its images or its map, got"
            f" {got(dataset)}: for other datasets pass RandomSampler, or DistributedSampler"
        )
    return found


def _as_window(window: Any, shards: Shards) -> int | None:
    """Return how many samples a group has; None: all."""
    if window is None:
        return _WINDOW
    if window == _ALL:
        return None
    if isinstance(window, str):
        nbytes = as_byte_size("window", window)
        return max(1, nbytes * len(shards) // max(1, shards.nbytes))
    return as_int("window", window, low=1, remedy='It is a number of samples, or "all".')
