"""The exceptions of this face: GluonNLP's types beside the engine's own.

Imports Gluon's `ArgumentError`, which stands where GluonNLP has an `assert`, and `reader.checks`.
`as_count` raises it. Keeps no state.
"""

from __future__ import annotations

import sys
from typing import Any

from reader.checks import as_int
from reader.compat.gluon.errors import ArgumentError
from reader.errors import ConfigError

__all__ = ["ArgumentError", "MissingFieldError", "as_count"]


class MissingFieldError(ConfigError, IndexError):
    """A sample of a file has fewer fields than were asked for."""


def as_count(name: str, value: Any) -> int:
    """Return an int of 1 or more. ArgumentError: it is less. ConfigTypeError: it is no int."""
    number = as_int(name, value, low=-sys.maxsize, remedy="Pass 1 or more.")
    if number < 1:
        raise ArgumentError(f"{name} must be larger than 0, got {number}. Pass 1 or more.")
    return number
