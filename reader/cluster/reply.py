"""The result of a call to an actor, and the times of sending and coming.

Imports the standard library alone. It belongs to the caller; Ray's thread notes when the result
comes.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

__all__ = ["Reply"]


class Reply:
    """A call that is in flight or has ended.

    Args:
        send: makes the call, and returns Ray's reference to the result.
        wake: called in Ray's thread when the result has come.

    Attributes:
        sent_ns: when it was sent, by `time.monotonic_ns`.
    """

    def __init__(self, send: Callable[[], Any], wake: Callable[[], None]) -> None:
        self.sent_ns = time.monotonic_ns()
        self._came: list[int] = []
        self._future: Future[Any] = send().future()
        # not a method: that cycle with the future would keep results in Ray's store for long
        self._future.add_done_callback(functools.partial(_come, self._came, wake))

    @property
    def came_ns(self) -> int:
        """When the result came, by `time.monotonic_ns`; 0: not yet."""
        return self._came[0] if self._came else 0

    @property
    def has_come(self) -> bool:
        """Whether `result` would not wait and `came_ns`, which is set a moment later, is known."""
        return self.came_ns > 0

    @property
    def error(self) -> BaseException | None:
        """The exception that `result` raises; waits."""
        return self._future.exception()

    def result(self) -> Any:
        """Return the actor's result, or raise Ray's exception; waits."""
        return self._future.result()


def _come(came: list[int], wake: Callable[[], None], _: Any) -> None:
    """Note when a result came; runs in Ray's thread."""
    came.append(time.monotonic_ns())
    wake()
