"""The base class of map-style datasets.

This module imports the standard library alone. A dataset belongs to the user; each worker process
has its own copy. Deriving from `Dataset` is a convenience: the loader takes anything with the two
methods, a list of samples included.
"""

from __future__ import annotations

import abc
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["Dataset", "Indexed"]

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


class Indexed(Protocol[T_co]):
    """What type checkers take for a map-style dataset: a list, a Dataset, or any of its form.

    `__len__` is not asked for: a loader with a sampler of its own does not need it.
    """

    def __getitem__(self, index: Any, /) -> T_co:
        """Return the sample of an index, or of another key that the sampler yields."""
