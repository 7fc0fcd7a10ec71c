"""How many more workers a cluster has room for: nodes come and go, and other programs use them.

Imports the standard library alone. A Room belongs to the lander; it asks the cluster in a thread of
its own, since that is a round trip to the cluster's head.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

__all__ = ["Room"]

_BETWEEN_S = 1.0  # looks
_UNBOUNDED = 1 << 20  # workers that take nothing


class Room:
    """Looks once a second.

    Args:
        free: returns what is free on each node, by name of the resource.
        wanted: what a worker takes.
        wake: called after each look, in the thread.

    Attributes:
        more: workers that there is room for beside those that have theirs; None: not known yet.
    """

    def __init__(
        self,
        free: Callable[[], list[dict[str, float]]],
        wanted: dict[str, float],
        wake: Callable[[], None],
    ) -> None:
        self.more: int | None = None
        self._free = free
        self._wanted = {name: each for name, each in wanted.items() if each > 0}
        self._wake = wake
        self._is_closed = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="reader-room", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_closed.wait(_BETWEEN_S):
            with contextlib.suppress(Exception):  # calls of workers tell when the cluster is away
                self.more = sum(map(self._fit, self._free()))
            self._wake()

    def _fit(self, free: dict[str, float]) -> int:
        """Return how many workers fit on a node."""
        counts = [int(free.get(name, 0) / each + 1e-6) for name, each in self._wanted.items()]
        return min(counts, default=_UNBOUNDED)

    def close(self) -> None:
        """End the thread."""
        self._is_closed.set()
        self._thread.join()
