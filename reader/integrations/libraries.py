"""The error for a library that is not installed.

Imports the errors alone and keeps no state.
"""

from __future__ import annotations

from reader.errors import ConfigError

__all__ = ["missing"]


def missing(module: str, package: str, extra: str | None = None) -> ConfigError:
    """Return the error for a module of this room whose library cannot be imported.

    Args:
        module: of `reader.integrations`, by its last name.
        package: what pip calls the library.
        extra: of this package, that brings it; None: no extra does.
    """
    needed = package if extra is None else f'"lodreader[{extra}]"'
    return ConfigError(
        f"reader.integrations.{module} needs {package}, which cannot be imported here:"
        f" pip install {needed}"
    )
