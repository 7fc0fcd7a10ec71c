"""An extension of griffe that takes the docstrings of compiled classes from the classes themselves.

Their types stand in .pyi files, which hold no text; so the package must be built where this runs.
Imports griffe, of the environment of `make site`, and the package. Keeps no state.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any

import griffe

__all__ = ["CompiledDocstrings"]


class CompiledDocstrings(griffe.Extension):  # type: ignore[misc]
    """Give each class, method and function of a .pyi file its docstring."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Look the object up in its compiled module, if it has no docstring."""
        if obj.docstring or obj.is_module or not str(obj.filepath).endswith(".pyi"):
            return
        path = obj.path.removeprefix(f"{obj.module.path}.")
        found: Any = importlib.import_module(obj.module.path)
        for name in path.split("."):
            found = getattr(found, name, None)
        text = inspect.cleandoc(getattr(found, "__doc__", None) or "")
        if text and not obj.name.startswith("_"):
            obj.docstring = griffe.Docstring(text, parent=obj)
