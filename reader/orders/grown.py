"""The order of an epoch that began before its dataset grew.

Imports the samplers of `reader.data`. The samplers are the user's, and stay as they are: for one
epoch the engine draws from those that are made here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from reader.data.batch_sampler import BatchSampler
from reader.data.distributed_sampler import DistributedSampler
from reader.data.sampler import RandomSampler, Sampler, SequenceSampler
from reader.data.seekable import as_position
from reader.data.shard_order import ShardOrder
from reader.data.windowed_order import sharded
from reader.errors import StateError
from reader.orders.base_sampler import batching_of
from reader.random.permutation import indices_at, shuffled

__all__ = ["GrownSampler", "grown_samplers"]


class GrownSampler(Sampler[int]):
    """Yields the old samples in their order, and after them those that the dataset has got since.

    What it got at one time comes in an order of its own, if the old ones are shuffled. It is a pure
    function of the seed, the epoch and the lengths.

    Args:
        sampler: the order of the old samples.
        lengths: how many samples there were when the epoch began, and each time that it had grown.
    """

    def __init__(self, sampler: SequenceSampler | RandomSampler, lengths: Sequence[int]) -> None:
        self._lengths = list(lengths)
        old = range(self._lengths[0])
        self._is_shuffled = isinstance(sampler, RandomSampler)
        self._old: Any = SequenceSampler(old)
        if isinstance(sampler, RandomSampler):
            self._old = RandomSampler(old, sampler.seed)
            self._old.set_epoch(sampler.epoch)
            # as of a RandomSampler: an order has the seed that was drawn for it
            self.state_dict = self._old.state_dict
            self.load_state_dict = self._old.load_state_dict

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the order from `position` on; seeks there at once."""
        position = as_position(position)
        parts: list[Iterator[int]] = [self._old.iter_from(min(position, self._lengths[0]))]
        key = self._old.state_dict() if self._is_shuffled else None
        for begin, end in itertools.pairwise(self._lengths):
            places = range(max(0, position - begin), end - begin)
            if key is None:
                parts.append(iter(range(begin, end)[places.start :]))
            else:
                order = shuffled(end - begin, key["seed"], key["epoch"])
                parts.append(map(begin.__add__, indices_at(order, places)))
        return itertools.chain.from_iterable(parts)

    def __len__(self) -> int:
        return self._lengths[-1]


class _FirstShards:
    """The lengths of the first shards: their order follows from these."""

    def __init__(self, starts: Sequence[int], count: int) -> None:
        self.starts = [*(start for start in starts if start < count), count]

    def __len__(self) -> int:
        return int(self.starts[-1])


def grown_samplers(sampler: Any, batch_sampler: Any, lengths: Sequence[int]) -> tuple[Any, Any]:
    """Return the sampler and the batch sampler of an epoch that began before its dataset grew.

    Args:
        sampler: the loader's.
        batch_sampler: the loader's.
        lengths: see GrownSampler; of one length, the epoch keeps to the old samples.

    Raises:
        StateError: the order is none that can go on so.
    """
    batching = None if batch_sampler is None else batching_of(batch_sampler)
    source = sampler if batching is None else batching.sampler
    is_own = batch_sampler is None or type(batch_sampler) is BatchSampler
    made: Any = None
    if is_own and type(source) in (SequenceSampler, RandomSampler):
        made = GrownSampler(source, lengths)
    elif is_own and len(lengths) == 1 and type(source) in (DistributedSampler, ShardOrder):
        made = _first_of(source, lengths[0])
    if made is None:
        orders = "SequenceSampler and RandomSampler"
        if len(lengths) == 1:
            orders = "SequenceSampler, RandomSampler, DistributedSampler and ShardOrder"
        choice = "next_epoch" if len(lengths) == 1 else "now"
        kind = type(batch_sampler if source is None else source).__name__
        raise StateError(
            f"grown='{choice}' is for the orders of {orders}, and this loader has {kind}. Finish"
            f" the epoch with the first {lengths[0]} samples, and then pass all of them"
            + ("" if len(lengths) == 1 else "; or pass grown='next_epoch'")
        )
    if batching is None:
        return made, None
    return made, BatchSampler(made, batching.batch_size, batching.drop_last)


def _first_of(sampler: Any, count: int) -> Any:
    """Return the order of a sampler for ranks over the first samples alone."""
    ranks = {"rank": sampler.rank, "even": sampler.even}
    made: Any
    if isinstance(sampler, ShardOrder):
        window = "all" if sampler.window is None else sampler.window
        first = _FirstShards(np.asarray(sharded(sampler.dataset).starts).tolist(), count)
        world = sampler.num_replicas
        made = ShardOrder(first, sampler.seed, window, world_size=world, **ranks)
    else:
        own = {"shuffle": sampler.shuffle, "seed": sampler.seed}
        made = DistributedSampler(range(count), sampler.num_replicas, **own, **ranks)
    made.first_padding = sampler.first_padding
    made.set_epoch(sampler.epoch)
    return made
