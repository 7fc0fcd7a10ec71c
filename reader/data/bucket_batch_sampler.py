"""Batches of samples of similar length, so that little is padded.

Imports `reader.checks`, NumPy, and the permutation. It runs in the trainer alone. The order of an
epoch is computed batch by batch: nothing is shuffled beforehand, and any batch is found at once.
"""

from __future__ import annotations

import functools
import itertools
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_array, as_bool, as_int
from reader.data.distributed_env import refuse_fresh_orders, world_and_rank
from reader.data.fingerprint import digest_of
from reader.data.padded import Even, as_even, share_of
from reader.data.sampler import SeededSampler
from reader.data.seekable import as_position
from reader.errors import ConfigError, ConfigTypeError, got
from reader.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["BucketBatchSampler"]

_BUCKETS = 10


class BucketBatchSampler(SeededSampler[list[int]]):
    """Yield batches of indices whose samples are of similar length, in random order.

    Samples are sorted into buckets by their lengths; each batch is of one bucket. With a `seed` the
    order is a function of (seed, epoch): a loader resumes at any batch at once, with any number of
    workers. Each index comes once in an epoch, but for `drop_last` and ranks.

    Args:
        lengths: of all samples, positive ints; read once.
        batch_size: how many samples make a batch; or else
        max_tokens: the most that a batch may hold, counted as the upper edge of its bucket times
            its samples: what padding makes of it.
        buckets: how many buckets of about equal size; or their upper edges, ascending, of which the
            last is at least the longest length.
        shuffle: False: the shortest bucket first, each in the order of the dataset.
        drop_last: leave out a bucket's last batch when it is short.
        seed: an int in [0, 2**64). None: another order in each iteration, for one rank.
        num_replicas, rank: each of `num_replicas` ranks takes every `num_replicas`-th batch. To
            give all equally many, some of the first batches come twice, or with `drop_last` the
            last ones are left out. All ranks need the same seed. None: as the training's library or
            launcher says, see `shard`; without one 1 and 0.
        even: how all ranks come to take equally many batches: "drop", "repeat", or "pad", which
            marks the samples that come twice: for a `reader.Padded`. None: as `drop_last` says.

    Raises:
        ConfigError: an invalid length or edge; a sample longer than `max_tokens`.

    >>> sampler = BucketBatchSampler([3, 9, 2, 8, 9, 1], batch_size=2, buckets=2, shuffle=False)
    >>> list(sampler)
    [[0, 2], [5], [1, 3], [4]]
    """

    def __init__(
        self,
        lengths: Sequence[int] | npt.NDArray[Any],
        batch_size: int | None = None,
        max_tokens: int | None = None,
        buckets: int | Sequence[int] = _BUCKETS,
        shuffle: bool = True,
        drop_last: bool = False,
        seed: int | None = None,
        num_replicas: int | None = None,
        rank: int | None = None,
        *,
        even: Even | None = None,
    ) -> None:
        super().__init__(seed)
        self.shuffle = as_bool("shuffle", shuffle)
        self.drop_last = as_bool("drop_last", drop_last)
        self.even = as_even("drop" if even is None and self.drop_last else even)
        self.num_replicas, self.rank = world_and_rank(
            num_replicas, rank, ("num_replicas", "rank"), may_be_alone=True
        )
        if self.shuffle:
            refuse_fresh_orders(seed, self.num_replicas)
        if (batch_size is None) == (max_tokens is None):
            raise ConfigError(
                f"batch_size={batch_size!r} and max_tokens={max_tokens!r}: pass one of them"
            )
        found = _as_lengths(lengths)
        self.edges = _edges(found, buckets)
        bucket_of = np.searchsorted(self.edges, found).astype(np.uint16)
        self.sample_count = len(found)
        self._order = np.argsort(bucket_of, kind="stable")
        self.counts: list[int] = np.bincount(bucket_of, minlength=len(self.edges)).tolist()
        self.batch_sizes = self._sizes(batch_size, max_tokens)
        self._tokens = int(found.sum())
        self._starts = list(itertools.accumulate(self.counts, initial=0))
        batches = [
            count // size if self.drop_last else -(-count // size)
            for count, size in zip(self.counts, self.batch_sizes, strict=True)
        ]
        self._first_batches: list[int] = list(itertools.accumulate(batches, initial=0))

    def _sizes(self, batch_size: int | None, max_tokens: int | None) -> list[int]:
        if batch_size is not None:
            size = as_int("batch_size", batch_size, low=1, remedy="Or pass max_tokens.")
            return [size] * len(self.edges)
        assert max_tokens is not None  # noqa: S101  one of them is given
        most = as_int("max_tokens", max_tokens, low=1, remedy="Or pass batch_size.")
        if most < self.edges[-1]:
            raise ConfigError(
                f"max_tokens must be at least the length of the longest bucket, {self.edges[-1]},"
                f" got {most}. Pass a larger max_tokens, or leave out long samples"
            )
        return [most // edge for edge in self.edges]

    def __iter__(self) -> Iterator[list[int]]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """Iterate over the batches from `position` on; seeks there at once."""
        places = range(len(self))[as_position(position) :]
        return self._batches(places, self._begin() if self.shuffle else None)

    def _batches(self, places: range, key: tuple[int, int] | None) -> Iterator[list[int]]:
        count = self._first_batches[-1]
        within: dict[int, Permutation] = {}
        order = None if key is None else Permutation(count, order_key(*key))
        for place in places:
            at = place * self.num_replicas + self.rank
            number = at % count
            is_padding = at >= count and self.even == "pad"
            if order is not None:
                number = order[number]
            bucket = bisect_right(self._first_batches, number) - 1
            size, most = self.batch_sizes[bucket], self.counts[bucket]
            first = (number - self._first_batches[bucket]) * size
            last = min(first + size, most)
            begin = self._starts[bucket]
            if key is None:
                found = self._order[begin + first : begin + last]
            else:
                if bucket not in within:
                    within[bucket] = Permutation(most, order_key(*key, part=bucket + 1))
                found = self._order[begin + within[bucket].take(first, last)]
            yield (found + self.sample_count if is_padding else found).tolist()

    def __len__(self) -> int:
        """Return the number of batches of this rank."""
        return share_of(self._first_batches[-1], self.num_replicas, self.even)

    def order_facts(self) -> dict[str, Any]:
        """Return what the batches depend on beside seed and epoch; states have it."""
        return {
            "num_replicas": self.num_replicas,
            "shuffle": self.shuffle,
            "drop_last": self.drop_last,
            "buckets": self._digest,
        }

    @functools.cached_property
    def _digest(self) -> str:
        return digest_of(self._order, self._starts, self.batch_sizes)

    def stats(self) -> dict[str, Any]:
        """Return the buckets, and the share of padding in their batches.

        `edges`: the greatest length that each takes; `counts`: its samples; `batch_sizes`;
        `padding`: the share of padding, in [0, 1), if each sample is padded to its edge.
        """
        padded = sum(edge * count for edge, count in zip(self.edges, self.counts, strict=True))
        return {
            "edges": list(self.edges),
            "counts": list(self.counts),
            "batch_sizes": list(self.batch_sizes),
            "padding": 1 - self._tokens / padded,
        }


def _as_lengths(lengths: Any) -> npt.NDArray[np.int64]:
    found = as_array("lengths", lengths)
    if found.ndim != 1 or found.dtype.kind not in "iu":
        raise ConfigTypeError(
            f"lengths must be one int for each sample, got {got(lengths)}. Pass a list or an array"
        )
    if not len(found):
        raise ConfigError("lengths is empty: there are no samples to make batches of")
    least = int(found.argmin())
    if found[least] < 1:
        raise ConfigError(
            f"lengths[{least}] is {found[least]}: a length must be 1 or more. Leave out such"
            " samples"
        )
    return found


def _edges(lengths: npt.NDArray[np.int64], buckets: Any) -> list[int]:
    longest = int(lengths.max())
    if not isinstance(buckets, (list, tuple, range, np.ndarray)):
        number = as_int("buckets", buckets, low=1, high=1 << 15, remedy="Or pass their edges.")
        shares = np.quantile(lengths, np.arange(1, number) / number, method="lower")
        return sorted({*map(int, shares), longest})
    edges = [as_int("buckets", edge, low=1, remedy="An edge is a length.") for edge in buckets]
    if not edges or edges != sorted(set(edges)):
        raise ConfigError(f"buckets must be edges in ascending order, got {got(buckets)}")
    if longest > edges[-1]:
        place = int(lengths.argmax())
        raise ConfigError(
            f"lengths[{place}] is {longest}, and the last bucket ends at {edges[-1]}: no bucket"
            " fits it. Add an edge, or leave out such samples"
        )
    return edges
