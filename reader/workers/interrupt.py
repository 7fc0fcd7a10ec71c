"""Ctrl-C while processes are started: it comes after, whole.

Imports the standard library alone. Touches the handler of SIGINT of the main thread for as long as
a `with` block runs, and puts it back.
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

    A signal that arrives during a fork is handled in the first Python code behind it, which is a
    callback of `os.register_at_fork`, and Python drops what those raise. It could also come between
    the start of a process and the note that it must be ended.

    In other threads than the main one nothing is done: handlers do not run there.
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
