"""How many workers there should be, and how many batches each has in flight: found while training.

Imports the standard library alone: it is fed numbers and returns numbers, and knows no worker.
"""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Choice", "Reading", "Tuner"]

_WAITS = 0.03  # of the time: below that nobody waits
_BUSY = 0.8  # of the workers' time: above that they are what is waited for
_GAIN = 1.04  # batches per second after a change, as a multiple, for it to be kept
_SPARE = 1.3  # workers that are kept, as a multiple of those that are busy
_LEAST_S = 0.15  # of a reading
_LEAST_BATCHES = 12
_LONG_S = 5.0  # after which fewer batches do
_FIRST_PAUSE, _LONGEST_PAUSE = 8, 256  # readings before what did not help is tried again


class Choice(NamedTuple):
    """How many workers, and how many batches in flight for each."""

    workers: int
    factor: int


class Reading(NamedTuple):
    """Sums since the beginning.

    Attributes:
        seconds: of the clock.
        batches: delivered.
        wait_s: in which the loop waited for them.
        busy_s: of all workers in which they made batches.
    """

    seconds: float
    batches: int
    wait_s: float
    busy_s: float


class Tuner:
    """Tries a change where it may help, and takes it back where it did not.

    While the loop waits and the workers are busy, there are more of them, half as many again each
    time; while the loop waits and workers are idle, more batches are in flight. A change that does
    not bring 4 % more batches is taken back, and is tried again after ever longer times. Workers
    that nobody waits for rest.

    Args:
        choice: to begin with.
        most: of each.
        is_free: which of both may change: (workers, factor).
    """

    def __init__(self, choice: Choice, most: Choice, is_free: tuple[bool, bool]) -> None:
        self.choice = choice
        self._most = most
        self._is_free = is_free
        self._last: Reading | None = None
        self._tried: tuple[Choice, float] | None = None  # before the change, and the rate then
        self._pause = 0  # readings until the next try
        self._next_pause = _FIRST_PAUSE
        self._settling = True  # the reading after a change is that of the change itself

    def begin(self) -> None:
        """Sums begin anew: the next reading says nothing of what was before."""
        self._last = self._tried = None
        self._settling = True

    def limit(self, workers: int) -> Choice:
        """Have no more workers than these from now on; returns what there should be."""
        self._most = self._most._replace(workers=workers)
        self.choice = self.choice._replace(workers=min(workers, self.choice.workers))
        self.begin()
        return self.choice

    def read(self, now: Reading) -> Choice:
        """Return what there should be from now on.

        Args:
            now: sums since the beginning.
        """
        last = self._last
        if last is None:
            self._last = now
            return self.choice
        seconds, batches = now.seconds - last.seconds, now.batches - last.batches
        is_enough = batches >= max(_LEAST_BATCHES, 3 * self.choice.workers)
        is_late = seconds >= _LONG_S and batches >= 2 * self.choice.workers
        if seconds < _LEAST_S or not (is_enough or is_late):
            return self.choice
        self._last = now
        if self._settling:
            self._settling = False
            return self.choice
        waits = (now.wait_s - last.wait_s) / seconds
        busy = (now.busy_s - last.busy_s) / seconds
        before = self.choice
        self.choice = self._decided(batches / seconds, waits, busy)
        self._settling = self.choice != before
        return self.choice

    def _decided(self, rate: float, waits: float, busy: float) -> Choice:
        workers, factor = self.choice
        if self._tried is not None:
            before, old_rate = self._tried
            self._tried = None
            if rate < old_rate * _GAIN:  # it did not help
                self._pause, self._next_pause = (
                    self._next_pause,
                    min(_LONGEST_PAUSE, 2 * self._next_pause),
                )
                return before
            self._next_pause = _FIRST_PAUSE
        if waits < _WAITS:
            needed = max(1, int(busy * _SPARE + 0.999))
            if self._is_free[0] and needed < workers:
                return Choice(workers - 1, factor)
            return self.choice
        if self._pause:
            self._pause -= 1
            return self.choice
        more = self._more(busy / workers)
        if more != self.choice:
            self._tried = self.choice, rate
        return more

    def _more(self, busy: float) -> Choice:
        """Return what may help against waiting, where workers are busy for a part of the time."""
        workers, factor = self.choice
        grown = Choice(min(self._most.workers, workers + max(1, workers // 2)), factor)
        deeper = Choice(workers, min(self._most.factor, 2 * factor))
        choices = [(self._is_free[0], grown), (self._is_free[1], deeper)]
        if busy < _BUSY:
            choices.reverse()
        for is_free, choice in choices:
            if is_free and choice != self.choice:
                return choice
        return self.choice
