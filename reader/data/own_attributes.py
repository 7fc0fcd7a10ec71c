"""Attributes of the user's objects, read without a trace.

Imports nothing of this package. Reading `__dict__` of an object, as by `vars`, would leave one:
from then on CPython 3.11 and 3.12 look up each attribute of that object in its dict, which makes a
dataset's `__getitem__` slower for good.
"""

from __future__ import annotations

from typing import Any

__all__ = ["MISSING", "own_attribute"]

MISSING: Any = object()


def own_attribute(value: Any, name: str, default: Any = None) -> Any:
    """Return an attribute that an object itself has, as its `__dict__` would; else the default.

    No code of the user runs, neither a property nor `__getattr__`: what the class has with
    `__get__` counts as the class's, also where the object has an attribute of that name.
    """
    if not type(value).__dictoffset__:
        return default  # its attributes are all of its class, as those of a list
    of_class = MISSING
    for cls in type(value).__mro__:
        if name in vars(cls):
            of_class = vars(cls)[name]
            break
    if hasattr(type(of_class), "__get__"):
        return default
    try:
        found = object.__getattribute__(value, name)
    except AttributeError:
        return default
    return default if found is of_class else found
