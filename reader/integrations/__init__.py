"""What other programs show of a loader: dashboards, training libraries, progress bars, profilers.

Each module is named after the library that it serves, imports that library, and is imported by
nothing else of this package: import the one that you use. Imports the engine's faces and
`reader.observe`; reads counters that are kept anyway, and starts no thread.
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
        """Import a module when it is first asked for. Raises what its import raises."""
        if name in _MODULES:
            return importlib.import_module(f"{__name__}.{name}")
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
