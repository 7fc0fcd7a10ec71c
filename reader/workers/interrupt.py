"""Hold Ctrl-C back while processes are started.

Imports the standard library alone. Replaces the SIGINT handler in the main thread while a `with`
block runs, and then restores it.
"""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

__all__ = ["interrupt_after"]


@contextlib.contextmanager
def interrupt_after() -> Iterator[None]:
    """Hold Ctrl-C back until the block is done.

    Python handles a signal that arrives during a fork in the first Python code after it, which is a
    callback of `os.register_at_fork`, and drops what those raise. A signal may also arrive after a
    process has started and before the pool has noted that it must end it.

    Does nothing outside the main thread: handlers do not run there.
    """
    handler = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(handler):
        yield
        return
    came: list[tuple[int, FrameType | None]] = []
    signal.signal(signal.SIGINT, lambda number, frame: came.append((number, frame)))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, handler)
        if came:
            handler(*came[0])
