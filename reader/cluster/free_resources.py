"""Count how many more workers fit into a cluster: nodes come and go, and other programs use them.

Imports the standard library alone. It belongs to the lander, and asks the cluster in its own
thread, since that is a round trip to the cluster's head.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable

__all__ = ["FreeResources"]

_BETWEEN_S = 1.0  # between two checks
_UNBOUNDED = 1 << 20  # workers without resources


class FreeResources:
    """Checks the free resources of a cluster once a second.

    Args:
        free: returns the free resources of each node, by name.
        wanted: the resources of a worker.
        wake: called in the thread after each check.

    Attributes:
        more: how many more workers fit; None: not known yet.
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
        self._thread = threading.Thread(target=self._watch, name="reader-free", daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while not self._is_closed.wait(_BETWEEN_S):
            with contextlib.suppress(Exception):  # workers' calls notice when the cluster is gone
                self.more = sum(map(self._fit, self._free()))
            self._wake()

    def _fit(self, free: dict[str, float]) -> int:
        """Return how many workers fit on a node."""
        counts = [int(free.get(name, 0) / each + 1e-6) for name, each in self._wanted.items()]
        return min(counts, default=_UNBOUNDED)

    def close(self) -> None:
        """Stop the thread."""
        self._is_closed.set()
        self._thread.join()
