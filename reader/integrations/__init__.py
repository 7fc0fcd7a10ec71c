"""Show a loader in other programs: dashboards, training libraries, progress bars, profilers.

Each module is named after the library that it serves and imports. Nothing else in this package
imports it: import the one that you use. Imports the engine's faces and `reader.observe`; reads
existing counters, and starts no thread.
"""

import importlib
from typing import TYPE_CHECKING

_MODULES = (
    "lightning",
    "nvtx",
    "paddle",
    "prometheus",
    "pytorch_lightning",
    "rich",
    "scalars",
    "tensorboard",
    "tqdm",
    "transformers",
    "visualdl",
)

if not TYPE_CHECKING:

    def __getattr__(name):
        """Import a module at its first use. Passes on exceptions of the import."""
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
