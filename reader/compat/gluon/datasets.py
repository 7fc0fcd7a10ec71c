"""The datasets of `mx.gluon.data`: its names, rules and texts.

Imports `reader.data` and the samplers of this face. A dataset made of another one holds it in
`dataset` and copies no sample; each worker has a copy of it and of what it wraps.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from reader import data
from reader.checks import as_bool, as_int
from reader.compat.gluon.arrays import is_nd
from reader.compat.gluon.errors import ArgumentError
from reader.compat.gluon.samplers import FilterSampler
from reader.data.columns import reading_ahead
from reader.data.wrapped import fetch_many, set_epoch_of
from reader.errors import ConfigTypeError, got
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url

__all__ = ["ArrayDataset", "Dataset", "RecordFileDataset", "SimpleDataset"]


class Dataset(data.Dataset[Any]):
    """Base class of Gluon's datasets: samples by index, and derived datasets.

    A subclass gives `__getitem__` and `__len__`. Each method here returns another dataset.
    """

    def transform(self, fn: Callable[..., Any], lazy: bool = True) -> Dataset:
        """Return the samples changed by `fn`.

        Args:
            fn: called with a sample; with its fields as arguments, where it is a tuple.
            lazy: call it whenever a sample is fetched; otherwise now, once for each.
        """
        changed = TransformedDataset(self, _as_function(fn))
        if as_bool("lazy", lazy):
            return changed
        return SimpleDataset([changed[index] for index in range(len(changed))])

    def transform_first(self, fn: Callable[[Any], Any], lazy: bool = True) -> Dataset:
        """Return the samples with their first field, or the whole sample, changed by `fn`.

        Args:
            fn: called with the first field of a tuple; with any other sample as it is.
            lazy: as for `transform`.
        """
        return self.transform(FirstField(_as_function(fn)), lazy)

    def filter(self, fn: Callable[[Any], Any]) -> Dataset:
        """Return the samples for which `fn` is true.

        Every sample is read once now, and again when it is fetched.

        Args:
            fn: called with a sample as it is: a tuple is one argument.
        """
        return SampledDataset(self, FilterSampler(_as_function(fn), self).indices)

    def shard(self, num_shards: int, index: int) -> Dataset:
        """Return one of `num_shards` parts: the first of them have one sample more.

        Args:
            num_shards: how many, 1 or more.
            index: of the part, from 0. Its samples lie side by side.

        Raises:
            ArgumentError: (an AssertionError) there is no such part.
        """
        if index >= num_shards:
            raise ArgumentError(
                f"Shard index of out bound: {index} out of {num_shards}. Indices go from 0 to"
                f" {num_shards - 1}"
            )
        if num_shards <= 0:
            raise ArgumentError(
                f"Number of shards must be greater than 0: got {num_shards}. 1 is the whole dataset"
            )
        if index < 0:
            raise ArgumentError(
                f"Index must be non-negative: got {index} of {num_shards} shards. Count from 0"
            )
        size, longer = divmod(len(self), num_shards)
        start = size * index + min(index, longer)
        return SampledDataset(self, range(start, start + size + (index < longer)))

    def take(self, count: int | None) -> Dataset:
        """Return the first `count` samples; all of them, where there are fewer.

        Args:
            count: 0 or more; None: all.
        """
        length = len(self)
        if count is not None:
            remedy = "None takes all samples."
            length = min(length, as_int("count", count, low=0, remedy=remedy))
        return SampledDataset(self, range(length))

    def sample(self, sampler: Any) -> Dataset:
        """Return the samples that a sampler names; its order is drawn once, now.

        The length is the number of indices that it yields.

        Args:
            sampler: a Sampler of this face, of the engine or of Gluon.

        Raises:
            ConfigTypeError: (a TypeError) it is none.
        """
        if not isinstance(sampler, data.Sampler) and not _is_gluon_sampler(sampler):
            raise ConfigTypeError(
                f"Invalid sampler type: {type(sampler)}. Expected gluon.data.Sampler instead. A"
                " list of indices goes into reader.Subset"
            )
        return SampledDataset(self, list(sampler))


class SimpleDataset(Dataset):
    """Hold the samples of a list, or of anything else with `__len__` and `__getitem__`.

    Args:
        data: the samples; not copied.

    >>> dataset = SimpleDataset([1, 2, 3, 4]).filter(lambda x: x > 1).transform(lambda x: x * 10)
    >>> list(dataset.take(2))
    [20, 30]
    """

    def __init__(self, data: Any) -> None:
        if not all(hasattr(type(data), name) for name in ("__len__", "__getitem__")):
            raise ConfigTypeError(
                f"data must have __len__ and __getitem__, got {got(data)}. Pass a list of samples"
            )
        self._data = data

    def __getitem__(self, index: int, /) -> Any:
        return self._data[index]

    def __len__(self) -> int:
        return len(self._data)


class ArrayDataset(Dataset):
    """Hold arrays of equally many rows; sample i is the tuple of their rows i; of one array, row i.

    Args:
        arrays: arrays, lists or datasets; not copied. An mx.nd array of one dimension becomes a
            NumPy array, as labels are in Gluon.

    Raises:
        ArgumentError: (an AssertionError) there are none, or their lengths differ.

    >>> ArrayDataset([1, 2], ["a", "b"])[1], ArrayDataset([1, 2])[1]
    ((2, 'b'), 2)
    """

    def __init__(self, *arrays: Any) -> None:
        if not arrays:
            raise ArgumentError("Needs at least 1 arrays, got none. Pass those of the fields")
        lengths = [_length(array, place) for place, array in enumerate(arrays)]
        for place, length in enumerate(lengths):
            if length != lengths[0]:
                raise ArgumentError(
                    f"All arrays must have the same length; array[0] has length {lengths[0]} while"
                    f" array[{place}] has {length}. Cut them to the same length"
                )
        self._arrays = [
            array.asnumpy() if is_nd(array) and len(array.shape) == 1 else array for array in arrays
        ]

    def __getitem__(self, index: int, /) -> Any:
        if len(self._arrays) == 1:
            return self._arrays[0][index]
        return tuple([array[index] for array in self._arrays])

    def __len__(self) -> int:
        return len(self._arrays[0])


class RecordFileDataset(data.RecordIO, Dataset):
    """The records of a RecordIO file, as bytes, in the order of its index.

    Threads and forked workers may read it at once. Without an index file, one is made.

    Args:
        filename: of the records, such as "train.rec" or "s3://bucket/train.rec"; the index is
            "train.idx" beside it.
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Raises:
        ConfigError: there is no such file, or the index does not fit it.

    A record that is damaged raises DatasetError when it is read; it names file, record and offset.
    """

    def __init__(
        self,
        filename: str | os.PathLike[str],
        *,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        path = as_path_or_url("filename", filename)
        super().__init__(os.path.expanduser(path), cache=cache, store=store)  # noqa: PTH111
        self.filename = os.fspath(filename)
        self.idx_file = str(self.index_path)


class TransformedDataset(Dataset):
    """The samples of a dataset, changed by a function when they are fetched."""

    def __init__(self, dataset: Any, fn: Callable[..., Any]) -> None:
        self.dataset = dataset
        self._fn = fn

    def __getitem__(self, index: int, /) -> Any:
        return self._changed(self.dataset[index])

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if the dataset has the method."""
        if not hasattr(self.dataset, "__getitems__"):
            raise AttributeError("the dataset that is transformed has no __getitems__")
        return self._fetch

    @property
    def __read_ahead__(self) -> Callable[[Sequence[int]], None]:
        """Have the files of a batch read ahead; exists only if the dataset can."""
        found = reading_ahead(self.dataset)
        if found is None:
            raise AttributeError("the dataset that is transformed reads nothing ahead")
        return found

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        return [self._changed(sample) for sample in fetch_many(self.dataset, indices)]

    def _changed(self, sample: Any) -> Any:
        return self._fn(*sample) if isinstance(sample, tuple) else self._fn(sample)

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the dataset, if it has `set_epoch`."""
        set_epoch_of(epoch, self.dataset)


class SampledDataset(data.Subset[Any], Dataset):
    """Hold the samples of a dataset that a sequence of indices names, in its order."""

    def __init__(self, dataset: Any, indices: Any) -> None:
        self.dataset, self.indices = dataset, indices  # unchecked, as in Gluon


class FirstField:
    """Changes the first of a sample's fields, and returns all.

    Args:
        fn: called with the first field.
    """

    def __init__(self, fn: Callable[[Any], Any]) -> None:
        self._fn = fn

    def __call__(self, first: Any, *others: Any) -> Any:
        return (self._fn(first), *others) if others else self._fn(first)


def _as_function(fn: Any) -> Callable[..., Any]:
    if not callable(fn):
        raise ConfigTypeError(f"fn must be a function of a sample, got {got(fn)}")
    found: Callable[..., Any] = fn
    return found


def _is_gluon_sampler(value: object) -> bool:
    return any(
        base.__name__ == "Sampler" and base.__module__.startswith("mxnet.gluon.")
        for base in type(value).__mro__
    )


def _length(array: Any, place: int) -> int:
    try:
        return len(array)
    except TypeError:
        raise ConfigTypeError(
            f"array[{place}] of an ArrayDataset must have a length, got {got(array)}. Pass an"
            " array or a list with a row for each sample"
        ) from None
