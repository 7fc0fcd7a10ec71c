"""Interrupt a sample whose loader ends, by a signal from the trainer.

Imports the standard library alone. In a worker process the handler runs in the main thread, as the
user's code does, so that its `finally` blocks and contexts are run.
"""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["SIGNAL", "LoaderEnded", "begin", "interrupt_when"]

SIGNAL = signal.SIGRTMIN + 10  # no library is known to use it


class LoaderEnded(SystemExit):
    """Raised in the current sample of a worker process when its loader has ended.

    `except Exception` lets it pass. It is not reported.
    """


_has_raised = False  # in the code that runs now: the trainer sends the signal repeatedly


def interrupt_when(is_due: Callable[[], bool]) -> None:
    """Raise LoaderEnded in this thread when the signal comes, if `is_due` returns True then.

    It is raised once, so that it does not interrupt a `finally` block. The signal comes repeatedly,
    since one that comes just before a system call is handled only after it.
    """

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        global _has_raised
        if not _has_raised and is_due():
            _has_raised = True
            sys.unraisablehook = _tell_others
            raise LoaderEnded("the loader has ended, and with it this worker")

    signal.signal(SIGNAL, interrupt)


def begin() -> None:
    """Let the next signal raise again: another loader's code, or another batch, runs now."""
    global _has_raised
    _has_raised = False


def _tell_others(unraisable: Any) -> None:
    """Print exceptions that cannot propagate, as in `__del__`; raise LoaderEnded again instead."""
    if issubclass(unraisable.exc_type, LoaderEnded):
        begin()
    else:
        sys.__unraisablehook__(unraisable)
