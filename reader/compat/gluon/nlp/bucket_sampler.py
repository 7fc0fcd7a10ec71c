"""GluonNLP's sampler of batches of similar length, which sorts samples into buckets by keys.

Imports the bucket schemes, the errors of this face and `reader.data`. It runs in the trainer alone.
A sampler owns the order that it shuffles; its iterators share nothing with it or with each other.
"""

from __future__ import annotations

import itertools
import numbers
import operator
import warnings
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_int
from reader.compat.gluon.nlp.bucket_schemes import BucketScheme, ConstWidthBucket, as_bucket_count
from reader.compat.gluon.nlp.errors import ArgumentError
from reader.data.sampler import SeededSampler
from reader.data.seekable import as_position
from reader.errors import ConfigError, StateError, got, shown
from reader.random.permutation import Permutation
from reader.random.random_state import from_json, to_json
from reader.random.seeds import order_key

__all__ = ["FixedBucketSampler"]

_BUCKETS = 10
_CONST_WIDTH = ConstWidthBucket()
_CHUNK = 10_000  # samples of several components that are compared with all keys at a time

_Ints = npt.NDArray[np.int64]
_Key = Any  # an int, or a tuple of ints
# (the batches in their order; some samples of a bucket: its number, the first place, the last + 1)
_Order = tuple[list[int] | Permutation, Callable[[int, int, int], Any]]


