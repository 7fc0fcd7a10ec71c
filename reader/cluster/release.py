"""The versions that trainer and workers must share: of this package and of Python.

Imports the version. Both sides compute it, and the worker compares.
"""

from __future__ import annotations

import sys

from reader import _version

__all__ = ["PYTHON", "release"]

PYTHON = ".".join(map(str, sys.version_info[:2]))


def release() -> str:
    """Return both versions as a text."""
    return f"lodreader {_version.__version__} under Python {PYTHON}"
