"""A lock on a file, which its holder cannot keep for ever.

Imports the standard library alone. The system lets a lock go when its process ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import threading
import time
from collections.abc import Iterator

__all__ = ["locked"]

_PATIENCE_S = 5.0  # with a process that holds the lock: it takes milliseconds


@contextlib.contextmanager
def locked(fd: int) -> Iterator[None]:
    """Hold a file's lock, or go on without where it has none, or another keeps it too long."""
    is_held = _lock(fd)
    try:
        yield
    finally:
        if is_held:  # a process that was forked meanwhile would keep it
            fcntl.flock(fd, fcntl.LOCK_UN)


def _lock(fd: int) -> bool:
    """Lock a file. False: its file system has no locks, or another holds it for too long.

    Whoever goes on without it makes at worst a second file.
    """
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > end:
                return False
            threading.Event().wait(0.005)
        except OSError:
            return False
        else:
            return True
