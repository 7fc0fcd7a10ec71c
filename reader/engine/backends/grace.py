"""The grace of worker processes at their end, and the wait for it.

Imports the standard library alone. The thread that closes workers waits; any thread may shorten the
grace.
"""

from __future__ import annotations

import collections
import math
import os
import select
import threading
import time
from collections.abc import Iterable

__all__ = ["BETWEEN_S", "EXIT_S", "GRACE_S", "INTERRUPTS", "Grace", "await_ends", "grace_of"]

GRACE_S = 5.0  # for a worker to finish its sample when a loop was left early
EXIT_S = 1.0  # the same, when the program ends
INTERRUPTS = 20  # signals that interrupt a sample; then SIGKILL
BETWEEN_S = 0.05  # two: one that comes just before a system call is noticed only after it
_STEP_S = 0.5  # of a wait: a longer one was a stop of this process


def grace_of(kind: type[BaseException] | None) -> float | None:
    """Return the grace at the end of a `with` block: 0 after an exception, else None."""
    is_error = kind is not None and not issubclass(kind, (GeneratorExit, SystemExit))
    return 0.0 if is_error else None


def await_ends(fds: Iterable[int], seconds: float | None) -> bool:
    """Wait until all processes have ended, by their pidfds; False: some run after so many seconds.

    The time in which this process is stopped (SIGSTOP, a debugger) does not count.
    """
    grace = Grace()
    if seconds is not None:
        grace.limit(seconds)
    return grace.await_ends(fds)


class Grace:
    """The time in which workers may finish their last samples; any thread may shorten it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fd = -1
        self._left_s = math.inf
        self._asked: collections.deque[float] = collections.deque()

    def open(self) -> None:
        """Begin anew; from now on a wait notices at once that the time was shortened.

        Raises:
            OSError: the system refuses a descriptor.
        """
        self.close()
        self._left_s = math.inf
        self._asked.clear()
        self._fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def close(self) -> None:
        """Close the descriptor. Idempotent."""
        with self._lock:
            fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def limit(self, seconds: float) -> None:
        """Allow so many seconds from now at most."""
        self._asked.append(seconds)
        with self._lock:
            if self._fd >= 0:
                os.eventfd_write(self._fd, 1)

    @property
    def left_s(self) -> float:
        """How many seconds are left; asked by the one thread that waits."""
        while self._asked:
            self._left_s = min(self._left_s, self._asked.popleft())
        return self._left_s

    def spend(self, seconds: float) -> None:
        """Count time that has passed."""
        self._left_s -= seconds

    def await_ends(self, fds: Iterable[int]) -> bool:
        """Wait until all processes have ended, by their pidfds; False: the time is over."""
        poll = select.poll()
        running = set(fds)
        for fd in running:
            poll.register(fd, select.POLLIN)
        if self._fd >= 0:
            poll.register(self._fd, select.POLLIN)
        while running:
            step_s = max(0.0, min(self.left_s, _STEP_S))
            began = time.monotonic()
            ready = poll.poll(math.ceil(step_s * 1000))
            self.spend(min(time.monotonic() - began, step_s))
            for fd, _ in ready:
                if fd == self._fd:
                    os.eventfd_read(fd)
                else:
                    poll.unregister(fd)
                    running.discard(fd)
            if not ready and self.left_s <= 0.0:
                return False
        return True
