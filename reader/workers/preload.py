"""Which heavy libraries the workers of a config will import anyway, so that a template may do so.

Imports nothing of the project but the config's shape. Keeps no state; runs in the trainer, and a
wrong guess costs time, never a result.
"""

from __future__ import annotations

import sys
from types import FunctionType, ModuleType
from typing import Any

from reader.workers.loop import WorkerConfig

__all__ = ["libraries_of"]

# They take a second or more, start no thread that a fork would miss, and begin the same in each
# process: none keeps a random state of its own that each worker must have another of.
_HEAVY = ("torch", "paddle")
_DEPTH = 4  # main -> a module of the user -> a library -> a heavy one


def libraries_of(config: WorkerConfig, packed: bytes) -> list[str]:
    """Return the heavy libraries that this process has and its workers will need.

    Args:
        config: what the workers are given.
        packed: the same, pickled; what it names is imported to unpickle it.
    """
    modules = _begin(config)
    return [
        name
        for name in _HEAVY
        if name in sys.modules and (name.encode() in packed or _reaches(modules, name))
    ]


def _begin(config: WorkerConfig) -> list[ModuleType]:
    """The modules that a worker imports first: the main one, and those of the user's code."""
    names = ["__main__"]
    for part in (config.dataset, config.collate_fn, config.worker_init_fn, config.prepare):
        names += [getattr(part, "__module__", None) or "", type(part).__module__]
    return [sys.modules[name] for name in names if isinstance(name, str) and name in sys.modules]


def _reaches(modules: list[ModuleType], wanted: str) -> bool:
    """Whether one of `modules`, or one that it uses, uses the library `wanted`.

    Only what lies in the modules' own dicts is looked at: nothing lazy is woken.
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
        kind = type(value)  # asking the value itself would wake what warns of its use
        if issubclass(kind, ModuleType):
            name = vars(value).get("__name__")
        elif kind is FunctionType or kind is type:
            name = value.__module__
        if isinstance(name, str):
            names.add(name)
    return names
