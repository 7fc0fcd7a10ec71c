"""Warn, once, that Accelerate makes a loader of PyTorch's in the place of one of ours.

Imports the standard library alone. Accelerate reads a loader's attributes and passes them to the
class that it imported; the loader gets no other sign of it.
"""

from __future__ import annotations

import sys
import warnings
from typing import Any

__all__ = ["warn_if_replaced"]

_MODULE = "accelerate.data_loader"
_said: set[str] = set()


def warn_if_replaced(loader: Any, own: Any) -> None:
    """Warn if Accelerate reads `loader`, an instance of `own`, to make a loader of another class.

    Called when an attribute is read that Accelerate reads for this purpose alone. While installed,
    PyTorch's class makes loaders of ours, and there is no warning.
    """
    reader = sys._getframe(2).f_globals
    if reader.get("__name__") != _MODULE or _said:
        return
    made = reader.get("DataLoader")
    if made is None or issubclass(made, own) or hasattr(made.__init__, "is_of_reader"):
        return
    _said.add(_MODULE)
    level = 3
    while str(_name_at(level)).startswith("accelerate"):
        level += 1
    warnings.warn(
        f"Accelerate replaces this {type(loader).__name__} of reader with a loader of PyTorch with"
        " the same arguments. To keep reader, call reader.compat.torch.install() before"
        " Accelerate prepares the loader",
        stacklevel=level,
    )


def _name_at(level: int) -> Any:
    """Return the module of the code that `stacklevel=level` names in our caller's warning."""
    try:
        return sys._getframe(level).f_globals.get("__name__")
    except ValueError:
        return None
