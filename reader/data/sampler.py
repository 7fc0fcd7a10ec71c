"""Samplers: which samples an epoch takes, in which order.

Imports `reader.checks`, `reader.random` and `reader.data.seekable`. A sampler runs in the
trainer alone, in the thread that dispatches tasks; it owns its epoch number. Its iterators share
nothing with it or with each other.
"""

from __future__ import annotations

import abc
import sys
from collections.abc import Iterator, Sequence, Sized
from typing import Any, TypeVar

import numpy as np

from reader._core.collate.indices import IndexBatches
from reader.checks import as_int, described, refuse_mask
from reader.config import SEED_LIMIT
from reader.data.fingerprint import digest_of
from reader.data.seekable import Seekable, as_position
from reader.errors import ConfigError, ConfigTypeError, StateError, got, shown
from reader.random.permutation import indices_at, shuffled
from reader.random.seeds import as_seed, fresh_seed

__all__ = [
    "RandomSampler",
    "Sampler",
    "SeededSampler",
    "SequenceSampler",
    "SubsetRandomSampler",
    "as_sized",
    "check_facts",
    "in_chunks",
    "state_number",
]

T_co = TypeVar("T_co", covariant=True)

_MOST_DIGESTED = 1 << 10
_CHUNK = 4096  # indices turned into Python ints at a time: cheap per item, little memory


class Sampler(Seekable[T_co], abc.ABC):
    """Base class of samplers: an iterable of dataset indices.

    Deriving from it is a convenience; the loader takes any iterable that can be iterated over anew
    for each epoch. A sampler with `__len__` gives its loader a length.
    Before each epoch a DataLoader calls `set_epoch` of a sampler with a `seed`, unless that has
    `counts_epochs`; any other sampler counts its own epochs, or its owner sets them.
    A loader that resumes calls `iter_from`, which skips indices one by one unless a subclass has a
    faster way.
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[T_co]:
        """Return a fresh iterator over the indices of one epoch."""


class SequenceSampler(Sampler[int]):
    """Yield 0, 1, ... len(dataset) - 1.

    Each iteration reads the length anew, so that an epoch includes the samples that the dataset has
    gained.

    Args:
        dataset: anything with `__len__`.

    >>> list(SequenceSampler("abc"))
    [0, 1, 2]
    """

    __repr__ = described

    def __init__(self, dataset: Sized) -> None:
        self._dataset = as_sized(dataset)

    def __iter__(self) -> Iterator[int]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[int]:
        return iter(range(position, len(self._dataset)))

    def index_batches(self, position: int, batch_size: int, drop_last: bool) -> IndexBatches:
        """Iterate over batches of the indices from `position` on, as tasks carry them."""
        places = range(min(position, sys.maxsize), len(self._dataset))
        return IndexBatches(None, places, batch_size, drop_last)

    def __len__(self) -> int:
        return len(self._dataset)


class SeededSampler(Sampler[T_co]):
    """Base class of samplers whose order is a function of (seed, epoch).

    Without a `seed` each iteration takes a fresh one from the system. Global random state is
    neither read nor changed. A subclass calls `_begin()` once for each iteration, and draws only
    from the seed and epoch that it returns.

    Args:
        seed: an int in [0, 2**64), or None.
    """

    counts_epochs = False  # whether it counts its own epochs; else a DataLoader sets them

    __repr__ = described

    def __init__(self, seed: int | None = None) -> None:
        self._seed = None if seed is None else as_seed(seed, "None takes a fresh order each time.")
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
        """Choose the epoch, from 0, whose order later iterations take; running ones keep theirs."""
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the order of the last begun iteration: its "seed" and "epoch".

        Before the first iteration, and after `load_state_dict`, it is the order of the next one; a
        sampler without a seed chooses that order now. The state has no position: the consumer of an
        iteration counts its indices, and passes the count to `iter_from`.
        """
        key = self._loaded or self._begun
        if key is None:
            key = self._next_key()
            if self._seed is None:
                self._loaded = key
        return {"seed": key[0], "epoch": key[1], **self.order_facts()}

    def order_facts(self) -> dict[str, Any]:
        """Return what the order depends on beside seed and epoch; states have it."""
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Let the next iteration, and it alone, take the order that the state describes.

        `set_epoch` does not change that. Later iterations take the sampler's own seed again.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        check_facts(self, state)
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

    The order is a keyed permutation, which computes any index without the others. An iteration
    starts, or seeks to any position, in microseconds, and keeps a few thousand indices even of a
    billion.

    Args:
        dataset: anything with `__len__`, which each iteration reads anew.
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
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the order from `position` on; seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[int]:
        # Epoch and length are read now: a generator would read them at its first item instead.
        count = len(self._dataset)
        return indices_at(shuffled(count, *self._begin()), range(position, count))

    def index_batches(self, position: int, batch_size: int, drop_last: bool) -> IndexBatches:
        """Iterate over batches of the indices from `position` on, as tasks carry them."""
        count = len(self._dataset)
        order = shuffled(count, *self._begin())
        return IndexBatches(order, range(min(position, count), count), batch_size, drop_last)

    def __len__(self) -> int:
        return len(self._dataset)


