"""How many workers there should be, and how many batches each has in flight: found while training.

Imports the standard library alone: it is fed numbers and returns numbers, and knows no worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Choice", "Reading", "Tuner"]

_WAITS = 0.03  # of the time: below that nobody waits
_BUSY = 0.8  # of the workers' time: above that they are what is waited for
_GAIN = 1.04  # batches per second after a change, as a multiple, for more to be kept
_SAME = 0.98  # the same, for workers beyond the cores to rest
_CLEAR = 1.3  # the same, for it to be kept at once; for less, what there was is tried again
_SPARE = 1.3  # workers that are kept, as a multiple of those that are busy
_COMPUTES = 0.85  # of the time of a batch: from there on a worker has a core to itself
_BEYOND = 1.2  # workers from which there are too many, as a multiple of those that fill the cores
_UNEVEN = 1.3  # workers that wait in between, as a multiple of those that fill the cores
_PART = 0.4  # of a core: for less there is no worker more
_LEAP = 4  # times as many workers at once
_CLOSE = 0.08  # a gain so close to what it takes is measured for longer
_LONGEST = 3  # readings' length that is
_SETTLE_S = 0.03  # before a reading
_LEAST_S = 0.1  # of a reading
_LEAST_BATCHES = 12
_LONG_S = 5.0  # after which fewer batches do
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256  # readings before what did not help is tried again


class Choice(NamedTuple):
    """How many workers, and how many batches in flight for each."""

    num_workers: int
    factor: int


class Reading(NamedTuple):
    """Sums since the beginning.

    Attributes:
        seconds: of the clock.
        batches: delivered.
        wait_s: in which the loop waited for them.
        busy_s: of all workers in which they made batches.
        cpu_s: of cores, that all workers took; None: the system does not tell.
        runnable_s: of all workers in which no core was free for them.
    """

    seconds: float
    batches: int
    wait_s: float
    busy_s: float
    cpu_s: float | None = None
    runnable_s: float = 0.0

    def since(self, before: Reading) -> Reading:
        """Return what was added since another reading."""
        is_known = self.cpu_s is not None and before.cpu_s is not None
        return Reading(
            self.seconds - before.seconds,
            self.batches - before.batches,
            self.wait_s - before.wait_s,
            self.busy_s - before.busy_s,
            self.cpu_s - before.cpu_s if is_known else None,  # type: ignore[operator]
            self.runnable_s - before.runnable_s,
        )

    @property
    def rate(self) -> float:
        """Batches per second."""
        return self.batches / self.seconds

    @property
    def share(self) -> float | None:
        """The part of the time of a batch in which it computes, or would; None: unknown."""
        # clocks of a worker that was replaced begin anew
        if self.cpu_s is None or self.cpu_s <= 0:
            return None
        return max(0.01, min(1.0, self.cpu_s / max(self.cpu_s, self.busy_s - self.runnable_s)))


class _Trial(NamedTuple):
    """A change that is tried.

    Attributes:
        before: what there was.
        rate: what it gave, in batches per second.
        needed: the gain that keeps the change.
        is_check: what there was is tried again, since the gain of a change was small.
    """

    before: Choice
    rate: float
    needed: float
    is_check: bool = False


class Tuner:
    """Tries a change where it may help, and takes it back where it did not.

    While the loop waits and the workers are busy, there are as many as the step needs by what was
    measured, four times as many at most at once; while the loop waits and workers are idle, more
    batches are in flight. Workers that compute all the time are no more than there are cores. A
    change that does not bring 4 % more batches is taken back, and for a small gain what there was
    is tried once more, since other programs may have made it; when no change is left, they are
    tried again after ever longer times. Workers that nobody waits for rest.

    Args:
        choice: to begin with.
        most: of each.
        is_free: which of both may change: (num_workers, factor).
        cores: that workers may use.
    """

    def __init__(
        self, choice: Choice, most: Choice, is_free: tuple[bool, bool], cores: float
    ) -> None:
        self.choice = choice
        self._most = most
        self._is_free = is_free
        self._cores = cores
        self._changed: Reading | None = None  # the sums at the last change
        self._last: Reading | None = None  # where the reading begins; None: not yet
        self._settle = 1  # batches from a change to a reading
        self._trial: _Trial | None = None
        self._bound: int | None = None  # of batches in flight, for want of memory
        self._failed: frozenset[Choice] = frozenset()  # in the place of the choice
        self._pause = 0  # readings until the next trial
        self._next_pause = _FIRST_PAUSE

    def begin(self) -> None:
        """Sums begin anew: the next reading says nothing of what was before."""
        self._changed = self._last = None
        self._settle = self.choice.num_workers

    def limit(self, num_workers: int) -> Choice:
        """Have no more workers than these from now on, which may be more than before.

        Returns what there should be.
        """
        if num_workers == self._most.num_workers:
            return self.choice
        self._most = self._most._replace(num_workers=num_workers)
        self.choice = self.choice._replace(num_workers=min(num_workers, self.choice.num_workers))
        self._trial, self._failed, self._pause = None, frozenset(), 0
        self.begin()
        return self.choice

    def fit(self, in_flight: int) -> Choice:
        """Have no more batches in flight than these from now on; returns what there should be."""
        num_workers, factor = self.choice
        if self._is_free[1]:
            least = 2 if self._is_free[0] else 1
            factor = min(factor, max(least, in_flight // num_workers))
        if self._is_free[0]:
            num_workers = min(num_workers, max(1, in_flight // factor))
        self.choice, self._bound, self._trial = Choice(num_workers, factor), in_flight, None
        self.begin()
        return self.choice

    def is_due(self, seconds: float, batches: int) -> bool:
        """Whether `read` has something to do at these sums."""
        num_workers = self.choice.num_workers
        if self._changed is None:
            return True
        if self._last is None:
            is_settled = batches - self._changed.batches >= self._settle
            return is_settled and seconds - self._changed.seconds >= _SETTLE_S
        seconds, batches = seconds - self._last.seconds, batches - self._last.batches
        if seconds >= _LONG_S:
            return batches >= 2 * num_workers
        return seconds >= _LEAST_S and batches >= self._enough

    @property
    def _enough(self) -> int:
        return max(_LEAST_BATCHES, 3 * self.choice.num_workers)

    def read(self, now: Reading) -> Choice:
        """Return what there should be from now on.

        Args:
            now: sums since the beginning.
        """
        if not self.is_due(now.seconds, now.batches):
            return self.choice
        if self._changed is None:
            self._changed = now
        elif self._last is None:
            self._last = now
        elif not self._is_close(found := now.since(self._last)):
            before, self._last = self.choice, now
            self.choice = self._decided(found)
            if self.choice != before:
                self._changed, self._last = now, None
                # what was sent before comes first; then each place in flight has fresh memory
                self._settle = max(
                    2 * before.num_workers, self.choice.num_workers * self.choice.factor
                )
        return self.choice

    def _is_close(self, found: Reading) -> bool:
        """Whether a trial's gain is too near to what it takes, and is measured for longer."""
        if self._trial is None or found.seconds >= _LONG_S:
            return False
        is_long = found.seconds >= _LONGEST * _LEAST_S and found.batches >= _LONGEST * self._enough
        return not is_long and abs(found.rate / self._trial.rate - self._trial.needed) < _CLOSE

    def _decided(self, found: Reading) -> Choice:
        if self._trial is not None and (judged := self._judged(found.rate)) is not None:
            return judged
        num_workers, factor = self.choice
        if found.wait_s < _WAITS * found.seconds:
            needed = max(1, math.ceil(_SPARE * found.busy_s / found.seconds))
            if self._is_free[0] and needed < num_workers:
                self._failed = frozenset()
                return Choice((num_workers + needed) // 2, factor)
            return self.choice
        limit = self._most_useful(found.share)
        is_over = self._is_free[0] and num_workers > _BEYOND * limit
        is_over = is_over and Choice(limit, factor) not in self._failed
        if self._pause and not is_over:
            self._pause -= 1
            if not self._pause:
                self._failed = frozenset()
            return self.choice
        for choice in self._candidates(found, limit):
            if choice not in (*self._failed, self.choice) and self._fits(choice):
                gain = _GAIN if choice.num_workers >= num_workers else _SAME if is_over else 1.0
                self._trial = _Trial(self.choice, found.rate, gain)
                return choice
        self._pause = self._next_pause
        self._next_pause = min(_LONGEST_PAUSE, 2 * self._next_pause)
        return self.choice

    def _fits(self, choice: Choice) -> bool:
        return self._bound is None or choice.num_workers * choice.factor <= self._bound

    def _judged(self, rate: float) -> Choice | None:
        """Judge a trial by its rate; returns what there should be, None: what there is."""
        trial, self._trial = self._trial, None
        if trial is None:
            return None
        helped = rate >= trial.rate * trial.needed
        if helped and trial.is_check:
            self._failed |= {trial.before}
            return None
        if not helped and not trial.is_check:
            self._failed |= {self.choice}
            return trial.before
        if helped and trial.needed > 1 and rate < _CLEAR * trial.rate:
            self._trial = _Trial(self.choice, rate, 1 / trial.needed, is_check=True)
            return trial.before
        self._failed = frozenset()
        self._next_pause = _FIRST_PAUSE
        return None if helped else trial.before

    def _candidates(self, found: Reading, limit: int) -> Iterator[Choice]:
        """Yield what may help against waiting, the likeliest first, up to `limit` workers."""
        num_workers, factor = self.choice
        deeper = Choice(num_workers, min(self._most.factor, 2 * factor))
        if not self._is_free[0]:
            yield deeper if self._is_free[1] else self.choice
            return
        if num_workers > _BEYOND * limit:
            yield Choice(limit, factor)
        is_busy = found.busy_s >= _BUSY * num_workers * found.seconds
        if self._is_free[1] and not is_busy:
            yield deeper
        step_s = max(1e-9, found.seconds - found.wait_s)
        needed = min(_LEAP * num_workers, math.ceil(1.1 * found.busy_s / step_s))
        for more in (max(needed, num_workers + 1), num_workers + max(1, num_workers // 2)):
            if (more := min(more, limit)) > num_workers:
                yield Choice(more, factor)
        if self._is_free[1]:
            yield deeper
        if not is_busy:
            yield Choice(max(1, math.ceil(found.busy_s / found.seconds)), factor)

    def _most_useful(self, share: float | None) -> int:
        """Return how many workers fill the cores, where each takes a share of one."""
        if share is None:
            return self._most.num_workers
        filled = self._cores / share * (1.0 if share >= _COMPUTES else _UNEVEN)
        return max(1, min(self._most.num_workers, math.ceil(filled - _PART)))
