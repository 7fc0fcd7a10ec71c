"""Estimate how far another machine's clock is ahead of this one's, by its workers' calls.

Imports the standard library alone. Times are of `time.monotonic_ns`, whose zero is each machine's
own. It belongs to the lander, one for each node.
"""

from __future__ import annotations

__all__ = ["NodeClock"]

_BETWEEN_NS = 10_000_000_000
_CLOSE_NS = 1_000_000
_DRIFT = 2e-4  # most drift of two clocks per time; usually it is a tenth of this


class NodeClock:
    """The bounds of a clock's difference: a call begins after it is sent, and comes after it ends.

    Each of the two bounds the difference; the tightest bounds of all calls count, widened by the
    possible drift since.
    """

    def __init__(self) -> None:
        self._low = self._high = 0.0  # bounds of the difference, ns
        self._noted_ns = -1
        self._sounded_ns = 0

    def note(self, sent_ns: int, begun_ns: int, ended_ns: int, came_ns: int) -> None:
        """Use the times of a call: sent and come by this clock, begun and ended by the other."""
        low, high = float(ended_ns - came_ns), float(begun_ns - sent_ns)
        if self._noted_ns >= 0:
            drift = abs(came_ns - self._noted_ns) * _DRIFT
            low, high = max(low, self._low - drift), min(high, self._high + drift)
        if low > high:  # a clock was set, or a machine was suspended
            low, high = float(ended_ns - came_ns), float(begun_ns - sent_ns)
        self._low, self._high, self._noted_ns = low, high, came_ns

    def is_due(self, now_ns: int) -> bool:
        """Whether to measure again, by a call of its own: True at most once in 10 s."""
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
        """How far `ahead_ns` may be off."""
        return max(1, round(abs(self._high - self._low) / 2))  # negative: one machine was suspended
