"""The trainer's main module in workers: imported, or sent by value.

Imports cloudpickle. Under spawn and forkserver a worker imports the main module if that is a file.
In a notebook, at the prompt, from stdin and with `python -c` it cannot: then the pickle has the
code of classes and functions of `__main__`, and a worker enters them in its own `__main__`. Objects
that it sends back name `__main__.Name` as usual, and the trainer finds its own class.
"""

from __future__ import annotations

import enum
import functools
import pickle
import sys
from collections.abc import Callable
from multiprocessing import process
from pathlib import Path
from types import FunctionType, ModuleType, SimpleNamespace
from typing import Any

import cloudpickle

__all__ = ["ByReference", "ByValue", "NeedsMain", "has_lost_file", "is_imported"]


_Cached: Any = type(functools.lru_cache(bool))  # pickle finds one only by its name


class NeedsMain(Exception):
    """A value refers to the main module, which workers cannot import."""


def is_imported() -> bool:
    """Whether workers import this process's main module under multiprocessing's rules."""
    name, path = _origin()
    if name is not None:  # the main module of a package, folder or archive is never imported
        return name != "__main__" and not name.endswith(".__main__")
    return path is not None and path.exists()


def has_lost_file() -> bool:
    """Whether the main module names a file that does not exist, such as <stdin>.

    A process that multiprocessing spawns would fail to import it.
    """
    name, path = _origin()
    return name is None and path is not None and not path.exists()


def _origin() -> tuple[str | None, Path | None]:
    """Return the name and the file by which multiprocessing imports it in a process, if any."""
    main = sys.modules.get("__main__")
    name = getattr(getattr(main, "__spec__", None), "name", None)
    path = getattr(main, "__file__", None)
    if not isinstance(path, str):
        return name, None
    folder: str | None = getattr(process, "ORIGINAL_DIR", None)
    return name, Path(folder or "", path)


class ByReference(pickle.Pickler):
    """Pickles as pickle does, but refuses values that it would name as `__main__.Name`."""

    def reducer_override(self, value: Any) -> Any:
        """Refuse classes and functions of the main module.

        Raises:
            NeedsMain: at the first one.
        """
        if isinstance(value, (type, FunctionType, _Cached)) and value.__module__ == "__main__":
            raise NeedsMain(value.__qualname__)
        return NotImplemented


class ByValue(cloudpickle.Pickler):  # type: ignore[misc]
    """Pickles classes and functions of the main module with their code.

    Attributes:
        with_code: functions and classes that are pickled with their code, in the order of their
            beginnings.
        modules: names of modules that the pickle refers to.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.with_code: list[FunctionType | type] = []
        self.modules: set[str] = set()

    def reducer_override(self, value: Any) -> Any:
        """Make the worker enter the unpickled value in its `__main__`, under the same name."""
        reduced = super().reducer_override(value)
        if isinstance(value, _Cached) and value.__module__ == "__main__":  # else found by name
            arguments = (value.cache_parameters(),)
            return _make_cached, arguments, value.__wrapped__, None, None, _set_cached
        if type(value) is functools.cached_property:  # has a lock before Python 3.12
            return _make_cached_property, (value.func, value.attrname)
        if isinstance(value, ModuleType):
            self.modules.add(value.__name__)
        elif isinstance(value, (type, FunctionType)):
            if reduced is NotImplemented:
                self.modules.add(str(value.__module__))
                return reduced
            if len(reduced) < 6:  # a type of Python's own
                return reduced
            self.with_code.append(value)
            if isinstance(value, type):
                _keep_slots(value, reduced[1])
            make, arguments, *rest = reduced
            return _make, (value.__qualname__, _is_named(value), make, arguments), *rest
        return reduced


def _keep_slots(cls: type, arguments: tuple[Any, ...]) -> None:
    """Make a class with its `__slots__`; cloudpickle sets them later, without effect.

    Instances without slots would come back with a state that the trainer's class refuses.
    """
    slots = vars(cls).get("__slots__")
    if slots is not None and not issubclass(cls, (enum.Enum, tuple)):
        for body in arguments:
            if isinstance(body, dict):  # the initial body of the class
                body.setdefault("__slots__", slots)
                return


def _make_cached(parameters: dict[str, Any]) -> Any:
    """Make a cache in a worker before its function exists: a recursive function refers to it."""
    function: list[Callable[..., Any]] = []

    def call(*args: Any, **kwargs: Any) -> Any:
        return function[0](*args, **kwargs)

    made: Any = functools.lru_cache(**parameters)(call)
    made._function = function
    return made


def _set_cached(made: Any, function: Callable[..., Any]) -> None:
    made._function.append(function)
    functools.update_wrapper(made, function)


def _make_cached_property(function: Callable[[Any], Any], name: str | None) -> Any:
    made = functools.cached_property(function)
    made.attrname = name
    return made


def _is_named(value: Any) -> bool:
    """Whether the main module has `value` under its name: it is the newest of that name."""
    if value.__module__ != "__main__" or "<locals>" in value.__qualname__:
        return False
    if isinstance(value, FunctionType) and "." in value.__qualname__:
        return False  # a method comes with its class
    found: Any = sys.modules.get("__main__")
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


def _make(
    qualname: str, is_named: bool, make: Callable[..., Any], arguments: tuple[Any, ...]
) -> Any:
    """Make a class or function in a worker, and enter it in `__main__` as in the trainer."""
    made = make(*arguments)
    made.__qualname__ = qualname  # cloudpickle omits the enclosing classes
    if is_named:
        place: Any = sys.modules["__main__"]
        *outer, name = qualname.split(".")
        for each in outer:
            if not hasattr(place, each):  # the enclosing class is not pickled, or comes later
                setattr(place, each, SimpleNamespace())
            place = getattr(place, each)
        if not isinstance(place, type) or name in vars(place):  # otherwise its class brings it
            setattr(place, name, made)
    return made
