"""GluonNLP's samplers of samples: sorted by a key, sorted in windows, and of one part of several.

Imports the errors and parts of this face and `reader.data`. A sampler runs in the trainer alone.
Without a seed it draws from the global generator that GluonNLP draws from, which is the user's.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from reader.checks import as_int
from reader.compat.gluon.nlp.errors import ArgumentError, as_count
from reader.compat.gluon.nlp.global_draws import GlobalDrawSampler
from reader.compat.gluon.nlp.parts import as_part, part_of
from reader.data.sampler import Sampler
from reader.data.seekable import as_position, iterate_from
from reader.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["SortedBucketSampler", "SortedSampler", "SplitSampler"]


class SortedSampler(Sampler[int]):
    """Yield each index once, in the order of the samples' keys.

    Args:
        sort_keys: of all samples, values that can be compared; read once.
        reverse: the greatest first. Samples with equal keys keep their order either way.

    Raises:
        ArgumentError: (an AssertionError) there are none.

    >>> list(SortedSampler([3, 1, 2]))
    [0, 2, 1]
    """

    def __init__(self, sort_keys: Sequence[Any], reverse: bool = True) -> None:
        keys = _as_sort_keys(sort_keys)
        self._order = sorted(range(len(keys)), key=keys.__getitem__, reverse=bool(reverse))

    def __iter__(self) -> Iterator[int]:
        return iter(self._order)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; seeks there at once."""
        return iterate_from(self._order, as_position(position))

    def __len__(self) -> int:
        return len(self._order)


