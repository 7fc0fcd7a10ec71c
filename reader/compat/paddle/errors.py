"""The exceptions of this face that Paddle raises as `assert`.

Imports `reader.errors`. A program that catches Paddle's AssertionError catches these, and so does
one that catches the engine's own ConfigError; unlike an `assert`, they are raised under `python
-O` too.
"""

from __future__ import annotations

from reader.errors import ConfigError

__all__ = ["ArgumentError"]


class ArgumentError(ConfigError, AssertionError):
    """An argument that cannot work, of a kind that Paddle refuses with AssertionError."""
