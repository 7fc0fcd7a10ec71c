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

__all__ = ["SIGNAL", "LoaderEnded", "interrupt_when"]

SIGNAL = signal.SIGRTMIN + 10  # which no library is known to use


class LoaderEnded(SystemExit):
    """Raised in a sample that a worker process is at when its loader has ended.

    `except Exception` lets it pass. Nobody is told of it.
    """


def interrupt_when(is_due: Callable[[], bool]) -> None:
    """Raise LoaderEnded in this thread when the signal comes, where `is_due` returns True then."""

    def interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if is_due():
            sys.unraisablehook = _tell_others
            raise LoaderEnded("the loader has ended, and with it this worker")

    signal.signal(SIGNAL, interrupt)


def _tell_others(unraisable: Any) -> None:
    """Print what was raised where nothing can be, in a `__del__` say, but not this."""
    if not issubclass(unraisable.exc_type, LoaderEnded):
        sys.__unraisablehook__(unraisable)
