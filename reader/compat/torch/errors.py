"""The exceptions of this face, with PyTorch's types and texts.

Imports `reader.errors` and the standard library. A program that catches what `torch.utils.data`
raises catches these, and so does one that catches the engine's own errors.
"""

from __future__ import annotations

import contextlib
import signal
from typing import Any

from reader.errors import ConfigError, LoadTimeout, StateError, WorkerDied
from reader.exceptions.exception_codec import add_note

__all__ = [
    "ArgumentError",
    "OtherWorkers",
    "TimedOut",
    "WorkerExit",
    "reworded",
    "timed_out",
    "worker_exit",
]


class ArgumentError(ConfigError, AssertionError):
    """An argument that PyTorch takes at first and refuses, with `assert`, when iterating."""


class OtherWorkers(StateError, AssertionError):
    """A state that only the same number of workers can resume; torchdata asserts that."""


class TimedOut(LoadTimeout, RuntimeError):
    """A batch did not arrive within `timeout`; also a RuntimeError, as PyTorch raises it."""


class WorkerExit(WorkerDied):
    """A worker process ended; a RuntimeError whose text has PyTorch's."""


def timed_out(error: LoadTimeout, timeout: Any) -> LoadTimeout:
    """Return the error for a late batch with PyTorch's text."""
    return TimedOut(
        f"DataLoader timed out after {timeout} seconds: {error}",
        timeout_s=error.timeout_s,
        batch=error.batch,
        epoch=error.epoch,
    )


def worker_exit(error: WorkerDied) -> WorkerExit:
    """Return the error for a worker's death with both of PyTorch's texts."""
    if error.exitcode is not None and error.exitcode < 0:
        words = (
            f"DataLoader worker (pid {error.pid}) is killed by signal:"
            f" {signal.strsignal(-error.exitcode)}."
        )
    else:
        code = "" if error.exitcode is None else f" with exit code {error.exitcode}"
        words = f"DataLoader worker (pid {error.pid}) exited unexpectedly{code}."
    return WorkerExit(
        f"{words} DataLoader worker (pid(s) {error.pid}) exited unexpectedly: {error}",
        pid=error.pid,
        exitcode=error.exitcode,
        signal_name=error.signal_name,
        worker_id=error.worker_id,
        batch=error.batch,
        epoch=error.epoch,
        indices=error.indices,
    )


def reworded(exc: BaseException, worker_id: int, traceback_text: str) -> BaseException:
    """Give an exception of a worker PyTorch's text; its type and attributes stay.

    The text has the worker's traceback, whose last lines are the exception's own text. It replaces
    the only argument of an exception that shows its arguments, or the field that holds the reason.
    Any other exception keeps its text and gets PyTorch's as a note.
    """
    kind = type(exc)
    if exc.args and str(exc.args[0]).startswith("Caught "):
        return exc  # a worker thread may raise one object again and again
    text = f"Caught {kind.__name__} in DataLoader worker process {worker_id}."
    text = f"{text}\nOriginal {traceback_text}"
    if isinstance(exc, OSError) and exc.errno is not None:
        exc.strerror = text
    elif isinstance(exc, (UnicodeDecodeError, UnicodeEncodeError, UnicodeTranslateError)):
        exc.reason = text
    elif isinstance(exc, (ImportError, SyntaxError)):
        exc.msg = text
    elif not _shows(exc, _Shown(text) if isinstance(exc, KeyError) else text):
        add_note(exc, text)
    return exc


def _shows(exc: BaseException, text: str) -> bool:
    """Make `text` the only argument of an exception with at most one; return if it shows."""
    args = exc.args
    if len(args) > 1 or (args and not isinstance(args[0], str) and not isinstance(exc, KeyError)):
        return False
    with contextlib.suppress(Exception):  # of the user's class
        exc.args = (text,)
        if text in str(exc):
            return True
    exc.args = args
    return False


class _Shown(str):
    """A text whose `repr` is the text itself: KeyError shows the `repr` of its argument."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)
