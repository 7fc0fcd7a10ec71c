"""The samplers of `mx.gluon.data` that yield single indices: its names, rules and draws.

Imports `reader.data` and NumPy. A sampler runs in the trainer alone. One without a seed draws from
the global generator of NumPy, which belongs to the user, so that `np.random.seed` repeats an order.
"""

from __future__ import annotations

import abc
from collections.abc import Callable, Iterator
from itertools import chain
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from reader import data
from reader.checks import as_bool, as_int
from reader.compat.gluon.errors import ArgumentError
from reader.data.sampler import SeededSampler, as_sized, in_chunks
from reader.data.seekable import as_position, iterate_from
from reader.errors import ConfigTypeError, StateError, got
from reader.random.permutation import indices_at, shuffled
from reader.random.random_state import from_json, to_json

__all__ = ["FilterSampler", "IntervalSampler", "RandomSampler", "Sampler", "SequentialSampler"]

T_co = TypeVar("T_co", covariant=True)

_LENGTH = "It is how many samples there are: pass len(dataset)."


class Sampler(data.Sampler[T_co]):
    """Base class of Gluon's samplers: an iterable of dataset indices that has a length.

    A subclass gives `__iter__`, which returns a fresh iterator for each epoch, and `__len__`.
    """

    @abc.abstractmethod
    def __len__(self) -> int:
        """Return how many indices an epoch has."""


