"""A batch sampler that gives each process of a distributed training its share of the dataset.

Imports `reader.checks` and other samplers of this package. It runs in the trainer alone, asks for
its rank when it is made, talks to no other process, and owns its epoch number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sized
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_bool, as_int, described
from reader.data.batch_sampler import batched
from reader.data.distributed_env import world_and_rank
from reader.data.padded import Even, as_even, share_of
from reader.data.sampler import as_sized, in_chunks
from reader.data.seekable import Seekable, as_position
from reader.errors import ConfigError
from reader.random.permutation import Permutation, shuffled
from reader.random.seeds import as_seed

__all__ = ["DistributedBatchSampler"]

Order = Permutation | npt.NDArray[np.int64]


class DistributedBatchSampler(Seekable[list[int]]):
    """Yield the batches of one rank: all ranks take equally many, and together every sample.

    The split is that of `paddle.io.DistributedBatchSampler` 3.3. The indices 0 .. n - 1 are padded
    from their start to a multiple of `num_replicas`, so that each rank takes equally many (a few
    samples then come twice, with `drop_last` too). If asked, they are shuffled. Of each block of
    `batch_size * num_replicas` indices, rank r takes the r-th `batch_size`. The indices after the
    last whole block are divided into `num_replicas` equal runs.

    With `shuffle`, each `iter()` takes the order of `epoch` and increments `epoch`; `set_epoch`
    chooses it. The order is a pure function of (seed, epoch, len(dataset)), so that ranks agree on
    it without a message: give all of them the same `seed`.

    Args:
        dataset: anything with `__len__`, of the same length in every process.
        batch_size: how many samples make a batch of one rank, 1 or more.
        num_replicas: how many processes take part. None: as the training's library or launcher
            says; see `shard`.
        rank: the number of this process, below `num_replicas`. None: likewise.
        shuffle: take another order in each epoch.
        drop_last: leave out the last batch when it is short.
        seed: an int in [0, 2**64).
        even: how all ranks come to take equally many samples: "repeat", "drop" or "pad"; see
            `DistributedSampler`. None: "pad" for a `reader.Padded`, else "repeat".

    >>> for rank in range(2):
    ...     print(list(DistributedBatchSampler(range(10), 4, num_replicas=2, rank=rank)))
    [[0, 1, 2, 3], [8]]
    [[4, 5, 6, 7], [9]]
    """

    __repr__ = described

    even: Even = "repeat"

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
        *,
        seed: int = 0,
        even: Even | None = None,
    ) -> None:
        self.dataset = as_sized(dataset)
        self.batch_size = as_int("batch_size", batch_size, low=1, remedy="It is that of one rank.")
        self.shuffle = as_bool("shuffle", shuffle)
        self.drop_last = as_bool("drop_last", drop_last)
        self.even = as_even(even, dataset=self.dataset)
        self.seed = as_seed(seed, "All ranks need the same one.")
        self.nranks, self.local_rank = world_and_rank(
            num_replicas, rank, ("num_replicas", "rank"), may_be_alone=False
        )
        self._set_sizes()

    def _set_sizes(self) -> None:
        """Set what follows from the length of the dataset and the number of ranks."""
        self.epoch = 0
        self.num_samples = self._share(len(self.dataset))
        self.total_size = self.num_samples * self.nranks
        self._acc_steps = 1

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, whose order the next iteration takes."""
        self.epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")

    def __iter__(self) -> Iterator[list[int]]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """Iterate over the batches of `iter(self)` from `position` on, without drawing the others.

        It increments `epoch` as `iter(self)` does.
        """
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[list[int]]:
        count = len(self.dataset)
        if self._share(count) * self.nranks != self.total_size:
            raise ConfigError(
                f"a dataset split over {self.nranks} ranks must keep its length: it had enough"
                f" samples for {self.total_size} indices when the sampler was made, and has"
                f" {count} samples now. Make a new sampler, in all ranks."
            )
        order: Order | None = None
        if self.shuffle:
            order = self._shuffled(self.epoch)
            self.epoch += 1
        size = self.batch_size * self._acc_steps
        return batched(self._indices(count, order, position * size), size, self.drop_last)

    def __len__(self) -> int:
        size = self.batch_size * self._acc_steps
        return self.num_samples // size if self.drop_last else -(-self.num_samples // size)

    def order_facts(self) -> dict[str, Any]:
        """Return what the batches depend on beside epoch and length; states of loaders have it."""
        facts = {"seed": self.seed} if self.shuffle and hasattr(self, "seed") else {}
        return {
            "num_replicas": self.nranks,
            "batch_size": self.batch_size * self._acc_steps,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            **facts,
        }

    def _shuffled(self, epoch: int) -> Order:
        """Return the order in which the ranks take the positions 0 .. total_size - 1 in `epoch`."""
        return shuffled(max(self.total_size, len(self.dataset)), self.seed, epoch)

    def _share(self, count: int) -> int:
        """Return how many of `count` samples each rank takes."""
        return share_of(count, self.nranks, self.even)

    def _indices(self, count: int, order: Order | None, first: int) -> Iterator[int]:
        """Yield the dataset indices of this rank from its `first` on, one block after the other."""
        pads = self.even == "pad"
        for places in self._places(first):
            if order is not None:
                found = order[places.start : places.stop]
                within = found % count
                if pads:
                    within[found >= count] += count
                for chunk in in_chunks(within):
                    yield from chunk
            elif pads:
                yield from (place % count + (place >= count) * count for place in places)
            else:
                yield from (place % count for place in places)

    def _places(self, first: int) -> Iterator[range]:
        """Yield the places of 0 .. total_size - 1 that this rank takes, as ranges.

        Its `first` places, counted in its own order, are left out.
        """
        block = self.batch_size * self.nranks
        tail = self.total_size % block
        blocks, within = divmod(first, self.batch_size)
        starts = range(self.local_rank * self.batch_size, self.total_size - tail, block)
        for start in starts[blocks:]:
            yield range(start + within, start + self.batch_size)
            within = 0
        share = tail // self.nranks
        start = self.total_size - tail + self.local_rank * share
        yield range(start + max(first - len(starts) * self.batch_size, 0), start + share)
