"""Datasets made of other datasets: fields side by side, samples one after the other.

Imports `reader.checks`, `reader.data.{dataset,iterable}` and `reader.errors`. A wrapper holds the
wrapped datasets in `datasets` and copies no sample; each worker has a copy of the wrapper and of
what it wraps.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from reader.checks import described, refuse_text
from reader.data.dataset import Dataset
from reader.data.fingerprint import fingerprint_of
from reader.data.iterable import IterableDataset, is_iterable_dataset
from reader.data.wrapped import fetch_located, fetch_many, if_any_has, set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError, got

__all__ = ["ChainDataset", "ComposeDataset", "ConcatDataset", "TensorDataset"]

T_co = TypeVar("T_co", covariant=True)


class TensorDataset(Dataset[tuple[Any, ...]]):
    """Hold arrays of equally many rows; sample i is the tuple of their rows i.

    Args:
        tensors: a list or tuple of arrays or tensors, or of anything else with a length and
            `__getitem__`, such as a list or an open file of records. They are not copied.

    >>> import numpy as np
    >>> TensorDataset([np.eye(2), ["a", "b"]])[1]
    (array([0., 1.]), 'b')
    """

    __repr__ = described

    def __init__(self, tensors: Sequence[Any]) -> None:
        if not isinstance(tensors, (list, tuple)):
            raise ConfigTypeError(
                f"tensors must be a list or tuple of arrays, got a {type(tensors).__name__}. Pass"
                " [array] for a single one."
            )
        for position, tensor in enumerate(tensors):
            refuse_text("tensors must be arrays", tensor, f" at position {position}")
        counts = [_row_count(tensor, position) for position, tensor in enumerate(tensors)]
        if not counts:
            raise ConfigError(
                "tensors must hold one array or more, got none. Pass the arrays whose rows make a"
                " sample."
            )
        if len(set(counts)) > 1:
            raise ConfigError(
                f"tensors must have the same number of rows, got {counts}. Cut them to the same"
                " first dimension."
            )
        self.tensors = tensors

    def __getitem__(self, index: int, /) -> tuple[Any, ...]:
        return tuple([tensor[index] for tensor in self.tensors])

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return the rows' shapes and dtypes; see `fingerprint_of`."""
        fields = [f"{each.dtype} {list(each.shape[1:])}" for each in self.tensors]
        count = len(self) if samples is None else samples
        return {"kind": "TensorDataset", "samples": count, "fields": fields}

    def __len__(self) -> int:
        return _row_count(self.tensors[0], 0)


class ComposeDataset(Dataset[tuple[Any, ...]]):
    """Join the fields of several datasets of equal length: sample i has those of all samples i.

    A sample that is a list or tuple gives its items as fields; any other sample is one field.

    Args:
        datasets: map-style datasets; their lengths are compared now.

    >>> ComposeDataset([[(1, 2), (3, 4)], ["a", "b"]])[0]
    (1, 2, 'a')
    """

    __repr__ = described

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = map_style("ComposeDataset", datasets)
        counts = [len(dataset) for dataset in self.datasets]
        if len(set(counts)) > 1:
            raise ConfigError(
                f"ComposeDataset takes datasets of equal length, got lengths {counts}. Cut them"
                " to the same length, with Subset for instance."
            )

    def __getitem__(self, index: int, /) -> tuple[Any, ...]:
        return _joined([dataset[index] for dataset in self.datasets])

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[tuple[Any, ...]]]:
        """Fetch many samples; exists only if a wrapped dataset has the method."""
        return if_any_has("__getitems__", self.datasets, self._fetch)

    def _fetch(self, indices: Sequence[int]) -> list[tuple[Any, ...]]:
        columns = [fetch_many(dataset, indices) for dataset in self.datasets]
        return [_joined(fields) for fields in zip(*columns)]

    def __len__(self) -> int:
        return len(self.datasets[0])

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the wrapped datasets that have `set_epoch`."""
        set_epoch_of(epoch, *self.datasets)


class ConcatDataset(Dataset[T_co]):
    """Hold the samples of several datasets, those of the first one first.

    A negative index counts from the end.

    Args:
        datasets: map-style datasets; their lengths are read now, once.

    >>> concat = ConcatDataset([["a", "b"], ["c"]])
    >>> concat[2], concat[-3], len(concat)
    ('c', 'a', 3)
    """

    __repr__ = described

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = map_style("ConcatDataset", datasets)
        self.cumulative_sizes = list(itertools.accumulate(map(len, self.datasets)))

    def __getitem__(self, index: int, /) -> T_co:
        number, position = self._locate(index)
        sample: T_co = self.datasets[number][position]
        return sample

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[T_co]]:
        """Fetch many samples; exists only if a wrapped dataset has the method."""
        return if_any_has("__getitems__", self.datasets, self._fetch)

    def _fetch(self, indices: Sequence[int]) -> list[T_co]:
        return fetch_located(self.datasets, [self._locate(index) for index in indices])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of the dataset that holds `index`, and the position in it."""
        count = self.cumulative_sizes[-1]
        if index < -count:
            raise SampleIndexError(
                f"absolute value of index should not exceed dataset length: got index {index} of"
                f" {count} samples. Take one in [{-count}, {count})."
            )
        if index >= count:
            raise SampleIndexError(
                f"index out of range: got index {index} of a ConcatDataset of {count} samples."
                f" Take one in [{-count}, {count})."
            )
        if index < 0:
            index += count
        number = bisect.bisect_right(self.cumulative_sizes, index)
        return number, index - (self.cumulative_sizes[number - 1] if number else 0)

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return what the datasets are, one after the other; see `fingerprint_of`."""
        count = len(self) if samples is None else samples
        parts, ends = [], [0, *self.cumulative_sizes]
        for dataset, begin, end in zip(self.datasets, ends[:-1], ends[1:], strict=True):
            if begin < count:
                parts.append(fingerprint_of(dataset, None if end <= count else count - begin))
        return {"kind": "ConcatDataset", "samples": count, "of": parts}

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the wrapped datasets that have `set_epoch`."""
        set_epoch_of(epoch, *self.datasets)


