"""How many tasks keep a remote worker busy, by what its last calls took.

Imports the standard library alone: it is fed numbers and returns numbers. A Pace belongs to the
line of a worker.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["CALLS", "FACTOR", "MOST_FACTOR", "Pace", "is_quick", "most_tasks"]

CALLS = 2  # of one actor at a time: the next one is there when it has done with one
FACTOR = 2  # tasks of a worker in flight, of whose batches nothing is known
_MOST_CALLS = 8
_MANY = 64  # tasks of one call
_WAITING = 2  # tasks in all, as a multiple of those of the calls under way: the next calls are full
MOST_FACTOR = _WAITING * CALLS * _MANY
_TOGETHER_NBYTES = 1 << 20  # of batches that travel together, where they are made quickly
_QUICK_S = 0.005
_CALL_S = 0.16  # of one call at most, where its tasks take as long as those before
_LAST = 8  # calls that are looked at: a slow sample among quick ones changes little


def is_quick(seconds: float, tasks: int) -> bool:
    """Whether the tasks of a call were done so quickly that more may be sent together."""
    return seconds < _QUICK_S * tasks


def most_tasks(is_quick: bool, nbytes: int) -> int:
    """Return how many tasks one call may have, by what is known of the last: bytes of a batch."""
    return max(1, min(_MANY, _TOGETHER_NBYTES // nbytes)) if is_quick and nbytes else 1


class Pace:
    """What the last calls to a worker took.

    Args:
        is_shared: the worker makes batches of other programs, too: two calls of each are under way.

    Attributes:
        nbytes: of the last batch.
        calls: how many are to be under way. While one is made, others travel: there are so many
            that those that travel take no longer than those that are made.
    """

    def __init__(self, is_shared: bool = False) -> None:
        self.nbytes = 0
        self.calls = CALLS
        self._is_shared = is_shared
        self._is_quick = False  # the last one
        self._each_s = 0.0  # a task of it
        self._quick: deque[bool] = deque(maxlen=_LAST)
        self._took_s: deque[float] = deque(maxlen=_LAST)
        self._lag_s: deque[float] = deque(maxlen=_LAST)

    def note(self, tasks: int, took_s: float, lag_s: float) -> None:
        """Note a call that had tasks.

        Args:
            tasks: of the call.
            took_s: to do them.
            lag_s: from its sending to its landing, but for that and for calls before it.
        """
        self._is_quick = is_quick(took_s, tasks)
        self._each_s = max(1e-6, took_s / tasks)
        self._quick.append(self._is_quick)
        self._took_s.append(took_s)
        self._lag_s.append(lag_s)  # the least of them has waited for no processor
        if self._is_shared or self._together > 1:
            self.calls = CALLS  # more would have fewer tasks each
        else:
            each_s = max(1e-6, statistics.median(self._took_s))
            needed = 1 + math.ceil(max(0.0, min(self._lag_s)) / each_s)
            self.calls = max(CALLS, min(_MOST_CALLS, needed))

    @property
    def most(self) -> int:
        """How many tasks the next call may have."""
        return self._short(most_tasks(self._is_quick, self.nbytes))

    @property
    def _together(self) -> int:
        return self._short(most_tasks(any(self._quick), self.nbytes))

    def _short(self, tasks: int) -> int:
        return max(1, min(tasks, int(_CALL_S / self._each_s))) if self._is_quick else tasks

    def factor(self, most_nbytes: int) -> int:
        """Return how many tasks are to be in flight, whose batches have so many bytes at most."""
        together = self._together
        wanted = self.calls if together == 1 else _WAITING * self.calls * together
        return max(FACTOR, min(wanted, most_nbytes // max(1, self.nbytes)))
