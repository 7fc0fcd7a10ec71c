"""The result of a call to an actor, and when it was sent and came.

Imports the standard library alone. It belongs to who called; Ray notes its coming in a thread of
its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Reply"]


class Reply:
    """A call that is under way, or has ended.

    Args:
        send: makes the call, and returns Ray's reference to the result.
        wake: called when that has come, in a thread of Ray's.

    Attributes:
        sent_ns, came_ns: when, by `time.monotonic_ns`; 0: not yet.
    """

    def __init__(self, send: Callable[[], Any], wake: Callable[[], None]) -> None:
        self.sent_ns, self.came_ns = time.monotonic_ns(), 0
        self._wake = wake
        self._future: Future[Any] = send().future()
        self._future.add_done_callback(self._come)

    def _come(self, _: Any) -> None:
        self.came_ns = time.monotonic_ns()
        self._wake()

    @property
    def has_come(self) -> bool:
        """Whether `result` does not wait, and `came_ns` is known, which is set a moment later."""
        return self.came_ns > 0

    @property
    def error(self) -> BaseException | None:
        """What `result` raises; waits."""
        return self._future.exception()

    def result(self) -> Any:
        """Return what the actor returned, or raise what Ray does; waits."""
        return self._future.result()
