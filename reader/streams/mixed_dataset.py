"""Samples of several sources in exact shares: the schedule, and the map-style dataset.

Imports `reader.checks`, NumPy, and `reader.data`. A schedule never changes once it is made; a
MixedDataset holds the datasets in `datasets` and copies no sample. Streams are mixed by
`reader.streams.mix`.
"""

from __future__ import annotations

import bisect
import functools
import heapq
import math
from array import array
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from reader.checks import as_int, described
from reader.config import SEED_LIMIT
from reader.data.dataset import Dataset
from reader.data.weighted_sampler import checked_weights, place_of
from reader.data.wrapped import fetch_located, if_any_has, set_epoch_of
from reader.errors import ConfigError, SampleIndexError, got
from reader.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["STOPS", "MixSchedule", "MixedDataset", "as_stop", "cycle_counts"]

STOPS = ("first", "last", "all")

_LONGEST = 1 << 16  # samples in a cycle
_EXACT = 1e-9  # how far from a whole number of samples a share of a cycle may be


def cycle_counts(sources: int, weights: Any, names: Sequence[str] = ()) -> list[int]:
    """Return how many samples of a cycle each source gives.

    The cycle is the shortest with whole shares, or otherwise the closest one of up to 65536
    samples.

    Args:
        sources: how many there are.
        weights: a positive number for each; they need not sum to 1. None: equal ones.
        names: of the sources, for messages; empty: positions are used.

    Raises:
        ConfigError: the weights cannot be shares of the sources.

    >>> cycle_counts(3, [0.7, 0.2, 0.1])
    [7, 2, 1]
    """
    if weights is None:
        return [1] * sources
    shares = _checked(sources, weights, names)
    lengths = np.arange(1, _LONGEST + 1)
    worst, total = np.zeros(_LONGEST), np.zeros(_LONGEST)
    for share in shares:
        nearest = np.maximum(np.rint(lengths * share), 1)
        worst = np.maximum(worst, np.abs(lengths * share - nearest))
        total += nearest
    worst[total != lengths] = np.inf
    exact = np.flatnonzero(worst < _EXACT)
    place = int(exact[0]) if len(exact) else int(np.argmin(worst / lengths))
    counts = np.maximum(np.rint(lengths[place] * shares), 1).astype(np.int64)
    return [int(count) for count in counts]


def _checked(sources: int, weights: Any, names: Sequence[str]) -> np.ndarray[Any, Any]:
    """Return weights as shares that sum to 1."""
    found = checked_weights(weights, are_positive=True, names=names)
    if found.shape != (sources,):
        raise ConfigError(
            f"mix got {len(found)} weights for {sources} sources. Pass one weight for each source,"
            " or None for equal shares."
        )
    found /= found.max()  # the sum of large ones may be inf
    shares: np.ndarray[Any, Any] = found / found.sum()
    least = int(shares.argmin())
    if shares[least] * _LONGEST < 1:
        raise ConfigError(
            f"the weight {place_of(names, least)} is {shares[least]:.3g} of the sum of weights, and"
            f" the smallest share that mix gives is 1/{_LONGEST}. Raise it, or join sources first."
        )
    return shares


def as_stop(stop: Any) -> str:
    """Return `stop` if it is one of STOPS. Else ConfigError."""
    if stop not in STOPS:
        raise ConfigError(
            f"stop must be one of {', '.join(map(repr, STOPS))}, got {got(stop)}. 'first' ends with"
            " the first source that ends; 'last' with the last one, while others begin anew; 'all'"
            " takes each sample once."
        )
    return str(stop)