class SubsetRandomSampler(SeededSampler[T_co]):
    """Yield each of the given indices once, in random order.

    The order of the positions is that of `RandomSampler` for as many samples.

    Args:
        indices: a sequence of dataset indices, of any type; each iteration reads its length anew.
        seed: an int in [0, 2**64), or None for a fresh order at each iteration.

    >>> sorted(SubsetRandomSampler([7, 3, 5]))
    [3, 5, 7]
    """

    def __init__(self, indices: Sequence[T_co], seed: int | None = None) -> None:
        if isinstance(indices, (str, bytes, type)) or not all(
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
        refuse_mask(indices)
        self.indices = indices
        super().__init__(seed)

    def __iter__(self) -> Iterator[T_co]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[T_co]:
        """Iterate over the order from `position` on; seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[T_co]:
        count = len(self.indices)
        positions = indices_at(shuffled(count, *self._begin()), range(position, count))
        return map(self.indices.__getitem__, positions)

    def order_facts(self) -> dict[str, Any]:
        """Return what the order depends on beside seed and epoch; some of many are looked at."""
        count = len(self.indices)
        some = [self.indices[at] for at in range(0, count, max(1, count // _MOST_DIGESTED))]
        texts = [str(index) for index in some if isinstance(index, (int, str, np.integer))]
        return {"indices": f"{count}:{digest_of(texts)}" if len(texts) == len(some) else str(count)}

    def __len__(self) -> int:
        return len(self.indices)


def state_number(state: Any, key: str, high: int) -> int:
    """Return a number in [0, high] from the state of a sampler. StateError if there is none."""
    if not isinstance(state, dict) or key not in state:
        raise StateError(
            f"the state of a sampler is a dict with {key!r}, got {got(state)}. Pass what"
            " state_dict() of such a sampler returned."
        )
    try:
        return as_int(key, state[key], low=0, high=high, remedy="Was the state damaged?")
    except ConfigError as error:
        raise StateError(f"the state of a sampler does not fit: {error}") from None


def check_facts(sampler: Any, state: Any) -> None:
    """Refuse a state of a sampler that has another order. StateError.

    What the state does not tell is taken to be alike: earlier versions told less.

    Args:
        sampler: has `order_facts`.
        state: has the facts of the one that it was saved from.
    """
    for name, own in sampler.order_facts().items():
        if isinstance(state, dict) and state.get(name, own) != own:
            raise StateError(
                f"{name} of {type(sampler).__name__} is {own} here and {shown(state[name])} in the"
                " state: its order is another one. Make it as it was when the state was saved, or"
                " begin the next epoch with set_epoch and no state"
            )


def in_chunks(order: np.ndarray[Any, Any]) -> Iterator[list[int]]:
    """Yield an array of indices as lists of Python ints, a few at a time."""
    for start in range(0, len(order), _CHUNK):
        yield order[start : start + _CHUNK].tolist()


def as_sized(dataset: Any) -> Sized:
    """Return `dataset` if it is an instance with a length. ConfigTypeError if not."""
    if isinstance(dataset, type) or not isinstance(dataset, Sized):
        raise ConfigTypeError(
            f"a sampler takes a dataset with __len__, got {got(dataset)}. Pass the dataset, or"
            " range(n) for n samples."
        )
    return dataset
