"""How far the clock of another machine is ahead of this one's, by the calls of its workers.

Imports the standard library alone. Times are of `time.monotonic_ns`, whose zero is each machine's
own. It belongs to the lander, one for each node.
"""

from __future__ import annotations

__all__ = ["NodeClock"]

_BETWEEN_NS = 10_000_000_000
_CLOSE_NS = 1_000_000
_DRIFT = 2e-4  # two clocks may drift apart by so much of the time that passes; mostly a tenth of it


class NodeClock:
    """What is known of one clock: a call was begun after it was sent, and came after it was done.

    Either bounds the difference of the two clocks; the tightest bounds of all calls hold, and what
    the clocks may have drifted since.
    """

    def __init__(self) -> None:
        self._low = self._high = 0.0  # the difference, ns
        self._noted_ns = -1
        self._sounded_ns = 0

    def note(self, sent_ns: int, begun_ns: int, ended_ns: int, came_ns: int) -> None:
        """Learn from a call: sent and come by the clock here, begun and ended by the other one."""
        low, high = float(ended_ns - came_ns), float(begun_ns - sent_ns)
        if self._noted_ns >= 0:
            drift = abs(came_ns - self._noted_ns) * _DRIFT
            low, high = max(low, self._low - drift), min(high, self._high + drift)
        if low > high:  # a clock was set, or the machine stood still
            low, high = float(ended_ns - came_ns), float(begun_ns - sent_ns)
        self._low, self._high, self._noted_ns = low, high, came_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether to learn more, from a call that waits for no other: True once in 10 s at most."""
        if now_ns - self._sounded_ns < _BETWEEN_NS or self.error_ns < _CLOSE_NS:
            return False
        self._sounded_ns = now_ns
        return True

    @property
    def ahead_ns(self) -> int:
        """How far the other clock is ahead."""
        return round((self._low + self._high) / 2)

    @property
    def error_ns(self) -> int:
        """How far that may be off."""
        return max(1, round(abs(self._high - self._low) / 2))  # below 0: one of the two stood still
