"""The base class of map-style datasets.

Imports the errors, and how a dataset around another passes on. A dataset belongs to the user; each
worker process has its own copy. Deriving from `Dataset` is a convenience: the loader takes
anything with the two methods, a list of samples included.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar

from reader.checks import described
from reader.data.wrapped import datasets_in, fetch_many, if_any_has, set_epoch_of
from reader.errors import ConfigTypeError, got

__all__ = ["Dataset", "Indexed", "MappedDataset", "ShardedDataset", "is_fetched"]

T_co = TypeVar("T_co", covariant=True)


class Dataset(abc.ABC, Generic[T_co]):
    """Hold samples that an index names.

    A subclass gives `__getitem__` and `__len__`; without them Python refuses to make an instance.

    A dataset for which one read of many samples is cheaper than many reads (a database query, one
    read of neighbouring records) also has::

        def __getitems__(self, indices: list[int]) -> list[T_co]: ...

    It returns one sample per index, in the order of `indices`, and is then called once per batch in
    place of `__getitem__`.

    All three run in a worker, with `num_workers=0` in the trainer. For random augmentation that
    does not depend on the number of workers, draw from `reader.sample_rng(index)`.

    >>> class Squares(Dataset[int]):
    ...     def __getitem__(self, index: int) -> int:
    ...         return index * index
    ...
    ...     def __len__(self) -> int:
    ...         return 10
    >>> Squares()[3]
    9
    """

    @abc.abstractmethod
    def __getitem__(self, index: int, /) -> T_co:
        """Return the sample at `index`, which lies in [0, len(self)) unless a sampler says else."""

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return the number of samples. It is called at least once per epoch: keep it cheap."""

    def map(self, function: Callable[..., Any], *, with_index: bool = False) -> Dataset[Any]:
        """Return a dataset with these samples, each passed through a function.

        Args:
            function: called with a sample, in the worker that fetches it; returns what takes its
                place.
            with_index: call it with the sample and its index, for `reader.sample_rng(index)`.

        Raises:
            ConfigTypeError: `function` is none.

        >>> from reader import TensorDataset
        >>> TensorDataset([[1, 2, 3]]).map(lambda sample: sample[0] * 10)[1]
        20
        """
        return MappedDataset(self, function, with_index)


class ShardedDataset(Dataset[T_co]):
    """A dataset whose samples lie in shards: files, say, of which each has the next few of them.

    A loader's `shuffle=True` and `ShardOrder` then keep to few shards at a time.
    """

    @property
    @abc.abstractmethod
    def starts(self) -> Sequence[int]:
        """The first sample of each shard, and then how many samples there are."""

    @property
    def order_window(self) -> int | None:
        """How many samples a group of `ShardOrder` has, unless it is told; None: 65,536."""
        return None

    #: whether shards are fetched from somewhere, so that it is of use to know their order
    is_fetched: bool = False

    def expect(self, groups: Sequence[Any], then: Sequence[Any]) -> None:
        """Take the order in which shards will be read, to fetch them before they are asked for.

        Args:
            groups: the numbers of the shards of each group, whose samples are dealt together.
            then: those of the next epoch; empty: its order is not known.
        """


def is_fetched(dataset: Any) -> bool:
    """Whether samples of a dataset, or of one that it wraps, are fetched from a store."""
    return any(
        isinstance(each, Dataset) and getattr(each, "is_fetched", False)
        for each in datasets_in(dataset)
    )


class MappedDataset(Dataset[Any]):
    """The samples of another dataset, each passed through a function; made by `Dataset.map`.

    Args:
        dataset: a map-style dataset.
        function: called with a sample, and returns what takes its place.
        with_index: whether it is called with the sample and its index.
    """

    __repr__ = described

    def __init__(
        self, dataset: Any, function: Callable[..., Any], with_index: bool = False
    ) -> None:
        self.dataset = dataset
        if not callable(function):
            raise ConfigTypeError(f"map takes a function of a sample, got {got(function)}")
        self.function, self.with_index = function, with_index

    def __getitem__(self, index: int, /) -> Any:
        return self._made(index, self.dataset[index])

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if the dataset has the method."""
        return if_any_has("__getitems__", [self.dataset], self._fetch)

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        samples = fetch_many(self.dataset, indices)
        return [self._made(index, sample) for index, sample in zip(indices, samples)]

    def _made(self, index: int, sample: Any) -> Any:
        return self.function(sample, index) if self.with_index else self.function(sample)

    def __len__(self) -> int:
        return len(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the dataset, if it has `set_epoch`."""
        set_epoch_of(epoch, self.dataset)


class Indexed(Protocol[T_co]):
    """What type checkers take for a map-style dataset: a list, a Dataset, or any of its form.

    `__len__` is not asked for: a loader with a sampler of its own does not need it.
    """

    def __getitem__(self, index: Any, /) -> T_co:
        """Return the sample of an index, or of another key that the sampler yields."""
