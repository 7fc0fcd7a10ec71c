"""The base class of iterable datasets, and what distinguishes one from a map-style dataset.

This module imports the standard library alone; it looks at the names of classes of torch and
paddle without importing either. A dataset belongs to the user; each worker iterates its own copy.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator
from types import GeneratorType
from typing import Any, Generic, TypeVar

__all__ = ["IterableDataset", "is_dead", "is_iterable_dataset"]

T_co = TypeVar("T_co", covariant=True)

# The packages whose IterableDataset says that only __iter__ counts.
_PACKAGES = ("datasets", "paddle", "reader", "torch")


class IterableDataset(abc.ABC, Generic[T_co]):
    """Yield samples one after the other, without an index: a stream, a log, a queue.

    A subclass gives `__iter__`; without it Python refuses to make an instance. It is called anew
    for each epoch.

    Each worker process iterates its own copy of the dataset: with N workers each sample comes N
    times, unless `__iter__` yields only this worker's share. `reader.shard(items)` divides any
    iterable among the ranks of a training and their workers; `reader.get_worker_info()` returns the
    id of the worker and the number of workers.

    `__len__` is not needed, and where there is one it limits nothing.

    >>> class Countdown(IterableDataset[int]):
    ...     def __init__(self, start: int) -> None:
    ...         self.start = start
    ...
    ...     def __iter__(self) -> Iterator[int]:
    ...         yield from range(self.start, 0, -1)
    >>> list(Countdown(3))
    [3, 2, 1]
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[T_co]:
        """Return a fresh iterator over the samples of one epoch that this worker is to deliver."""


def is_iterable_dataset(dataset: Any) -> bool:
    """Say whether a loader must iterate over `dataset`, rather than index it.

    True for an instance of the `IterableDataset` of this package, paddle, torch or datasets, and
    for any object with `__iter__` and without `__getitem__`. False for a class, and for a one-shot
    iterator or generator, which could serve one epoch only. Looks at the type, calls nothing.

    >>> is_iterable_dataset({1, 2}), is_iterable_dataset([1, 2]), is_iterable_dataset(iter([1, 2]))
    (True, False, False)
    """
    if isinstance(dataset, type):
        return False
    if any(_is_marked(base) for base in type(dataset).__mro__):
        return True
    if _has(dataset, "__getitem__") or _has(dataset, "__next__"):
        return False
    return _has(dataset, "__iter__")


def _is_marked(cls: type) -> bool:
    return cls.__name__ == "IterableDataset" and cls.__module__.partition(".")[0] in _PACKAGES


def _has(value: object, name: str) -> bool:
    """Say whether the type of `value` has a special method (None switches one off)."""
    return getattr(type(value), name, None) is not None


def is_dead(samples: Any) -> bool:
    """Whether this is a generator that has ended: after an exception it only looks exhausted."""
    return type(samples) is GeneratorType and samples.gi_frame is None
