"""The sampler of shards: their windowed order, divided among ranks.

Imports the samplers and the orders. It runs in the trainer alone, and holds a few numbers for each
shard.
"""

from __future__ import annotations

import hashlib
from typing import Any

from reader.data.dataset import ShardedDataset
from reader.data.distributed_env import refuse_fresh_orders, world_and_rank
from reader.data.distributed_sampler import DistributedSampler
from reader.data.padded import Even
from reader.data.sampler import RandomSampler, Sampler
from reader.data.windowed_order import WindowedOrder, as_window, sharded, starts_of
from reader.errors import ConfigTypeError, got
from reader.random.permutation import Order, shuffled

__all__ = ["ShardOrder", "shuffled_sampler"]

_WINDOW = 1 << 16  # samples


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
        dataset: `reader.Shards`, its `images`, or its `map`; or another dataset with `starts`, the
            first sample of each shard and then how many samples there are.
        seed: an int in [0, 2**64), the same one in all ranks; None: a fresh order in each
            iteration, for one rank.
        window: how many samples a group has at least, such as 65536; bytes of the files, such as
            "1GB"; or "all". None: 65,536 samples, or what the dataset says by `order_window`:
            `PackedTokens` says the rows of 16 windows of documents, where these are fewer.
        rank: the number of this process, below `world_size`. None: as the training's library or
            launcher says; see `shard`.
        world_size: how many processes take part. None: likewise.
        drop_last: drop the samples over at the end, rather than take a few samples twice, so that
            all ranks take equally many.
        even: how they come to take equally many; see `DistributedSampler`.

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
        even: Even | None = None,
    ) -> None:
        shards = self._shards = _shards_of(dataset)
        if window is None:
            window = getattr(shards, "order_window", None) or _WINDOW
        self.window = as_window(window, shards)
        names = ("world_size", "rank")
        world_size, rank = world_and_rank(world_size, rank, names, may_be_alone=True)
        refuse_fresh_orders(seed, world_size)
        self._starts = starts_of(shards)
        digest = hashlib.blake2b(self._starts.astype("<i8").tobytes(), digest_size=6).digest()
        self._shards_digest = int.from_bytes(digest, "little")  # states of each epoch have it
        super().__init__(dataset, world_size, rank, True, seed or 0, drop_last, even=even)
        self._seed = seed

    def order_facts(self) -> dict[str, int]:
        """Return the window, 0 for all, and a digest of the shards' lengths; states have them."""
        if self.window is None:  # their lengths change nothing
            return {"window": 0}
        return {"window": self.window, "shards": self._shards_digest}

    def _order(self, seed: int, epoch: int) -> Order:
        is_fetched = getattr(self._shards, "is_fetched", False)
        if self.window is None:
            if is_fetched:
                everything = [range(len(self._starts) - 1)]
                self._shards.expect(everything, everything)
            return shuffled(self._count, seed, epoch)
        found = WindowedOrder(self._starts, self.window, seed, epoch)
        if is_fetched:
            then = WindowedOrder(self._starts, self.window, seed, epoch + 1)
            self._shards.expect(found.groups, [] if self._seed is None else then.groups)
        return found


def shuffled_sampler(dataset: Any, seed: int | None) -> Sampler[int]:
    """Return what `shuffle=True` means: `ShardOrder` for shards, else `RandomSampler`."""
    if isinstance(sharded(dataset), ShardedDataset):
        return ShardOrder(dataset, seed)
    return RandomSampler(dataset, seed=seed)


def _shards_of(dataset: Any) -> Any:
    """Return the dataset of shards that a dataset is, or maps. ConfigTypeError: there is none."""
    found = sharded(dataset)
    if found is None:
        raise ConfigTypeError(
            "ShardOrder takes reader.Shards, its images or its map, got"
            f" {got(dataset)}: for other datasets pass RandomSampler, or DistributedSampler"
        )
    return found
