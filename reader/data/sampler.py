"""Samplers: which samples an epoch takes, in which order.

Imports `reader.config` for its checks and `reader.data.{entry,permutation,seeds}`. A sampler runs
in the trainer alone, in the thread that dispatches tasks; it owns its epoch number, and iterators
share nothing with it or with each other, so that several of one sampler do not disturb each other.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Iterator, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from reader.checks import as_int
from reader.config import SEED_LIMIT
from reader.data.permutation import indices_at, shuffled
from reader.data.seeds import fresh_seed
from reader.data.seekable import Seekable, as_position
from reader.errors import ConfigError, ConfigTypeError, StateError, got

__all__ = [
    "RandomSampler",
    "Sampler",
    "SeededSampler",
    "SequenceSampler",
    "SubsetRandomSampler",
    "as_sized",
    "in_chunks",
    "state_number",
]

T_co = TypeVar("T_co", covariant=True)

_CHUNK = 4096  # indices turned into Python ints at a time: cheap per item, little memory


class Sampler(Seekable[T_co], abc.ABC):
    """Base class of samplers: an iterable of dataset indices.

    Deriving from it is a convenience; the loader takes any iterable that can be iterated over anew
    for each epoch. A sampler with `__len__` gives its loader a length.
    Samplers with a `seed` are told the number of each epoch by their DataLoader, unless they have
    `counts_epochs`; any other sampler keeps its own count, or is told by whoever made it.
    A loader that resumes enters the order by `iter_from`, which passes indices by where a subclass
    has no better way.
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
        return self._enter(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on, at once."""
        return self._enter(as_position(position))

    def _enter(self, position: int) -> Iterator[int]:
        return iter(range(position, len(self._dataset)))

    def __len__(self) -> int:
        return len(self._dataset)


class SeededSampler(Sampler[T_co]):
    """Base class of samplers whose order is drawn from (seed, epoch).

    Without a `seed` each iteration takes a fresh one from the system. Global random state is
    neither read nor changed. A subclass calls `_begin()` once for each iteration, and draws from
    the seed and epoch that it returns alone.

    Args:
        seed: an int in [0, 2**64), or None.
    """

    counts_epochs = False  # whether it counts its epochs by itself, and no DataLoader tells it

    def __init__(self, seed: int | None = None) -> None:
        if seed is not None:
            remedy = "None takes a fresh order each time."
            seed = as_int("seed", seed, low=0, high=SEED_LIMIT - 1, remedy=remedy)
        self._seed = seed
        self._epoch = 0
        self._begun: tuple[int, int] | None = None  # seed and epoch of the last begun iteration
        self._loaded: tuple[int, int] | None = None  # and those that the next one must take

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

    def state_dict(self) -> dict[str, int]:
        """Return what repeats the order of the last begun iteration: its "seed" and "epoch".

        Before any was begun, and after `load_state_dict`, it is the order of the next iteration;
        a sampler without a seed settles it by that. Where in the order an iteration is, who draws
        from it knows: see `iter_from`.
        """
        key = self._loaded or self._begun
        if key is None:
            key = self._next_key()
            if self._seed is None:
                self._loaded = key
        return {"seed": key[0], "epoch": key[1]}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next iteration, and it alone, take the order that `state_dict` told of.

        Whatever `set_epoch` says until then; the sampler's own seed stays for the iterations after.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        self._loaded = self.check_state(state)

    @staticmethod
    def check_state(state: dict[str, int]) -> tuple[int, int]:
        """Return the seed and epoch of a state. StateError: it is no state of such a sampler."""
        seed = state_number(state, "seed", SEED_LIMIT - 1)
        return seed, state_number(state, "epoch", sys.maxsize)

    def _next_key(self) -> tuple[int, int]:
        return (fresh_seed() if self._seed is None else self._seed), self._epoch

    def _begin(self) -> tuple[int, int]:
        """Begin an iteration: return the seed and the epoch of its order."""
        key, self._loaded = self._loaded or self._next_key(), None
        self._begun = key
        return key


class RandomSampler(SeededSampler[int]):
    """Yield each index of a dataset once, in random order.

    With a `seed` the order is a pure function of (seed, epoch, len(dataset)). Without one it is
    fresh from the system at each iteration. Global random state is neither read nor changed.

    The order is a keyed permutation, of which any part is computed by itself: an iteration starts,
    or is entered at any position, in microseconds, and keeps a few thousand indices, be there a
    billion.

    Args:
        dataset: anything with `__len__`, asked anew each time.
        seed: an int in [0, 2**64), or None.

    >>> sampler = RandomSampler("abcde", seed=3)
    >>> sorted(sampler) == [0, 1, 2, 3, 4] and list(sampler) == list(sampler)
    True
    >>> list(sampler.iter_from(2)) == list(sampler)[2:]
    True
    """

    def __init__(self, dataset: Sized, seed: int | None = None) -> None:
        self._dataset = as_sized(dataset)
        super().__init__(seed)

    def __iter__(self) -> Iterator[int]:
        return self._enter(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on of the order, at once."""
        return self._enter(as_position(position))

    def _enter(self, position: int) -> Iterator[int]:
        # Epoch and length are read now: a generator would read them at its first item instead.
        count = len(self._dataset)
        return indices_at(shuffled(count, *self._begin()), range(position, count))

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
        return self._enter(0)

    def iter_from(self, position: int) -> Iterator[T_co]:
        """Iterate over the indices from `position` on of the order, at once."""
        return self._enter(as_position(position))

    def _enter(self, position: int) -> Iterator[T_co]:
        count = len(self.indices)
        positions = indices_at(shuffled(count, *self._begin()), range(position, count))
        return map(self.indices.__getitem__, positions)

    def __len__(self) -> int:
        return len(self.indices)


def state_number(state: Any, key: str, high: int) -> int:
    """Return a number in [0, high] of the state of a sampler. Else StateError."""
    if not isinstance(state, dict) or key not in state:
        raise StateError(
            f"the state of a sampler is a dict with {key!r}, got {got(state)}. Pass what"
            " state_dict() of such a sampler returned."
        )
    try:
        return as_int(key, state[key], low=0, high=high, remedy="Was the state damaged?")
    except ConfigError as error:
        raise StateError(f"the state of a sampler does not fit: {error}") from None


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