class SortedBucketSampler(GlobalDrawSampler[list[int]]):
    """Yield batches of samples that are sorted within windows of several batches.

    With `shuffle` the samples are shuffled before they are divided into windows, and so are the
    batches of each window. Without a `seed` it draws from the global generator of NumPy, all of an
    order with its first batch; with one the order is a function of (seed, epoch).

    Args:
        sort_keys: of all samples, values that can be compared; looked up in each epoch.
        batch_size: how many samples make a batch.
        mult: a window has `int(mult * batch_size)` samples.
        reverse: the greatest key first.
        shuffle: whether to shuffle.
        seed: an int in [0, 2**64), or None.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work.

    >>> list(SortedBucketSampler([5, 1, 4, 2, 3, 9, 8], 2, mult=2))
    [[0, 2], [3, 1], [5, 6], [4]]
    """

    def __init__(
        self,
        sort_keys: Sequence[Any],
        batch_size: int,
        mult: float = 100,
        reverse: bool = True,
        shuffle: bool = False,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        self._sort_keys = _as_sort_keys(sort_keys)
        self._batch_size = as_count("batch_size", batch_size)
        if not mult >= 1:
            raise ArgumentError(
                f"Bucket size multiplier must be larger than 1, or equal to it: got mult={mult}."
            )
        self._window = int(mult * self._batch_size)
        self._reverse = bool(reverse)
        self._is_shuffled = bool(shuffle)

    @property
    def _draws_globally(self) -> bool:
        return self._is_shuffled and self._seed is None

    def _generator_state(self) -> dict[str, Any]:
        return {"numpy": np.random.get_state(legacy=False)}

    def __iter__(self) -> Iterator[list[int]]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[list[int]]:
        """Iterate over the batches from `position` on; sorts the window there, and none before."""
        position = as_position(position)
        if self._draws_globally:
            return self._drawn(position, self._take_loaded())
        count = len(self._sort_keys)
        if not self._is_shuffled:
            return self._batches(position, range(count), lambda _, batches: range(batches))
        seed, epoch = self._begin()

        def order_of(window: int, batches: int) -> Permutation:
            return Permutation(batches, order_key(seed, epoch, part=window + 1))

        return self._batches(position, Permutation(count, order_key(seed, epoch)), order_of)

    def _drawn(self, position: int, state: Any) -> Iterator[list[int]]:
        with self._generator(state):
            samples = np.random.permutation(len(self._sort_keys))
            orders = [np.random.permutation(batches) for batches in self._batches_of_windows()]
        yield from self._batches(position, samples.tolist(), lambda window, _: orders[window])

    def _batches_of_windows(self) -> list[int]:
        starts = range(0, len(self._sort_keys), self._window)
        sizes = (min(self._window, len(self._sort_keys) - start) for start in starts)
        return [-(-size // self._batch_size) for size in sizes]

    def _batches(
        self, position: int, samples: Any, order_of: Callable[[int, int], Any]
    ) -> Iterator[list[int]]:
        size = self._batch_size
        first, skipped = divmod(position, -(-self._window // size))
        for window, batches in enumerate(self._batches_of_windows()):
            if window < first:
                continue
            start = window * self._window
            places = range(start, min(start + self._window, len(self._sort_keys)))
            found = [samples[place] for place in places]
            found.sort(key=self._sort_keys.__getitem__, reverse=self._reverse)
            order = order_of(window, batches)
            for place in range(skipped if window == first else 0, batches):
                batch = order[place]
                yield found[batch * size : (batch + 1) * size]

    def __len__(self) -> int:
        """Return the number of batches."""
        return sum(self._batches_of_windows())


class SplitSampler(GlobalDrawSampler[int]):
    """Yield the indices of one of several contiguous parts, in random order.

    Without a `seed` an iteration draws from the module `random` when it begins; with one its order
    is a function of (seed, epoch), and global random state is left alone.

    Args:
        length: how many samples there are in all.
        num_parts: into how many parts they are divided; of each process one.
        part_index: the number of this part, from 0.
        even_size: shorter parts are filled up to the longest, anew in each pass, with random
            samples of all parts; with a `seed`, of other parts. Else the first parts have one
            sample more than the last.
        repeat: how many passes one iteration makes; each has its own order.
        shuffle: False: keep the order of the part.
        seed: an int in [0, 2**64), or None.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work.

    >>> list(SplitSampler(9, num_parts=4, part_index=1, shuffle=False))
    [3, 4]
    """

    def __init__(
        self,
        length: int,
        num_parts: int = 1,
        part_index: int = 0,
        even_size: bool = False,
        repeat: int = 1,
        shuffle: bool = True,
        *,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        parts, index = as_part(num_parts, part_index)
        self._length = as_int("length", length, low=0, remedy="It is the number of samples.")
        if self._length < parts:
            raise ArgumentError(
                f"Length ({length}) must be greater than or equal to the number of partitions"
                f" ({parts}). Use fewer parts."
            )
        self._repeat = as_int("repeat", repeat, low=1, remedy="It is a number of passes.")
        self._is_shuffled = bool(shuffle)
        if even_size:
            self._count = -(-self._length // parts)
            start = min(self._count * index, self._length)
            self._part = range(start, min(start + self._count, self._length))
        else:
            self._part = part_of(self._length, parts, index)
            self._count = len(self._part)

    @property
    def _draws_globally(self) -> bool:
        return self._seed is None and (self._is_shuffled or len(self._part) < self._count)

    def _generator_state(self) -> dict[str, Any]:
        return {"python": random.getstate()}

    def __iter__(self) -> Iterator[int]:
        return self.iter_from(0)

    def iter_from(self, position: int) -> Iterator[int]:
        """Iterate over the indices from `position` on; with a seed it seeks there at once."""
        position = as_position(position)
        if self._draws_globally:
            with self._generator(self._take_loaded()):
                passes = [self._draw() for _ in range(self._repeat)]
            return itertools.islice(itertools.chain.from_iterable(passes), position, None)
        return self._keyed(range(len(self))[position:], *self._begin())

    def _draw(self) -> list[int]:
        """Draw a pass by the module `random`: what is drawn, and in which order, is GluonNLP's."""
        found = list(self._part)
        if len(found) < self._count:
            found += random.sample(range(self._length), self._count - len(found))
        if self._is_shuffled:
            random.shuffle(found)
        return found

    def _keyed(self, places: range, seed: int, epoch: int) -> Iterator[int]:
        part, others = self._part, self._length - len(self._part)
        number = -1
        for place in places:
            if place // self._count != number:
                number = place // self._count
                order = Permutation(self._count, order_key(seed, epoch, part=2 * number))
                added = Permutation(others, order_key(seed, epoch, part=2 * number + 1))
            at = place % self._count
            at = order[at] if self._is_shuffled else at
            if at < len(part):
                yield part[at]
            else:
                other = added[at - len(part)]
                yield other if other < part.start else other + len(part)

    def __len__(self) -> int:
        return self._count * self._repeat


def _as_sort_keys(sort_keys: Any) -> Any:
    if not len(sort_keys):
        raise ArgumentError("sort_keys is empty. Pass one key for each sample, one or more.")
    return sort_keys
