"""The schedule of a mix: which source gives the n-th sample, and where the mix ends.

Imports NumPy and the words for sources. Nothing changes after it is made.
"""

from __future__ import annotations

import functools
import heapq
import math
import sys
from array import array
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from reader.data.weighted_sampler import place_of
from reader.errors import ConfigError

__all__ = ["MixSchedule", "Stretch", "start_of", "stretches_of"]


class MixSchedule:
    """Which source gives the n-th sample: one cycle, repeated.

    After any n samples the count of each source differs from its share of n by less than one. Any
    place is found in constant time. A pickle holds the counts alone.

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

    def __reduce__(self) -> tuple[Any, ...]:
        return MixSchedule, (self.counts,)

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


class Stretch(NamedTuple):
    """A part of a mix in which no weight changes and no source is left out."""

    start: int
    schedule: MixSchedule
    sources: list[int]  # by their number in the schedule
    given: list[int]  # by source: how many samples came before

    def turn(self, source: int, count: int) -> int:
        """Return the place where a source has its turn for the sample behind its first `count`."""
        number = self.sources.index(source)
        return self.start + self.schedule.place_of(number, count - self.given[source])

    def given_at(self, place: int) -> list[int]:
        """Return by source how many samples came before a place from `start` on."""
        given = list(self.given)
        for number, source in enumerate(self.sources):
            given[source] += self.schedule.given(number, place - self.start)
        return given


def start_of(stretch: Stretch) -> int:
    """Return the place where a stretch begins."""
    return stretch.start


def stretches_of(
    plan: list[tuple[int, list[int]]], lengths: list[int], stop: str, limit: int, names: list[str]
) -> tuple[list[Stretch], int]:
    """Return the stretches of a mix, and how many samples it has.

    Args:
        plan: where weights begin to hold, and the samples of a cycle by source.
        lengths: of the sources.
        stop: where the mix ends.
        limit: how many samples it may have; with "never" it has these.
        names: of the sources; empty: they have positions.

    Raises:
        ConfigError: `stop` waits for samples that have no turn.
    """
    schedule_of = functools.cache(MixSchedule)
    found: list[Stretch] = []
    given = [0] * len(lengths)
    ended: dict[int, int] = {}  # by source: the place where it first had no sample at its turn
    plan = [(start, counts) for start, counts in plan if start < limit]
    ends_of_stretches = [*(start for start, _ in plan[1:]), limit]
    for (start, counts), until in zip(plan, ends_of_stretches, strict=True):
        place = start
        while place < until:
            left_out = ended if stop == "all" else ()
            sources = [each for each, count in enumerate(counts) if count and each not in left_out]
            if not sources:
                if given == lengths:
                    return found, place
                raise _endless(stop, place, counts, lengths, given, names)
            schedule = schedule_of(tuple(counts[source] for source in sources))
            stretch = Stretch(place, schedule, sources, given)
            found.append(stretch)
            turns = {
                source: stretch.turn(source, lengths[source])
                for source in sources
                if source not in ended
            }
            ending = sorted((turn, source) for source, turn in turns.items() if turn < until)
            if stop == "first" and ending:
                return found, ending[0][0]
            place = ending[0][0] if stop == "all" and ending else until
            if stop in ("last", "all"):
                ended |= {source: turn for turn, source in ending if turn <= place}
            if stop == "last" and all(
                # without a weight from here on, a source need not have its turn
                source in ended
                or (until == limit and not count and given[source] == lengths[source])
                for source, count in enumerate(counts)
            ):
                return found, max([stretch.start, *ended.values()])
            given = stretch.given_at(place)
    if stop == "never":
        return found, limit
    raise _endless(stop, found[-1].start, plan[-1][1], lengths, found[-1].given, names)


def _endless(
    stop: str,
    place: int,
    counts: list[int],
    lengths: list[int],
    given: list[int],
    names: list[str],
) -> ConfigError:
    for source, count in enumerate(counts):
        left = lengths[source] - given[source]
        if not count and left > 0:
            return ConfigError(
                f"stop={stop!r} waits for the source {place_of(names, source)}, and {left:,} of its"
                f" {lengths[source]:,} samples have no turn: its weight is 0 from sample"
                f" {place:,} on. Give it a weight there, or pass another stop"
            )
    return ConfigError(
        f"stop={stop!r} makes a mix of more than {sys.maxsize:,} samples. Pass stop='never' with a"
        " length"
    )