class ChainDataset(IterableDataset[T_co]):
    """Yield the samples of several iterable datasets, those of the first one first.

    It does not divide samples among workers; each wrapped dataset does that itself, or does not.

    Args:
        datasets: iterable datasets, or lists and other objects that give a fresh iterator for each
            epoch.

    >>> list(ChainDataset([range(2), ["a", "b"]]))
    [0, 1, 'a', 'b']
    """

    __repr__ = described

    def __init__(self, datasets: Iterable[Any]) -> None:
        self.datasets = as_datasets("ChainDataset", datasets)
        for position, dataset in enumerate(self.datasets):
            if isinstance(dataset, Iterator):
                raise ConfigError(
                    f"ChainDataset takes datasets with a fresh iterator for each epoch, got the"
                    f" one-shot iterator {got(dataset)} at position {position}. Pass a list of it,"
                    " or an IterableDataset whose __iter__ makes it."
                )
            if isinstance(dataset, type) or not (
                is_iterable_dataset(dataset) or hasattr(type(dataset), "__iter__")
            ):
                raise ConfigTypeError(
                    f"ChainDataset takes iterable datasets, got {got(dataset)} at position"
                    f" {position}, without __iter__. Chain map-style datasets by ConcatDataset."
                )

    def __iter__(self) -> Iterator[T_co]:
        return itertools.chain.from_iterable(self.datasets)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the wrapped datasets that have `set_epoch`."""
        set_epoch_of(epoch, *self.datasets)


def as_datasets(taker: str, datasets: Any, names: Sequence[str] = ()) -> list[Any]:
    """Return `datasets` as a list of one or more; `names`: theirs, for messages."""
    refuse_text(f"{taker} takes a list of datasets", datasets)
    if isinstance(datasets, Mapping):
        raise ConfigTypeError(
            f"{taker} takes a list of datasets, got {got(datasets)}, whose items are its keys. Pass"
            " list(d.values())."
        )
    if isinstance(datasets, type) or not hasattr(type(datasets), "__iter__"):
        raise ConfigTypeError(
            f"{taker} takes a list of datasets, got {got(datasets)}. Pass [dataset] for one."
        )
    found = list(datasets)
    if not found:
        raise ConfigError(f"{taker} takes one dataset or more, got none. Pass a list of datasets.")
    for position, dataset in enumerate(found):
        refuse_text(f"{taker} takes datasets", dataset, _where(names, position))
    return found


def map_style(
    taker: str,
    datasets: Any,
    remedy: str = "Chain iterable ones by ChainDataset",
    names: Sequence[str] = (),
) -> list[Any]:
    """Return `datasets` as a list of one or more, all of them map-style."""
    found = as_datasets(taker, datasets, names)
    for position, dataset in enumerate(found):
        by_index = all(hasattr(type(dataset), name) for name in ("__getitem__", "__len__"))
        if isinstance(dataset, type) or is_iterable_dataset(dataset) or not by_index:
            raise ConfigTypeError(
                f"{taker} takes map-style datasets, with __getitem__ and __len__, got"
                f" {got(dataset)}{_where(names, position)}. {remedy}."
            )
    return found


def _where(names: Sequence[str], position: int) -> str:
    return f" for {names[position]!r}" if names else f" at position {position}"


def _joined(samples: Iterable[Any]) -> tuple[Any, ...]:
    fields: list[Any] = []
    for sample in samples:
        if isinstance(sample, (list, tuple)):
            fields.extend(sample)
        else:
            fields.append(sample)
    return tuple(fields)


def _row_count(tensor: Any, position: int) -> int:
    """Return the size of the first dimension. ConfigTypeError where there is none."""
    shape = getattr(tensor, "shape", None)
    try:
        return int(shape[0] if shape is not None else len(tensor))
    except (IndexError, TypeError) as error:
        raise ConfigTypeError(
            f"tensors must be arrays with a first dimension, got {got(tensor)} at position"
            f" {position}. Pass arrays whose rows are the samples."
        ) from error
