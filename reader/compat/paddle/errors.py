"""The exceptions of this face where Paddle has an `assert`.

Imports `reader.errors`. A program that catches Paddle's AssertionError catches these, and so does
one that catches the engine's own ConfigError. Unlike an `assert`, they are raised under `python -O`
too.
"""

from __future__ import annotations

from reader.errors import ConfigError

__all__ = ["ArgumentError"]


class ArgumentError(ConfigError, AssertionError):
    """An argument that cannot work, which Paddle refuses with AssertionError."""
