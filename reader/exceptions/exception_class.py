"""Inspect exception classes: their names, their layout, and where to find them again.

Imports the standard library alone. `reader.exceptions.exception_codec` uses it on unknown classes,
so each function works for any class. Nothing here keeps state.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from types import GetSetDescriptorType, MemberDescriptorType
from typing import Any, TypeVar

__all__ = [
    "FROM_USER",
    "as_exception_class",
    "attempt",
    "descriptors",
    "find_by_name",
    "find_by_walk",
    "guarded",
    "is_unset",
    "names",
    "static_base",
    "type_name",
    "user_defines",
]

T = TypeVar("T")

MAX_TEXT = 2000
_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE: set for classes of a `class` statement

# Exceptions that a call of the user's code may raise; a KeyboardInterrupt in the trainer is real.
FROM_USER = (Exception, SystemExit, GeneratorExit)


def attempt(do: Callable[..., T], *args: Any) -> T | None:
    """Return `do(*args)`, or None if it raises."""
    try:
        return do(*args)
    except FROM_USER:
        return None


def guarded(to_text: Callable[[Any], str], value: object) -> str:
    """Return `to_text(value)`, of limited length, or a placeholder if that raises; never raises."""
    try:
        return str.__str__(to_text(value))[:MAX_TEXT]
    except BaseException:
        return f"<{type_name(type(value))} object; its text could not be made>"


def type_name(cls: type) -> str:
    """Return the name of a class as tracebacks show it; never raises."""
    try:
        module, name = cls.__module__, cls.__qualname__
        return str.__str__(name if module == "builtins" else f"{module}.{name}")
    except BaseException:
        return "<a class without a name>"


def names(cls: type[BaseException]) -> list[tuple[str, str]]:
    """Return (module, qualname) of `cls` and of its bases, nearest first.

    The main module has its name in the trainer; in a spawned worker it has another.
    """
    return [_own_names(base) for base in cls.__mro__ if issubclass(base, BaseException)]


def _own_names(cls: type) -> tuple[str, str]:
    module = _text(cls.__module__)
    return "__main__" if module == "__mp_main__" else module, _text(cls.__qualname__)


def _text(name: object) -> str:
    return str.__str__(name) if isinstance(name, str) else "?"


def static_base(cls: type[BaseException]) -> type[BaseException]:
    """Return the nearest base made in C: its constructor lays out every instance of `cls`."""
    while cls.__flags__ & _HEAP_TYPE and cls.__base__ is not None:
        cls = cls.__base__
    return cls


def user_defines(cls: type[BaseException], name: str) -> bool:
    """Whether a Python class, `cls` or a base of it, defines `name`."""
    return any(name in vars(base) for base in cls.__mro__ if base.__flags__ & _HEAP_TYPE)


def descriptors(cls: type[BaseException]) -> dict[str, Any]:
    """Return the descriptors of values outside `__dict__`: fields of C bases, and `__slots__`."""
    found: dict[str, Any] = {}
    for base in cls.__mro__:
        if base is BaseException:
            break
        kinds: Any = MemberDescriptorType
        if not base.__flags__ & _HEAP_TYPE:
            kinds = (MemberDescriptorType, GetSetDescriptorType)
        for name, descriptor in vars(base).items():
            if isinstance(descriptor, kinds) and not name.startswith("__"):
                found.setdefault(name, descriptor)
    return found


def is_unset(descriptor: Any, value: object) -> bool:
    """Whether a field in C reads None because it was never set."""
    return value is None and not descriptor.__objclass__.__flags__ & _HEAP_TYPE


def find_by_name(
    module: str, qualname: str, *, may_import: bool = True
) -> type[BaseException] | None:
    """Find an exception class by its names; `may_import` allows the import of its module."""
    found: Any = sys.modules.get(module)
    if found is None and may_import:
        found = attempt(importlib.import_module, module)
    for name in qualname.split("."):
        found = None if found is None else attempt(getattr, found, name)
    return as_exception_class(found)


def find_by_walk(module: str, qualname: str, address: int) -> type[BaseException] | None:
    """Find a class of that name among all in this process.

    There may be several, if a function makes the class. The class at the worker's `address` wins (a
    forked worker shares addresses), otherwise the newest.
    """
    newest: type[BaseException] | None = None
    seen: set[type] = set()
    todo: list[type[BaseException]] = [BaseException]
    while todo:
        for cls in type.__subclasses__(todo.pop()):
            if cls in seen:
                continue
            seen.add(cls)
            todo.append(cls)
            if attempt(_own_names, cls) == (module, qualname):
                if id(cls) == address:
                    return cls
                newest = cls
    return newest


def as_exception_class(value: Any) -> type[BaseException] | None:
    """Return `value` if it is an exception class, else None."""
    return value if isinstance(value, type) and issubclass(value, BaseException) else None
