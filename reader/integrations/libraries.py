"""The error for a library that is not installed.

Imports the errors alone and keeps no state.
"""

from __future__ import annotations

from reader.errors import ConfigError

__all__ = ["missing"]


def missing(module: str, package: str, extra: str | None = None) -> ConfigError:
    """Return the error for a module of this room whose library cannot be imported.

    Args:
        module: the last name of a module of `reader.integrations`.
        package: pip's name of the library.
        extra: the extra of this package that installs it; None: none does.
    """
    needed = package if extra is None else f'"lodreader[{extra}]"'
    return ConfigError(
        f"reader.integrations.{module} needs {package}, which cannot be imported here:"
        f" pip install {needed}"
    )
