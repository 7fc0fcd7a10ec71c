"""The arrays of a Gluon program: mx.nd arrays if mxnet is installed, otherwise NumPy arrays.

Imports `reader.frameworks.mxnet` on first use, and with it mxnet. Keeps no state.
"""

from __future__ import annotations

import functools
import importlib.util
from typing import Any

import numpy.typing as npt

__all__ = ["as_nd", "has_mxnet", "is_nd"]


@functools.cache
def has_mxnet() -> bool:
    """Whether mxnet is installed; it is not imported."""
    return importlib.util.find_spec("mxnet") is not None


def as_nd(array: npt.NDArray[Any]) -> Any:
    """Return an mx.nd.NDArray on the memory of a NumPy array, which nothing else may write to.

    Without mxnet, or if it lacks the element type, return the array itself.
    """
    if not has_mxnet():
        return array
    from reader.frameworks.mxnet import nd_of

    return nd_of(array)


def is_nd(value: Any) -> bool:
    """Whether a value is an mx.nd.NDArray; imports nothing."""
    return any(
        base.__name__ == "NDArray" and base.__module__.startswith("mxnet.")
        for base in type(value).__mro__
    )