class MixSchedule:
    """Which source gives the n-th sample: one cycle, repeated.

    After any n samples the count of each source differs from its share of n by less than one. Any
    place is found in constant time.

    Args:
        counts: how many samples of a cycle each source gives, 1 or more.

    >>> schedule = MixSchedule([2, 1])
    >>> [schedule.at(place) for place in range(4)]
    [(0, 0), (1, 0), (0, 1), (0, 2)]
    """

    def __init__(self, counts: Sequence[int]) -> None:
        divisor = math.gcd(*counts)
        self.counts = [count // divisor for count in counts]
        self._length = sum(self.counts)
        self._choices = _cycle(self.counts)
        given = [0] * len(counts)
        self._before = array("I")  # how many samples the same source gave before in this cycle
        for source in self._choices:
            self._before.append(given[source])
            given[source] += 1

    def at(self, place: int) -> tuple[int, int]:
        """Return the source of a place, and how many samples it gave before."""
        cycles, within = divmod(place, self._length)
        source = self._choices[within]
        return source, cycles * self.counts[source] + self._before[within]

    def source_at(self, place: int) -> int:
        """Return the source of a place."""
        return self._choices[place % self._length]

    def place_of(self, source: int, number: int) -> int:
        """Return the place of the `number`-th sample of a source, from 0."""
        cycles, within = divmod(number, self.counts[source])
        return cycles * self._length + int(self._places(source)[within])

    def given(self, source: int, place: int) -> int:
        """Return how many samples a source gave before a place."""
        cycles, within = divmod(place, self._length)
        before = int(np.searchsorted(self._places(source), within))
        return cycles * self.counts[source] + before

    def _places(self, source: int) -> np.ndarray[Any, Any]:
        return np.flatnonzero(np.frombuffer(self._choices, np.uint16) == source)


def _cycle(counts: list[int]) -> array[int]:
    """Return the source of each place of a cycle.

    The j-th sample of a source with `count` of `length` places comes at a place in
    [j * length // count, ceil((j + 1) * length / count)): then its count is within one of its
    share everywhere. Taking the open sample with the earliest end first finds places for all (R.
    Tijdeman, The chairman assignment problem, 1980).
    """
    length = sum(counts)
    choices = array("H")
    waiting = [(0, source) for source in range(len(counts))]  # (first place, source)
    ready: list[tuple[int, int, int]] = []  # (end, first place, source)
    given = [0] * len(counts)
    for place in range(length):
        while waiting and waiting[0][0] <= place:
            first, source = heapq.heappop(waiting)
            end = -(-(given[source] + 1) * length // counts[source])
            heapq.heappush(ready, (end, first, source))
        source = heapq.heappop(ready)[2]
        choices.append(source)
        given[source] += 1
        if given[source] < counts[source]:
            heapq.heappush(waiting, (given[source] * length // counts[source], source))
    return choices


class _Stretch(NamedTuple):
    """A part of a mix in which no source ends: its places from `start` on follow one schedule."""

    start: int
    schedule: MixSchedule
    sources: list[int]  # by their number in the schedule
    given: list[int]  # by source: how many samples came before


class MixedDataset(Dataset[Any]):
    """The samples of several map-style datasets in exact shares; see `reader.mix`.

    A negative index counts from the end.

    Args:
        datasets: map-style, checked; their lengths are read once, now.
        counts: how many samples of a cycle each gives.
        stop: one of STOPS.
        seed: seed of the orders of the datasets' samples; None: their own order.
        names: of the datasets; empty: messages use positions.
    """

    __repr__ = described

    def __init__(
        self,
        datasets: list[Any],
        counts: list[int],
        stop: str,
        seed: int | None = None,
        names: Sequence[str] = (),
    ) -> None:
        if seed is not None:
            remedy = "None takes the samples of each source in their order."
            seed = as_int("seed", seed, low=0, high=SEED_LIMIT - 1, remedy=remedy)
        self.datasets = datasets
        self.names = list(names)
        self.counts = counts
        self.stop = stop
        self._seed = seed
        self._epoch = 0
        self._lengths = [len(dataset) for dataset in datasets]
        if stop != "all" and 0 in self._lengths:
            raise ConfigError(
                f"mix got an empty source {place_of(names, self._lengths.index(0))}, which has no"
                " sample to give at its turn. Leave it out."
            )
        self._stretches, self._length = _stretches(self._lengths, counts, stop)

    def __getitem__(self, index: int, /) -> Any:
        source, position = self._locate(index)
        return self.datasets[source][position]

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if one of the datasets has the method."""
        return if_any_has("__getitems__", self.datasets, self._fetch)

    def _fetch(self, indices: Iterable[int]) -> list[Any]:
        return fetch_located(self.datasets, [self._locate(index) for index in indices])

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of the source of sample `index`, and the index in the source."""
        count = self._length
        if not -count <= index < count:
            raise SampleIndexError(
                f"index out of range: got index {index} of a mix of {count} samples. Take one in"
                f" [{-count}, {count})."
            )
        if index < 0:
            index += count
        start, schedule, sources, given = self._stretches[0]
        if len(self._stretches) > 1:
            number = bisect.bisect_right(self._stretches, index, key=_start_of) - 1
            start, schedule, sources, given = self._stretches[number]
        number, before = schedule.at(index - start)
        source = sources[number]
        passes, position = divmod(given[source] + before, self._lengths[source])
        if self._seed is not None:
            part = source + 1 << 32 | passes
            position = _shuffled(self._lengths[source], self._seed, self._epoch, part)[position]
        return source, position

    def __len__(self) -> int:
        return self._length

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, of the orders by `seed`; passed on to datasets that take it."""
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
        set_epoch_of(epoch, *self.datasets)


def _start_of(stretch: _Stretch) -> int:
    return stretch.start


@functools.lru_cache(256)
def _shuffled(count: int, seed: int, epoch: int, part: int) -> Permutation:
    return Permutation(count, order_key(seed, epoch, part))


def _stretches(lengths: list[int], counts: list[int], stop: str) -> tuple[list[_Stretch], int]:
    """Return the parts of a mix in which no source ends, and how many samples it has."""
    sources = list(range(len(lengths)))
    schedule = MixSchedule(counts)
    given = [0] * len(lengths)
    found = [_Stretch(0, schedule, sources, given)]
    # the places where each would need one sample more than it has
    ends = [schedule.place_of(source, lengths[source]) for source in sources]
    if stop != "all":
        return found, min(ends) if stop == "first" else max(ends)
    start = 0
    while True:
        ended = ends.index(min(ends))
        start += ends[ended]
        given = list(given)
        for number, source in enumerate(sources):
            given[source] += schedule.given(number, ends[ended])
        sources = sources[:ended] + sources[ended + 1 :]
        if not sources:
            return found, start
        schedule = MixSchedule([counts[source] for source in sources])
        found.append(_Stretch(start, schedule, sources, given))
        ends = [
            schedule.place_of(number, lengths[source] - given[source])
            for number, source in enumerate(sources)
        ]
