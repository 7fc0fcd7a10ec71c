"""Find, while training, how many workers and how many batches in flight for each pay off.

Imports the standard library alone: it is fed numbers and returns numbers, and knows no worker.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

__all__ = ["Choice", "Reading", "Tuner"]

_WAITS = 0.03  # of the time: below that nobody waits
_BUSY = 0.8  # share of the workers' time: above it the loop waits for workers
_GAIN = 1.04  # gain in batches per second, as a factor, that keeps a larger choice
_SAME = 0.98  # the same, to rest workers beyond the cores
_CLEAR = 1.3  # the same, to keep it at once; for less, the old choice is tried again
_SPARE = 1.3  # workers that are kept, as a multiple of the busy ones
_COMPUTES = 0.85  # share of a batch's time: from there on a worker needs a core of its own
_BEYOND = 1.2  # too many workers, as a multiple of those that fill the cores
_UNEVEN = 1.3  # workers that wait in between, as a multiple of those that fill the cores
_PART = 0.4  # share of a core: for less, no worker is added
_LEAP = 4  # the most workers after one change, as a multiple
_CLOSE = 0.08  # a gain so near to the needed one is measured for longer
_LONGEST = 3  # how much longer, as a multiple of a reading
_SETTLE_S = 0.03  # before a reading
_LEAST_S = 0.1  # of a reading
_LEAST_BATCHES = 12
_LONG_S = 5.0  # after which fewer batches make a reading
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256  # readings before a change that did not help is tried again


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
        """The share of a batch's time in which it needs a core; None: unknown."""
        # clocks of a worker that was replaced begin anew
        if self.cpu_s is None or self.cpu_s <= 0:
            return None
        return max(0.01, min(1.0, self.cpu_s / max(self.cpu_s, self.busy_s - self.runnable_s)))


class _Trial(NamedTuple):
    """A change on trial.

    Attributes:
        before: the choice before it.
        rate: of that choice, in batches per second.
        needed: the gain that keeps the change.
        is_check: it tries the old choice again, since the gain of a change was small.
    """

    before: Choice
    rate: float
    needed: float
    is_check: bool = False


class Tuner:
    """Tries a change that may help, and takes it back if it did not.

    While the loop waits and the workers are busy, it adds the workers that the measured step needs,
    up to four times as many at once. While the loop waits and workers are idle, it adds batches in
    flight. It has no more workers than cores if they compute all the time. It takes a change back
    that does not bring 4 % more batches. After a small gain it tries the old choice once more,
    since another program may have caused the gain. When no change is left, it tries all of them
    again after ever longer times. It rests workers that the loop does not need.

    Args:
        choice: the first one.
        most: the most workers and batches in flight.
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
        self._last: Reading | None = None  # the sums where the reading begins; None: not yet
        self._settle = 1  # batches from a change to a reading
        self._trial: _Trial | None = None
        self._bound: int | None = None  # the most batches in flight, where memory is short
        self._failed: frozenset[Choice] = frozenset()  # tried, without a gain
        self._pause = 0  # readings until the next trial
        self._next_pause = _FIRST_PAUSE

    def begin(self) -> None:
        """Begin anew with new sums: the next reading has nothing of the old ones."""
        self._changed = self._last = None
        self._settle = self.choice.num_workers

    def limit(self, num_workers: int) -> Choice:
        """Change the most workers, up or down.

        Returns the choice from now on.
        """
        if num_workers == self._most.num_workers:
            return self.choice
        self._most = self._most._replace(num_workers=num_workers)
        self.choice = self.choice._replace(num_workers=min(num_workers, self.choice.num_workers))
        self._trial, self._failed, self._pause = None, frozenset(), 0
        self.begin()
        return self.choice

    def fit(self, in_flight: int) -> Choice:
        """Limit the batches in flight from now on; returns the choice."""
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
        """Whether `read` would act on these sums."""
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
        """Return the choice from now on.

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
                # tasks from before come first; then each place in flight takes fresh memory
                self._settle = max(
                    2 * before.num_workers, self.choice.num_workers * self.choice.factor
                )
        return self.choice

    def _is_close(self, found: Reading) -> bool:
        """Whether a trial's gain is too near to the needed one to be judged now."""
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
        """Judge a trial by its rate; returns a new choice, or None to keep the current one."""
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
        """Yield choices that may shorten the waits, the likeliest first, up to `limit` workers."""
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
