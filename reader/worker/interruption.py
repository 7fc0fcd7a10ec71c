"""What interrupts a sample whose loader ends: a signal of the trainer's, and what that raises.

Imports the standard library alone. In a worker process the handler runs in the main thread, as the
user's code does, so that `finally` blocks and contexts of that end as they should.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["SIGNAL", "LoaderEnded", "begin", "interrupt_when"]

SIGNAL = signal.SIGRTMIN + 10  # which no library is known to use


class LoaderEnded(SystemExit):
    """Raised in a sample that a worker process is at when its loader has ended.

    `except Exception` lets it pass. Nobody is told of it.
    """


_has_raised = False  # for what runs now: the trainer sends the signal again and again


def interrupt_when(is_due: Callable[[], bool]) -> None:
    """Raise LoaderEnded in this thread when the signal comes, where `is_due` returns True then.

    It is raised once: a `finally` block that runs by then is not interrupted. The signal comes more
    often, since one that comes just before a system call is noticed only behind it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        global _has_raised
        if not _has_raised and is_due():
            _has_raised = True
            sys.unraisablehook = _tell_others
            raise LoaderEnded("the loader has ended, and with it this worker")

    signal.signal(SIGNAL, interrupt)


def begin() -> None:
    """Have the next signal raise again: code of another loader, or another batch, runs now."""
    global _has_raised
    _has_raised = False


def _tell_others(unraisable: Any) -> None:
    """Print what was raised where nothing can be, in a `__del__` say; this is raised once more."""
    if issubclass(unraisable.exc_type, LoaderEnded):
        begin()
    else:
        sys.__unraisablehook__(unraisable)
