"""Thin faces over the loader for users of other libraries; each maps arguments and promises.

This package may import every package before it. A face is imported when it is first asked for, and
with it its library.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from reader.compat import gluon as gluon
    from reader.compat import paddle as paddle
    from reader.compat import torch as torch
else:

    def __getattr__(name):
        """Import a face when it is first asked for. Raises what its import raises."""
        if name in ("gluon", "paddle", "torch"):
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
