"""The result of a call to an actor, and when it was sent and came.

Imports the standard library alone. It belongs to who called; Ray notes its coming in a thread of
its own.
"""

from __future__ import annotations

import functools
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
        sent_ns: when, by `time.monotonic_ns`.
    """

    def __init__(self, send: Callable[[], Any], wake: Callable[[], None]) -> None:
        self.sent_ns = time.monotonic_ns()
        self._came: list[int] = []
        self._future: Future[Any] = send().future()
        # not a method: in a cycle with the future, results would stay in Ray's store for long
        self._future.add_done_callback(functools.partial(_come, self._came, wake))

    @property
    def came_ns(self) -> int:
        """When it came, by `time.monotonic_ns`; 0: not yet."""
        return self._came[0] if self._came else 0

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


def _come(came: list[int], wake: Callable[[], None], _: Any) -> None:
    """Note when a result came, in a thread of Ray's."""
    came.append(time.monotonic_ns())
    wake()