class SequentialSampler(Sampler[int]):
    """Yield start, start + 1, ... start + length - 1.

    Args:
        length: how many indices.
        start: the first of them.

    >>> list(SequentialSampler(3, start=6))
    [6, 7, 8]
    """

    def __init__(self, length: int, start: int = 0) -> None:
        self.length = as_int("length", length, low=0, remedy=_LENGTH)
        self.start = as_int("start", start, low=0, remedy="It is the first index.")

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; seeks there at once."""
        return iter(range(self.start, self.start + self.length)[as_position(position) :])

    def __len__(self) -> int:
        return self.length


class RandomSampler(SeededSampler[int], Sampler[int]):
    """Yield 0 ... length - 1 in random order, each once.

    Without a `seed` an order is drawn by `np.random.shuffle` when an iteration begins, exactly as
    Gluon's: `np.random.seed` repeats it. With one it is a function of (seed, epoch, length), and
    the global generator is left alone; a loader sets the epoch, or `set_epoch` does. That order is
    computed index by index: an iteration begins anywhere at once.

    Args:
        length: how many indices.
        seed: an int in [0, 2**64), or None.

    >>> sampler = RandomSampler(5, seed=3)
    >>> sorted(sampler) == [0, 1, 2, 3, 4] and list(sampler) == list(sampler)
    True
    """

    def __init__(self, length: int, seed: int | None = None) -> None:
        super().__init__(seed)
        self.length = as_int("length", length, low=0, remedy=_LENGTH)
        self._drawn: Any = None  # the state that the last order was drawn from, without a seed
        self._repeated: Any = None  # and that which the next one must be drawn from

    def __iter__(self) -> Iterator[int]:
        return self._open_at(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the order from `position` on; with a seed, seeks there at once."""
        return self._open_at(as_position(position))

    def _open_at(self, position: int) -> Iterator[int]:
        if self.seed is None:
            return chain.from_iterable(in_chunks(self._draw()[position:]))
        order = shuffled(self.length, *self._begin())
        return indices_at(order, range(position, self.length))

    def _draw(self) -> npt.NDArray[np.int_]:
        order = np.arange(self.length)
        state, self._repeated = self._repeated, None
        if state is None:
            state = np.random.get_state(legacy=False)
            np.random.shuffle(order)
        else:
            _generator(state).shuffle(order)
        self._drawn = state
        return order

    def state_dict(self) -> dict[str, Any]:
        """Return what repeats the order of the last begun iteration.

        With a seed, its "seed" and "epoch"; else "numpy", the state of NumPy's global generator
        that it was drawn from. Before the first iteration it is the order that one would have now.
        """
        if self.seed is not None:
            return super().state_dict()
        state = self._repeated or self._drawn or np.random.get_state(legacy=False)
        return {"numpy": to_json(state)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next iteration, and it alone, take the order that the state describes.

        The global generator is neither read nor changed for it.

        Raises:
            StateError: it is no state of such a sampler. Nothing has changed then.
        """
        if self.seed is not None:
            super().load_state_dict(state)
        else:
            self._repeated = self.check_state(state)

    def check_state(self, state: dict[str, Any]) -> Any:  # type: ignore[override]
        """Return what a state describes: two numbers with a seed, else a generator's state.

        Raises:
            StateError: it is no state of such a sampler.
        """
        if self.seed is not None:
            return SeededSampler.check_state(state)
        if not isinstance(state, dict) or not isinstance(state.get("numpy"), dict):
            raise StateError(
                f"the state of a RandomSampler without a seed is a dict with 'numpy', got"
                f" {got(state)}. Pass what state_dict() of such a sampler returned."
            )
        found = from_json(state["numpy"])
        _generator(found)
        return found

    def __len__(self) -> int:
        return self.length


class FilterSampler(Sampler[int]):
    """Yield the indices of the samples for which a function is true, in order.

    It calls the function once for each sample, now.

    Args:
        fn: called with a sample, as it is: a tuple is one argument.
        dataset: anything with `__len__` and `__getitem__`.

    >>> list(FilterSampler(str.isupper, "aBcD"))
    [1, 3]
    """

    def __init__(self, fn: Callable[[Any], Any], dataset: Any) -> None:
        if not callable(fn):
            raise ConfigTypeError(f"fn must be a function of a sample, got {got(fn)}")
        count = len(as_sized(dataset))
        self.indices = [index for index in range(count) if fn(dataset[index])]

    def __iter__(self) -> Iterator[int]:
        return iter(self.indices)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; seeks there at once."""
        return iterate_from(self.indices, as_position(position))

    def __len__(self) -> int:
        return len(self.indices)


class IntervalSampler(Sampler[int]):
    """Yield every interval-th index; then, with rollover, do so from 1, from 2, and so on.

    Its length is how many indices it yields. Gluon's is `length` without rollover, too.

    Args:
        length: of the dataset.
        interval: from an index to the next, at most `length`.
        rollover: whether the indices that were left out come, too.

    Raises:
        ArgumentError: (an AssertionError) the interval is longer than the dataset.

    >>> list(IntervalSampler(7, 3)), list(IntervalSampler(7, 3, rollover=False))
    ([0, 3, 6, 1, 4, 2, 5], [0, 3, 6])
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        self.length = as_int("length", length, low=0, remedy=_LENGTH)
        remedy = "It is the step from an index to the next."
        self.interval = as_int("interval", interval, low=1, remedy=remedy)
        self.rollover = as_bool("rollover", rollover)
        if self.interval > self.length:
            raise ArgumentError(
                f"interval {interval} must be at most the length, {length}. Pass a smaller one"
            )

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; seeks there at once."""
        position, count = as_position(position), self.length
        short, longer = divmod(count, self.interval)  # the first passes have one index more
        of_longer = longer * (short + 1)
        if position < of_longer:
            first, skipped = divmod(position, short + 1)
        else:
            first, skipped = divmod(position - of_longer, short)
            first += longer
        passes = range(self.interval if self.rollover else 1)[first:]
        runs = (range(start, count, self.interval) for start in passes)
        return chain.from_iterable(run[skipped if run.start == first else 0 :] for run in runs)

    def __len__(self) -> int:
        return self.length if self.rollover else -(-self.length // self.interval)


def _generator(state: Any) -> np.random.RandomState:
    """Return a generator in the state of another one. StateError: it is none."""
    try:
        kind = getattr(np.random, state["bit_generator"])
        if not issubclass(kind, np.random.BitGenerator):
            raise TypeError(f"{kind} makes no random bits")
        generator = np.random.RandomState(kind(0))
        generator.set_state(state)
    except (LookupError, AttributeError, TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"the state of NumPy's generator in a sampler's state cannot be set: {error!r}. Load"
            " another state"
        ) from error
    return generator
