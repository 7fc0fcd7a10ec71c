"""What trainer and workers must have in common: the version of this package, and of Python.

Imports the version. Asked on either side, and compared by the worker.
"""

from __future__ import annotations

import sys

from reader import _version

__all__ = ["PYTHON", "release"]

PYTHON = ".".join(map(str, sys.version_info[:2]))


def release() -> str:
    """Return both, as a sentence has them."""
    return f"lodreader {_version.__version__} under Python {PYTHON}"