class FixedBucketSampler(SeededSampler[Any]):
    """Yield batches of indices whose samples are of similar length.

    Each sample goes to the bucket that pads it least; each batch is of one bucket. The batches of
    the bucket with the greatest key come first, and the samples of a bucket keep their order. With
    `shuffle` the batches, and the samples of each bucket, come in random order.

    With a `seed` the order is a function of (seed, epoch): any batch is found in constant time, and
    global random state is not used. Without one, each iteration shuffles the previous iteration's
    order by NumPy's global generator when its first item is taken: `numpy.random.seed` repeats it.
    The state of a loader then holds the order, about 6 bytes per sample.

    Args:
        lengths: of all samples, greater than 0: ints, or tuples of equally many ints; read once.
        batch_size: how many samples make a batch; or elements, see `use_average_length`.
        num_buckets: how many keys are computed; unused with `bucket_keys`.
        bucket_keys: the greatest length that each bucket takes, in any order.
        ratio: makes the batches of short samples larger: `batch_size` times `ratio` times the
            greatest key divided by the bucket's own, but never less than `batch_size`.
        shuffle: whether to shuffle.
        use_average_length: the batches of a bucket have `batch_size` divided by the mean plus the
            standard deviation of its lengths; `ratio` is unused.
        num_shards: yield lists of this many batches, one for each device. A short last list begins
            with batches of the list before it; if there is none, it repeats its own. 0: yield
            batches.
        bucket_scheme: computes the keys, from the greatest lengths, the least, and `num_buckets`.
        seed: an int in [0, 2**64), or None.

    Raises:
        ArgumentError: (an AssertionError) an argument is invalid.
        ConfigError: (a ValueError) a sample fits no bucket.

    >>> print(FixedBucketSampler(range(16, 32), 8, num_buckets=2).stats())
    FixedBucketSampler:
      sample_num=16, batch_num=2
      key=[23, 31]
      cnt=[8, 8]
      batch_size=[8, 8]
    """

    def __init__(
        self,
        lengths: Sequence[Any] | npt.NDArray[Any],
        batch_size: int,
        num_buckets: int | None = _BUCKETS,
        bucket_keys: Sequence[_Key] | None = None,
        ratio: float = 0,
        shuffle: bool = False,
        use_average_length: bool = False,
        num_shards: int = 0,
        bucket_scheme: BucketScheme | Callable[..., Iterable[_Key]] = _CONST_WIDTH,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        found = _as_lengths(lengths)
        size, ratio = _as_batch_size(batch_size), _as_ratio(ratio)
        self._is_shuffled = bool(shuffle)
        remedy = "It is how many batches each step takes; 0 yields batches by themselves."
        self.num_shards = as_int("num_shards", num_shards, low=0, remedy=remedy)
        if bucket_keys is None:
            scheme_args = found.max(axis=0).tolist(), found.min(axis=0).tolist()
            bucket_keys = [*bucket_scheme(*scheme_args, as_bucket_count(num_buckets))]
        elif num_buckets not in (None, _BUCKETS):
            warnings.warn(
                "num_buckets will not be used if bucket_keys is not None."
                f" bucket_keys={shown(bucket_keys)}, num_buckets={num_buckets}: pass one of them",
                stacklevel=2,
            )
        if use_average_length and ratio > 0:
            warnings.warn(
                f"ratio={ratio} is ignored when use_average_length is True: leave it out",
                stacklevel=2,
            )
        keys = _as_keys(bucket_keys, found.shape[1:])
        buckets = dict(zip(keys, _divided(found, keys), strict=True))
        unused = [key for key, bucket in buckets.items() if not len(bucket)]
        if unused:
            warnings.warn(
                "Some buckets are empty and will be removed. Unused bucket keys="
                f"{unused}: pass fewer, or bucket_keys",
                stacklevel=2,
            )
        self._keys = [key for key in keys if key not in unused]
        self._samples = [buckets[key] for key in self._keys]
        if use_average_length:
            self._sizes = [_size_by_length(size, found[bucket]) for bucket in self._samples]
        else:
            self._sizes = _sizes_by_ratio(size, ratio, [int(np.sum(key)) for key in self._keys])
        pairs = zip(self._samples, self._sizes, strict=True)
        counts = [-(-len(bucket) // size) for bucket, size in pairs]
        # number of each bucket's first batch, last bucket first; then the number of all batches
        self._first_batches = list(itertools.accumulate(reversed(counts), initial=0))
        self._batches = np.arange(self._first_batches[-1])
        self._has_drawn = False  # `_batches` and `_samples` were shuffled, or loaded
        self._is_ahead = False  # the next iteration must not shuffle them again

    # -- iterating -------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Any]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[Any]:
        """Iterate over the batches, or lists of them, from `position` on, in constant time."""
        items = range(len(self))[as_position(position) :]
        if self._draws_globally and not self._is_ahead:
            return self._shuffled(items)
        self._is_ahead = False
        is_keyed = self._is_shuffled and self._seed is not None
        return self._items(items, self._keyed(*self._begin()) if is_keyed else self._present())

    @property
    def _draws_globally(self) -> bool:
        return self._is_shuffled and self._seed is None

    def _shuffled(self, items: range) -> Iterator[Any]:
        """Draw the order with the first item, as GluonNLP does."""
        if not self._is_ahead:
            self._draw()
        self._is_ahead = False
        yield from self._items(items, self._present())

    def _draw(self) -> None:
        """Shuffle by the global generator, with the same draws as GluonNLP."""
        batches, samples = self._batches.copy(), [bucket.copy() for bucket in self._samples]
        for each in (batches, *samples):
            np.random.shuffle(each)
        self._batches, self._samples, self._has_drawn = batches, samples, True

    def _present(self) -> _Order:
        """Return the current order; a later shuffle does not change it."""
        samples = list(self._samples)
        return self._batches.tolist(), lambda bucket, first, last: samples[bucket][first:last]

    def _keyed(self, seed: int, epoch: int) -> _Order:
        """Return the order of an epoch, computed place by place."""
        within: dict[int, Permutation] = {}

        def samples(bucket: int, first: int, last: int) -> Any:
            found = self._samples[bucket]
            if bucket not in within:
                within[bucket] = Permutation(len(found), order_key(seed, epoch, part=bucket + 1))
            return found[within[bucket].take(first, last)]

        return Permutation(len(self._batches), order_key(seed, epoch)), samples

    def _items(self, items: range, order: _Order) -> Iterator[Any]:
        batches, samples = order
        count, shards = len(batches), self.num_shards
        for item in items:
            if not shards:
                yield self._batch(batches[item], samples)
                continue
            first = max(min(item * shards, count - shards), 0)
            places = [place % count for place in range(first, first + shards)]
            yield [self._batch(batches[place], samples) for place in places]

    def _batch(self, number: int, samples: Callable[[int, int, int], Any]) -> list[int]:
        place = bisect_right(self._first_batches, number) - 1
        bucket = len(self._samples) - 1 - place
        size = self._sizes[bucket]
        first = (number - self._first_batches[place]) * size
        found = samples(bucket, first, min(first + size, len(self._samples[bucket])))
        return found.tolist()  # type: ignore[no-any-return]

    def __len__(self) -> int:
        """Return the number of batches, or of lists of them."""
        shards = max(self.num_shards, 1)
        return (len(self._batches) + shards - 1) // shards

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Return a state that repeats the order of the last begun iteration, as JSON values.

        With a seed, or without shuffling, it is that of `SeededSampler`. Otherwise it is the order
        itself; before the first iteration it is drawn now, for the first iteration to use.
        """
        if not self._draws_globally:
            return super().state_dict()
        if not self._has_drawn:
            self._draw()
            self._is_ahead = True
        samples = np.concatenate(self._samples)
        kind = np.uint32 if len(samples) < 2**32 else np.int64
        return {
            "batches": to_json(self._batches.astype(kind)),
            "samples": to_json(samples.astype(kind)),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Use the state's order in the next iteration.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        if not self._draws_globally:
            super().load_state_dict(state)
            return
        self._batches, self._samples = self._order_of(state)
        self._has_drawn = self._is_ahead = True

    def check_state(self, state: dict[str, Any]) -> Any:  # type: ignore[override]
        """Return the content of a state. StateError: it is no state of such a sampler."""
        return self._order_of(state) if self._draws_globally else super().check_state(state)

    def _order_of(self, state: dict[str, Any]) -> tuple[_Ints, list[_Ints]]:
        batches, samples = _array_in(state, "batches"), _array_in(state, "samples")
        ends = np.cumsum([len(bucket) for bucket in self._samples])
        buckets = np.split(samples, ends[:-1])
        pairs = zip((batches, *buckets), (self._batches, *self._samples), strict=True)
        if not all(np.array_equal(np.sort(new), np.sort(own)) for new, own in pairs):
            raise StateError(
                f"the state of a {type(self).__name__} has {len(samples)} samples in"
                f" {len(batches)} batches, and they are not the {ends[-1]} samples in"
                f" {len(self._batches)} batches of this one. Load a state that was saved with the"
                " same lengths and options."
            )
        return batches, buckets

    def stats(self) -> str:
        """Return the keys of the buckets, their numbers of samples and batch sizes, as text."""
        return (
            f"{type(self).__name__}:\n"
            f"  sample_num={sum(map(len, self._samples))}, batch_num={len(self._batches)}\n"
            f"  key={self._keys}\n"
            f"  cnt={[len(bucket) for bucket in self._samples]}\n"
            f"  batch_size={self._sizes}"
        )


def _sizes_by_ratio(size: int, ratio: float, widths: list[int]) -> list[int]:
    longest = max(widths)
    return [max(int(longest / width * ratio * size), size) for width in widths]


def _size_by_length(elements: int, lengths: _Ints) -> int:
    return max(int(elements / (lengths.mean() + lengths.std())), 1)


def _array_in(state: Any, name: str) -> _Ints:
    found = from_json(state.get(name)) if isinstance(state, dict) else None
    if not isinstance(found, np.ndarray) or found.ndim != 1 or found.dtype.kind not in "iu":
        raise StateError(
            f"the state of a sampler that shuffles without a seed is a dict with {name!r}, got"
            f" {got(state)}. Pass what state_dict() of such a sampler returned."
        )
    return found.astype(np.int64)


# -- arguments -----------------------------------------------------------------------------------


def _as_lengths(lengths: Any) -> _Ints:
    """Return the lengths of all samples, *shape* (samples,) or (samples, components)."""
    if not len(lengths):
        raise ArgumentError(
            "FixedBucketSampler does not support empty lengths. Pass one length for each sample."
        )
    try:
        given = np.asarray(lengths)
        found = given.astype(np.int64)
        is_whole = given.ndim in (1, 2) and bool(given.size) and np.array_equal(found, given)
    except (TypeError, ValueError):  # such as tuples of different sizes
        is_whole = False
    if not is_whole:
        raise ArgumentError(
            "Elements in lengths must be either int or tuple/list of int. Received lengths="
            f"{shown(lengths)}. Pass an int for each sample, or tuples of the same size."
        )
    if found.min() < 1:
        raise ArgumentError(
            f"Sequence lengths must all be larger than 0. Received {found.min()}: leave out such"
            " samples."
        )
    return found


def _as_batch_size(batch_size: Any) -> int:
    try:
        size = operator.index(batch_size)
    except TypeError:
        size = 0
    if size < 1:
        raise ArgumentError(
            f"Batch size must be larger than 0. Received {shown(batch_size)}: pass an int of 1 or"
            " more."
        )
    return size


def _as_ratio(ratio: Any) -> float:
    if not isinstance(ratio, numbers.Real) or not 0 <= float(ratio) < float("inf"):
        raise ArgumentError(
            f"batch size scaling ratio cannot be negative. Received {shown(ratio)}: pass a number"
            " of 0 or more."
        )
    return float(ratio)


def _as_keys(keys: Any, shape: tuple[int, ...]) -> list[_Key]:
    """Return the keys of buckets, sorted and each once. `shape`: of the lengths of one sample."""
    try:
        found = np.asarray(keys)
        is_right = found.dtype.kind in "iu" and found.shape[1:] == shape and found.size > 0
    except ValueError:  # tuples of different sizes
        is_right = False
    if not is_right:
        wanted = "ints" if not shape else f"tuples of {shape[0]} ints, as lengths are"
        raise ArgumentError(
            f"bucket_keys must be one or more {wanted}, got {got(keys)}. A key is the greatest"
            " length that its bucket takes."
        )
    return sorted({tuple(key) if shape else key for key in found.tolist()})


def _divided(lengths: _Ints, keys: list[_Key]) -> list[_Ints]:
    """Return the samples of each bucket, in the order of the dataset."""
    edges = np.asarray(keys)
    if lengths.ndim == 1:
        bucket_of = np.searchsorted(edges, lengths)
    else:
        chunks = range(0, len(lengths), _CHUNK)
        bucket_of = np.concatenate([_closest(lengths[at : at + _CHUNK], edges) for at in chunks])
    misfits: Any = np.equal(bucket_of, len(keys))
    if misfits.any():
        raise ConfigError(
            "Find elements in seq_lengths that cannot fit in the given buckets, seq_length="
            f"{lengths[misfits]}, bucket_keys={keys}. You must increase the bucket size. Or leave"
            f" out the {misfits.sum()} samples: index {misfits.argmax()} is the first."
        )
    order = np.argsort(bucket_of, kind="stable")
    ends = np.cumsum(np.bincount(bucket_of, minlength=len(keys)))
    return np.split(order, ends[:-1])


def _closest(lengths: _Ints, edges: _Ints) -> _Ints:
    """Return the bucket of each sample, or the number of buckets if none fits."""
    room = edges[None] - lengths[:, None]
    fits = np.all(room >= 0, axis=2)
    waste = np.where(fits, room.sum(axis=2), np.iinfo(np.int64).max)
    return np.where(np.any(fits, axis=1), waste.argmin(axis=1), len(edges))
