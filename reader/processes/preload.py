"""Guess which heavy libraries workers will import, so that a template imports them once.

Imports `loop` and `main_module` alone. Keeps no state; runs in the trainer, and a wrong guess costs
time, never a result.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FunctionType, ModuleType
from typing import Any

from reader.processes.main_module import is_imported
from reader.worker.loop import WorkerConfig

__all__ = ["libraries_of"]

# They take a second or more to import, start no thread that a fork would lose, and keep no random
# state that must differ between workers.
_HEAVY = ("torch", "paddle")
_DEPTH = 4  # main -> a module of the user -> a library -> a heavy one


def libraries_of(config: WorkerConfig, pickled: bytes, named: Iterable[str] = ()) -> list[str]:
    """Return the heavy libraries that this process has and its workers will need.

    Args:
        config: the workers' config.
        pickled: the config, pickled; unpickling imports the modules that it names.
        named: modules that code in it uses.
    """
    modules = _begin(config, named)
    return [
        name
        for name in _HEAVY
        if name in sys.modules and (name.encode() in pickled or _reaches(modules, name))
    ]


def _begin(config: WorkerConfig, named: Iterable[str]) -> list[ModuleType]:
    """Return the modules a worker imports first: the main one, and those of the user's code."""
    names = ["__main__", *named]
    for part in (*config.of_user.values(), config.prepare):
        names += [getattr(part, "__module__", None) or "", type(part).__module__]
    left_out = () if is_imported() else ("__main__",)
    return [
        sys.modules[name]
        for name in names
        if isinstance(name, str) and name in sys.modules and name not in left_out
    ]


def _reaches(modules: list[ModuleType], wanted: str) -> bool:
    """Whether one of `modules`, or a module that they use, uses the library `wanted`.

    Looks only into the modules' own dicts, so that no lazy module is loaded.
    """
    seen: set[int] = set()
    for _ in range(_DEPTH):
        uses: list[ModuleType] = []
        for module in modules:
            if id(module) in seen:
                continue
            seen.add(id(module))
            for name in _used_by(module):
                top = name.partition(".")[0]
                if top == wanted:
                    return True
                if top not in sys.stdlib_module_names and name in sys.modules:
                    uses.append(sys.modules[name])
        modules = uses
    return False


def _used_by(module: ModuleType) -> set[str]:
    names: set[str] = set()
    for value in list(vars(module).values()):
        name: Any = None
        kind = type(value)  # reading an attribute of the value itself might warn
        if issubclass(kind, ModuleType):
            name = vars(value).get("__name__")
        elif kind is FunctionType or kind is type:
            name = value.__module__
        if isinstance(name, str):
            names.add(name)
    return names
