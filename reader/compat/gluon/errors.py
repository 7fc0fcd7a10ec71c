"""The exceptions of this face, with Gluon's types and texts.

Imports `reader.errors` and the standard library. A program that catches Gluon's exceptions catches
these, and so does one that catches the engine's.
"""

from __future__ import annotations

import multiprocessing
from typing import Any

from reader.errors import ConfigError, LoadTimeout

__all__ = ["ArgumentError", "TimedOut", "timed_out"]


class ArgumentError(ConfigError, AssertionError):
    """An argument that Gluon refuses with `assert`."""


class TimedOut(LoadTimeout, multiprocessing.TimeoutError):
    """A batch did not arrive within `timeout`; the next call waits for it again."""


def timed_out(error: LoadTimeout, timeout: Any, uses_processes: bool) -> TimedOut:
    """Return the error for a late batch, with what Gluon prints."""
    text = (
        f"Worker timed out after {timeout} seconds. This might be caused by\n- Slow transform."
        " Please increase timeout to allow slower data loading in each worker."
    )
    if uses_processes:
        text += (
            "\n- Insufficient shared_memory if `timeout` is large enough.\nPlease consider reduce"
            " `num_workers` or increase shared_memory in system."
        )
    return TimedOut(
        f"{text}\n{error}", timeout_s=error.timeout_s, batch=error.batch, epoch=error.epoch
    )
