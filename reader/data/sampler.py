"""Samplers: which samples an epoch takes, in which order.

Imports `reader.config` for its checks and `reader.data.seeds`. A sampler runs in the trainer alone,
in the thread that dispatches tasks; it owns its epoch number, and no random state outlives an
iteration, so several iterators of one sampler do not disturb each other.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Sequence, Sized
from itertools import chain
from typing import Any, Generic, TypeVar

import numpy as np

from reader.checks import as_int
from reader.config import SEED_LIMIT
from reader.data.seeds import order_rng
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = [
    "RandomSampler",
    "Sampler",
    "SeededSampler",
    "SequenceSampler",
    "SubsetRandomSampler",
    "as_sized",
    "in_chunks",
]

T_co = TypeVar("T_co", covariant=True)

_CHUNK = 4096  # indices turned into Python ints at a time: cheap per item, little memory


class Sampler(abc.ABC, Generic[T_co]):
    """Base class of samplers: an iterable of dataset indices.

    Deriving from it is a convenience; the loader takes any iterable that can be iterated over anew
    for each epoch. A sampler with `__len__` gives its loader a length.
    A `RandomSampler` is told the number of each epoch by its DataLoader; any other sampler keeps
    its own count, or is told by whoever made it.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[T_co]:
        """Return a fresh iterator over the indices of one epoch."""


class SequenceSampler(Sampler[int]):
    """Yield 0, 1, ... len(dataset) - 1.

    The length is asked for anew each time, so a dataset that has grown is seen whole from the next
    epoch on.

    Args:
        dataset: anything with `__len__`.

    >>> list(SequenceSampler("abc"))
    [0, 1, 2]
    """

    def __init__(self, dataset: Sized) -> None:
        self._dataset = as_sized(dataset)

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self._dataset)))

    def __len__(self) -> int:
        return len(self._dataset)


class SeededSampler(Sampler[T_co]):
    """Base class of samplers whose order is drawn from (seed, epoch).

    Without a `seed` the order is fresh from the system at each iteration. Global random state is
    neither read nor changed. A subclass draws from `order_rng(self.seed, self.epoch)`.

    Args:
        seed: an int in [0, 2**64), or None.
    """

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            remedy = "None takes a fresh order each time."
            seed = as_int("seed", seed, low=0, high=SEED_LIMIT - 1, remedy=remedy)
        self._seed = seed
        self._epoch = 0

    @property
    def seed(self) -> int | None:
        """The seed it was made with."""
        return self._seed

    @property
    def epoch(self) -> int:
        """The epoch whose order the next iteration takes."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, whose order the next iterations take; running ones go on."""
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")


class RandomSampler(SeededSampler[int]):
    """Yield each index of a dataset once, in random order.

    With a `seed` the order is a pure function of (seed, epoch, len(dataset)). Without one it is
    fresh from the system at each iteration. Global random state is neither read nor changed.

    An iteration keeps 8 bytes per index; the permutation is drawn when its first index is taken.

    Args:
        dataset: anything with `__len__`, asked anew each time.
        seed: an int in [0, 2**64), or None.

    >>> sampler = RandomSampler("abcde", seed=3)
    >>> sorted(sampler) == [0, 1, 2, 3, 4] and list(sampler) == list(sampler)
    True
    """

    def __init__(self, dataset: Sized, seed: int | None = None) -> None:
        self._dataset = as_sized(dataset)
        super().__init__(seed)

    def __iter__(self) -> Iterator[int]:
        # Epoch and length are read now: a generator would read them at its first item instead.
        return chain.from_iterable(_chunks(len(self._dataset), self._seed, self._epoch))

    def __len__(self) -> int:
        return len(self._dataset)


class SubsetRandomSampler(SeededSampler[T_co]):
    """Yield each of the given indices once, in random order.

    The order of the positions is that of `RandomSampler` for as many samples.

    Args:
        indices: a sequence of dataset indices, of any type; its length is asked for anew each time.
        seed: an int in [0, 2**64), or None for a fresh order at each iteration.

    >>> sorted(SubsetRandomSampler([7, 3, 5]))
    [3, 5, 7]
    """

    def __init__(self, indices: Sequence[T_co], seed: int | None = None) -> None:
        if isinstance(indices, type) or not all(
            hasattr(type(indices), name) for name in ("__len__", "__getitem__")
        ):
            raise ConfigTypeError(
                f"a sampler of a subset takes a sequence of dataset indices, got {got(indices)}."
                " Pass a list of the indices to draw from."
            )
        if len(indices) == 0:
            raise ConfigError(
                "a sampler of a subset takes one index or more, got none: the length of indices is"
                " 0. Pass the indices to draw from, or leave the sampler out."
            )
        self.indices = indices
        super().__init__(seed)

    def __iter__(self) -> Iterator[T_co]:
        positions = chain.from_iterable(_chunks(len(self.indices), self._seed, self._epoch))
        return map(self.indices.__getitem__, positions)

    def __len__(self) -> int:
        return len(self.indices)


def _chunks(count: int, seed: int | None, epoch: int) -> Iterator[list[int]]:
    yield from in_chunks(order_rng(seed, epoch).permutation(np.int64(count)))


def in_chunks(order: np.ndarray[Any, Any]) -> Iterator[list[int]]:
    """Yield an array of indices as lists of Python ints, a few at a time."""
    for start in range(0, len(order), _CHUNK):
        yield order[start : start + _CHUNK].tolist()


def as_sized(dataset: Any) -> Sized:
    """Return `dataset` if it is an instance of something with a length. Else ConfigTypeError."""
    if isinstance(dataset, type) or not isinstance(dataset, Sized):
        raise ConfigTypeError(
            f"a sampler takes a dataset with __len__, got {got(dataset)}. Pass the dataset, or"
            " range(n) for n samples."
        )
    return dataset
