"""The plan of a mix: which source gives the n-th sample, and where the mix ends.

Imports NumPy and the words for sources. Nothing changes after it is made.
"""

from __future__ import annotations

import bisect
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

__all__ = ["LinearSchedule", "MixPlan", "MixSchedule", "ScheduleEntry", "Stop"]


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


class LinearSchedule:
    """Which source gives the n-th sample while shares go linearly from some weights to others.

    After any n samples the count of each of k sources differs from the integral of its share over
    these n by at most half of the levels of a binary tree with k leaves, ceil(log2(k)) / 2. Any
    place is found in a number of steps that depends on k alone, in whole numbers, without an array.

    Each node of the tree has some of the sources, and divides its samples among two halves of
    these. Where it has given m, x is the place at which the integral of its shares is m; its left
    half has the integral of its own shares up to x, rounded. Shares are not below 0, so that this
    rises by at most 1 for each of m.

    Args:
        first: a weight for each source, a whole number; they need not sum to that of `last`.
        last: likewise; equal shares: they stay. In one of both each source has a weight above 0.
        length: the number of samples from `first` to `last`.

    >>> schedule = LinearSchedule([1, 0], [0, 1], 6)
    >>> [schedule.at(place) for place in range(6)]
    [(0, 0), (0, 1), (1, 0), (0, 2), (1, 1), (1, 2)]
    """

    def __init__(self, first: Sequence[int], last: Sequence[int], length: int) -> None:
        first, last = (first if sum(first) else last), (last if sum(last) else first)
        begins, ends = math.gcd(*first), math.gcd(*last)
        first, last = [each // begins for each in first], [each // ends for each in last]
        whole = math.lcm(sum(first), sum(last))
        self.first = [each * (whole // sum(first)) for each in first]
        self.last = [each * (whole // sum(last)) for each in last]
        self.length = length
        self._is_constant = self.first == self.last
        sums = [(0, 0)]  # of first and last, before each source
        for begin, end in zip(self.first, self.last, strict=True):
            sums.append((sums[-1][0] + begin, sums[-1][1] + end))
        self._root = _node(sums, 0, len(self.first), length)

    def __reduce__(self) -> tuple[Any, ...]:
        return LinearSchedule, (self.first, self.last, self.length)

    def at(self, place: int) -> tuple[int, int]:
        """Return the source of a place, and how many samples it gave before."""
        node, before = self._root, place
        while not isinstance(node, int):
            left = node.left(before)
            if node.left(before + 1) > left:
                node, before = node.halves[0], left
            else:
                node, before = node.halves[1], before - left
        return node, before

    def given(self, source: int, place: int) -> int:
        """Return how many samples a source gave before a place."""
        node, before = self._root, place
        while not isinstance(node, int):
            left = node.left(before)
            if source < node.middle:
                node, before = node.halves[0], left
            else:
                node, before = node.halves[1], before - left
        return before

    def place_of(self, source: int, number: int) -> int:
        """Return the place of the `number`-th sample of a source, from 0; at most `length`.

        Where shares stay the same there is no such limit.
        """
        stop = self.length
        if self._is_constant:
            stop = 1
            while self.given(source, stop) <= number:
                stop *= 2
        start = 0
        while start < stop:
            middle = start + stop >> 1
            if self.given(source, middle + 1) > number:
                stop = middle
            else:
                start = middle + 1
        return start

    def shares_at(self, place: int, sources: Sequence[int]) -> list[int]:
        """Return the shares of some sources at a place, as whole numbers."""
        return [
            self.first[each] * (self.length - place) + self.last[each] * place for each in sources
        ]


class _Node(NamedTuple):
    """Some sources of a linear schedule, in two halves: which samples the left one has.

    Attributes:
        middle: the first source of the right half.
        halves: a node, or the number of the only source, of each half.
        end: how many samples it has by the last place of the schedule.
        terms: by which `left` computes up to there: of 1, m and mm; and under the root of 1 and m.
        is_falling: the root is subtracted.
        divisor: of these.
        rest: behind the end: of 1 and m, and the divisor.
    """

    middle: int
    halves: tuple[_Node | int, _Node | int]
    end: float
    terms: tuple[int, int, int, int, int]
    is_falling: bool
    divisor: int
    rest: tuple[int, int, int]

    def left(self, given: int) -> int:
        """Return how many of the first samples of the node the left half has."""
        if given > self.end:
            one, each, divisor = self.rest
            return (one + each * given) // divisor
        one, each, square, root_one, root_each = self.terms
        found = one + each * given + square * given * given
        product = root_one + root_each * given
        if product:  # in whole numbers, rounded down
            root = math.isqrt(product)
            found += -root - (root * root < product) if self.is_falling else root
        return found // self.divisor


def _node(sums: list[tuple[int, int]], low: int, high: int, length: int) -> _Node | int:
    """Return the node of the sources from `low` to `high`.

    Its share at place x is a + dx / length and that of its left half b + ex / length, both times
    `whole`. It has given m where ax + dxx / (2 length) is m times `whole`; there the left half has
    bx + exx / (2 length), and rounded to the nearest that is what it gives.

    Args:
        sums: of the first and the last weights, before each source.
        low: the first source.
        high: the one behind the last.
        length: of the schedule.
    """
    if high - low == 1:
        return low
    middle, whole = low + high >> 1, sums[-1][0]
    (first, last), (half_first, half_last), (stop_first, stop_last) = (
        sums[low],
        sums[middle],
        sums[high],
    )
    a, d = stop_first - first, stop_last - last - stop_first + first
    b, e = half_first - first, half_last - last - half_first + first
    end: float = math.inf
    rest = (0, 0, 1)
    if d or e:
        # rounded up further above, m may be larger than it is at the end: shares stay as there
        end = (2 * a + d) * length // (2 * whole)
        rest = ((2 * b + e) * length + whole, 0, 2 * whole)
        if a + d:
            one = (a + d) * (2 * b + e) - (b + e) * (2 * a + d)
            each = 2 * whole * (b + e)
            rest = (one * length + whole * (a + d), each, 2 * whole * (a + d))
    turn = b * d - e * a
    if not d and not e:
        terms, divisor = (a, 2 * b, 0, 0, 0), 2 * a
    elif not d:
        terms = (length * a * a, 2 * length * a * b, e * whole, 0, 0)
        divisor = 2 * length * a * a
    else:  # x is (root - a length) / d, of the square of a length and 2 whole length dm
        under = ((2 * turn * a * length) ** 2, 8 * turn * turn * length * whole * d)
        terms = (d * d * whole - 2 * turn * a * length, 2 * d * e * whole, 0, *under)
        divisor = 2 * d * d * whole
    halves = _node(sums, low, middle, length), _node(sums, middle, high, length)
    return _Node(middle, halves, end, terms, turn < 0, divisor, rest)


class ScheduleEntry(NamedTuple):
    """The weights of a mix from a sample on.

    Attributes:
        start: the sample; below 0: it lies in an epoch before.
        counts: how many samples of a cycle each source gives.
        then: as `counts`, at the end of a stretch whose shares go linearly; None: they stay.
        samples: from the start to that end.
    """

    start: int
    counts: list[int]
    then: list[int] | None = None
    samples: int = 1

    def has(self, source: int) -> bool:
        """Whether a source has a weight in it."""
        return bool(self.counts[source] or (self.then is not None and self.then[source]))

    def schedule(self, sources: Sequence[int], place: int) -> MixSchedule | LinearSchedule:
        """Return the schedule of some of the sources from a place behind its start on."""
        if self.then is None:
            return _cyclic(tuple(self.counts[each] for each in sources))
        last = [self.then[each] for each in sources]
        if self.then == self.counts:
            return LinearSchedule(last, last, 1)
        now = LinearSchedule(self.counts, self.then, self.samples).shares_at(place, sources)
        return LinearSchedule(now, last, self.samples - place)


@functools.lru_cache(32)
def _cyclic(counts: tuple[int, ...]) -> MixSchedule:
    return MixSchedule(counts)


class Stretch(NamedTuple):
    """A part of a mix under one entry of the schedule, in which no source is left out."""

    start: int
    schedule: MixSchedule | LinearSchedule
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


def _start_of(stretch: Stretch) -> int:
    return stretch.start


Stop = str | dict[str, str]  # where a mix ends; or by source, what its end does

# what the end of a source does, by the words that users have for one source and for all
_REPEATS, _IS_LEFT_OUT, _ENDS_THE_MIX, _IS_WAITED_FOR = "repeat", "hand_on", "stop", "wait"
_ENDS = {"first": _ENDS_THE_MIX, "last": _IS_WAITED_FOR, "all": _IS_LEFT_OUT, "never": _REPEATS}


class MixPlan:
    """Which source gives the n-th sample of a mix, and how many it gave before.

    Args:
        entries: the weights; the first one holds from sample 0 on.
        lengths: of the sources.
        stop: where the mix ends: see `Mix`.
        limit: how many samples it may have.
        names: of the sources; empty: they have positions.

    Raises:
        ConfigError: `stop` waits for samples that have no turn.

    Attributes:
        length: how many samples the mix has.
    """

    def __init__(
        self,
        entries: list[ScheduleEntry],
        lengths: list[int],
        stop: Stop,
        limit: int,
        names: list[str],
    ) -> None:
        ends = [_ENDS[stop]] * len(lengths) if isinstance(stop, str) else list(stop.values())
        self._stretches, self.length = _stretches_of(entries, lengths, stop, ends, limit, names)

    def at(self, place: int) -> tuple[int, int]:
        """Return the source of a place, and how many samples it gave before, over all its passes.

        A place lies in [0, length).
        """
        stretches, number = self._stretches, 0
        if len(stretches) > 1:
            number = bisect.bisect_right(stretches, place, key=_start_of) - 1
        start, schedule, sources, given = stretches[number]
        number, before = schedule.at(place - start)
        source = sources[number]
        return source, given[source] + before

    def given(self, place: int) -> list[int]:
        """Return by source how many samples came before a place in [0, length]."""
        number = bisect.bisect_right(self._stretches, place, key=_start_of) - 1
        return self._stretches[number].given_at(place)


def _stretches_of(
    entries: list[ScheduleEntry],
    lengths: list[int],
    stop: Stop,
    ends: list[str],
    limit: int,
    names: list[str],
) -> tuple[list[Stretch], int]:
    """Return the stretches of a mix, and how many samples it has; see MixPlan.

    `ends`: by source what its end does.
    """
    found: list[Stretch] = []
    given = [0] * len(lengths)
    ended: dict[int, int] = {}  # by source: the place where it first had no sample at its turn
    entries = [entry for entry in entries if entry.start < limit]
    ends_of_entries = [*(entry.start for entry in entries[1:]), limit]
    for entry, until in zip(entries, ends_of_entries, strict=True):
        place = max(0, entry.start)
        while place < until:
            sources = [
                source
                for source in range(len(lengths))
                if entry.has(source) and not (ends[source] == _IS_LEFT_OUT and source in ended)
            ]
            if not sources:
                if given == lengths:
                    return found, place
                raise _endless(stop, place, entry, lengths, given, names)
            schedule = entry.schedule(sources, place - entry.start)
            stretch = Stretch(place, schedule, sources, given)
            found.append(stretch)
            turns = {
                source: stretch.turn(source, lengths[source])
                for source in sources
                if ends[source] != _REPEATS and source not in ended
            }
            ending = sorted((turn, source) for source, turn in turns.items() if turn < until)
            place = min([until, *(t for t, each in ending if ends[each] == _IS_LEFT_OUT)])
            last = min([until, *(t for t, each in ending if ends[each] == _ENDS_THE_MIX)])
            if last < place:  # no two sources have one turn
                return found, last
            ended |= {source: turn for turn, source in ending if turn <= place}
            if _IS_WAITED_FOR in ends and all(
                # without a weight from here on, a source need not have its turn
                source in ended
                or (until == limit and not entry.has(source) and given[source] == count)
                for source, count in enumerate(lengths)
            ):
                return found, max([stretch.start, *ended.values()])
            given = stretch.given_at(place)
    if limit < sys.maxsize:
        return found, limit
    raise _endless(stop, found[-1].start, entries[-1], lengths, found[-1].given, names)


def _endless(
    stop: Stop,
    place: int,
    entry: ScheduleEntry,
    lengths: list[int],
    given: list[int],
    names: list[str],
) -> ConfigError:
    for source, count in enumerate(lengths):
        left = count - given[source]
        if not entry.has(source) and left > 0:
            return ConfigError(
                f"stop={stop!r} waits for the source {place_of(names, source)}, and {left:,} of its"
                f" {count:,} samples have no turn: its weight is 0 from sample"
                f" {place:,} on. Give it a weight there, or pass another stop"
            )
    if given != lengths and not any(
        entry.has(source) and given[source] < count for source, count in enumerate(lengths)
    ):
        return ConfigError(
            f"stop={stop!r} leaves no source with a weight and samples at sample {place:,}. Give a"
            " weight to one that repeats, or pass a smaller length"
        )
    return ConfigError(
        f"stop={stop!r} makes a mix of more than {sys.maxsize:,} samples. Pass stop='never' with a"
        " length"
    )
