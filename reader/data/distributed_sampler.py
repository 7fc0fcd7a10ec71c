"""A sampler that gives each process of a distributed training its share of the dataset.

Imports `reader.checks` and other samplers of this package. It runs in the trainer alone, asks for
its rank when it is made, talks to no other process, and owns its epoch number.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sized
from itertools import chain

from reader.checks import as_bool, as_int
from reader.data.distributed_env import world_and_rank
from reader.data.padded import Even, as_even, share_of
from reader.data.sampler import SeededSampler, as_sized, state_number
from reader.data.seekable import as_position
from reader.errors import ConfigError
from reader.random.permutation import Order, indices_at, shuffled
from reader.random.seeds import as_seed

__all__ = ["DistributedSampler"]


class DistributedSampler(SeededSampler[int]):
    """Yield the indices of one rank: all ranks take equally many, and together every sample.

    The arguments and the split are those of `torch.utils.data.DistributedSampler` 2.13: of the
    order of all samples rank r takes those at places r, r + num_replicas, and so on. The order is
    padded from its start to a multiple of `num_replicas`, or cut to one, as `even` says. The order
    itself is a keyed permutation, not torch's: to start, or to seek to any position, takes
    microseconds and no memory, even with a billion samples.

    Each iteration takes the order of `epoch` and increments `epoch`, so that the order changes even
    if the program does not call `set_epoch`. The order is a pure function of (seed, epoch,
    len(dataset)), so that ranks agree on it without a message.

    Another number of ranks can continue an epoch: see `resume_from`.

    Args:
        dataset: anything with `__len__`, of the same length in every process.
        num_replicas: how many processes take part. None: as the training's library or launcher
            says; see `shard`.
        rank: the number of this process, below `num_replicas`. None: likewise.
        shuffle: take another order in each epoch; else that of the dataset.
        seed: an int in [0, 2**64), the same one in all ranks.
        drop_last: drop the samples over at the end, rather than take a few samples twice.
        even: how all ranks come to take equally many: "drop": as `drop_last`; "repeat": a few
            samples come twice; "pad": as "repeat", but they are marked as padding, so that sums
            over ranks are exact: for a `reader.Padded`. None: "pad" for a Padded, else as
            `drop_last` says.

    >>> for rank in range(2):
    ...     print(list(DistributedSampler(range(5), 2, rank, shuffle=False)))
    [0, 2, 4]
    [1, 3, 0]
    """

    counts_epochs = True

    def __init__(
        self,
        dataset: Sized,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        *,
        even: Even | None = None,
    ) -> None:
        self.dataset = as_sized(dataset)
        self.num_replicas, self.rank = world_and_rank(
            num_replicas, rank, ("num_replicas", "rank"), may_be_alone=False
        )
        self.shuffle = as_bool("shuffle", shuffle)
        super().__init__(as_seed(seed, "All ranks need the same one."))
        self.even = as_even(even, as_bool("drop_last", drop_last), self.dataset)
        self.drop_last = self.even == "drop"
        self._count = len(self.dataset)
        self.num_samples = self._share(self._count)
        self.total_size = self.num_samples * self.num_replicas
        self.first_padding = self._count  # of a Padded: its index of sample 0 as padding
        self._consumed = 0  # places taken before the next iteration
        self._begun_at = 0  # places taken before the last iteration

    def resume_from(self, consumed: int) -> None:
        """Let the next iteration, and it alone, take the remaining samples of an epoch.

        There may have been more or fewer ranks before: this rank takes its share of the samples
        that they left. No sample is lost, and none comes twice, except for the few that pad the
        end. Choose the epoch by `set_epoch` or `load_state_dict`. The length stays that of a whole
        epoch.

        Args:
            consumed: how many places of the order all ranks together have taken, 0 or more: in
                lockstep, those of one rank times the number of ranks there were.

        >>> old = [DistributedSampler(range(9), 3, rank, shuffle=False) for rank in range(3)]
        >>> [list(sampler)[:2] for sampler in old]
        [[0, 3], [1, 4], [2, 5]]
        >>> new = DistributedSampler(range(9), num_replicas=1, rank=0, shuffle=False)
        >>> new.resume_from(2 * 3)
        >>> list(new), list(new)
        ([6, 7, 8], [0, 1, 2, 3, 4, 5, 6, 7, 8])
        """
        remedy = "It is how many samples all ranks together have taken."
        self._consumed = as_int("consumed", consumed, low=0, remedy=remedy)

    def state_dict(self) -> dict[str, int]:
        """Return what repeats the last begun iteration: its "seed", "epoch" and "consumed".

        "consumed" is 0 where it took an epoch from the beginning. Every rank has the same state,
        and any number of ranks can load it.
        """
        if self._consumed and self._loaded is None:  # resume_from was called: the next iteration
            seed, epoch = self._next_key()
            facts = self.order_facts()
            return {"seed": seed, "epoch": epoch, "consumed": self._consumed, **facts}
        consumed = self._consumed if self._loaded else self._begun_at
        return {**super().state_dict(), "consumed": consumed}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next iteration, and it alone, be the one that the state describes.

        Later ones take the epochs after it.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        has_consumed = isinstance(state, dict) and "consumed" in state
        consumed = state_number(state, "consumed", sys.maxsize) if has_consumed else 0
        super().load_state_dict(state)
        self._consumed = consumed

    def __iter__(self) -> Iterator[int]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices of this rank from `position` on, without drawing the others.

        It increments `epoch` as `iter(self)` does; after `resume_from`, position 0 is the first of
        the remaining indices.
        """
        return self._open_at(as_position(position))

    def __len__(self) -> int:
        return self.num_samples

    def _open_at(self, position: int) -> Iterator[int]:
        if len(self.dataset) != self._count:
            raise ConfigError(
                f"a dataset split over {self.num_replicas} ranks must keep its length: it had"
                f" {self._count} samples when the sampler was made, and has {len(self.dataset)}"
                " now. Make a new sampler, in all ranks."
            )
        seed, epoch = self._begin()
        first, self._consumed, self._begun_at = self._consumed, 0, self._consumed
        places = range(first + self.rank, sys.maxsize, self.num_replicas)
        places = places[position : self._share(self._count - first)]
        inside = len(range(places.start, min(places.stop, self._count), self.num_replicas))
        around: Iterator[int] = (place % self._count for place in places[inside:])  # pads the end
        places = places[:inside]
        found: Iterator[int] = iter(places)
        if self.shuffle:
            order = self._order(seed, epoch)
            found, around = indices_at(order, places), map(order.__getitem__, around)
        if self.even == "pad":
            around = (self.first_padding + index for index in around)
        return chain(found, around)

    def _order(self, seed: int, epoch: int) -> Order:
        """Return the shuffled order of all samples."""
        return shuffled(self._count, seed, epoch)

    def _begin(self) -> tuple[int, int]:
        seed, epoch = super()._begin()
        self._epoch = epoch + 1
        return seed, epoch

    def _share(self, count: int) -> int:
        """Return how many of `count` places each rank takes."""
        return share_of(max(count, 0), self.num_replicas, self.even)
