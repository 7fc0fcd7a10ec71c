"""The exceptions of this face: Gluon's types beside the engine's.

Imports `reader.errors`. `ArgumentError` stands where Gluon has an `assert`. No state here.
"""

from __future__ import annotations

from reader.errors import ConfigError

__all__ = ["ArgumentError"]


class ArgumentError(ConfigError, AssertionError):
    """An argument that cannot work, which Gluon refuses with AssertionError."""
