"""How many tasks keep a remote worker busy, by the times of its last calls.

Imports the standard library alone; pure arithmetic. A Pace belongs to the line of a worker.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

__all__ = ["CALLS", "FACTOR", "MOST_FACTOR", "Pace", "is_quick", "most_tasks"]

CALLS = 2  # in flight for one actor: the next call is there when one is done
FACTOR = 2  # tasks in flight of a worker whose batches are unknown
_MOST_CALLS = 8
_MANY = 64  # tasks of one call
_WAITING = 2  # tasks in all per task in the calls in flight: next calls are full
MOST_FACTOR = _WAITING * CALLS * _MANY
_TOGETHER_NBYTES = 1 << 20  # of quickly made batches in one call
_QUICK_S = 0.005
_CALL_S = 0.16  # longest call, if its tasks take as long as the last ones
_LAST = 8  # calls that count: one slow sample among quick ones changes little


def is_quick(seconds: float, tasks: int) -> bool:
    """Whether a call's tasks were so quick that more may be sent together."""
    return seconds < _QUICK_S * tasks


def most_tasks(is_quick: bool, nbytes: int) -> int:
    """Return how many tasks one call may have, by the bytes of the last batch."""
    return max(1, min(_MANY, _TOGETHER_NBYTES // nbytes)) if is_quick and nbytes else 1


class Pace:
    """The times of the last calls to a worker.

    Args:
        is_shared: whether the worker makes batches of other programs too: two calls of each are in
            flight.

    Attributes:
        nbytes: of the last batch.
        calls: how many should be in flight. While the actor does one, others travel: there are
            enough that the actor never waits for travelling ones.
    """

    def __init__(self, is_shared: bool = False) -> None:
        self.nbytes = 0
        self.calls = CALLS
        self._is_shared = is_shared
        self._is_quick = False  # the last call
        self._each_s = 0.0  # time of one of its tasks
        self._quick: deque[bool] = deque(maxlen=_LAST)
        self._took_s: deque[float] = deque(maxlen=_LAST)
        self._lag_s: deque[float] = deque(maxlen=_LAST)

    def note(self, tasks: int, took_s: float, lag_s: float) -> None:
        """Note the times of a call with tasks.

        Args:
            tasks: of the call.
            took_s: time to do the tasks.
            lag_s: time from sending to landing, without `took_s` and the wait for earlier calls.
        """
        self._is_quick = is_quick(took_s, tasks)
        self._each_s = max(1e-6, took_s / tasks)
        self._quick.append(self._is_quick)
        self._took_s.append(took_s)
        self._lag_s.append(lag_s)  # the smallest did not wait for a processor
        if self._is_shared or self._together > 1:
            self.calls = CALLS  # more calls would have fewer tasks each
        else:
            each_s = max(1e-6, statistics.median(self._took_s))
            needed = 1 + math.ceil(max(0.0, min(self._lag_s)) / each_s)
            self.calls = max(CALLS, min(_MOST_CALLS, needed))

    def note_nbytes(self, nbytes: int) -> None:
        """Note the size of a batch."""
        self.nbytes = nbytes

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
        """Return how many tasks should be in flight, if their batches may take `most_nbytes`."""
        together = self._together
        wanted = self.calls if together == 1 else _WAITING * self.calls * together
        return max(FACTOR, min(wanted, most_nbytes // max(1, self.nbytes)))
