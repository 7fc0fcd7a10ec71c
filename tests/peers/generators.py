"""The generator loaders of Paddle or of ours, by the name that a program's import was changed to.

Imports the one it is asked for. Holds nothing.
"""

from __future__ import annotations

import importlib
from typing import Any

PADDLE = "paddle" + ".io"  # in two parts: the harness changes that name in programs


def load(name: str) -> tuple[Any, Any]:
    """Return (DataLoader with from_generator and from_dataset, PyReader) of a library."""
    if name == PADDLE:
        from paddle.base import reader

        return reader.DataLoader, reader.PyReader
    from reader.compat.paddle import py_reader

    return importlib.import_module(name).DataLoader, py_reader.PyReader


def plain(value: Any) -> Any:
    """Describe a batch, for comparing; Paddle does not promise the order of a dict's keys."""
    import numpy as np

    if isinstance(value, dict):
        return {name: plain(value[name]) for name in sorted(value)}
    if isinstance(value, (list, tuple)):
        return [type(value).__name__, [plain(child) for child in value]]
    array = np.array(value)
    kind = type(value).__name__
    lod = value.lod() if kind == "DenseTensor" else []
    return [kind, str(array.dtype), list(array.shape), array.tolist(), lod]
