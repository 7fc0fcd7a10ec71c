"""Arrays of MXNet on the memory of NumPy arrays, and back.

Imports mxnet. MXNet shares memory by DLPack; it has fewer element types than NumPy.
"""

from __future__ import annotations

from typing import Any

import mxnet as mx
import numpy.typing as npt

__all__ = ["nd_of"]

_TYPES = frozenset("?bBilefd")  # of NumPy, that MXNet has


def nd_of(array: npt.NDArray[Any]) -> Any:
    """Return an mx.nd.NDArray on the memory of an array; the array, if MXNet lacks its type.

    MXNet copies what is not in C order, and what has no elements.
    """
    if array.dtype.char not in _TYPES:
        return array
    if not array.size or not array.flags.c_contiguous:
        return mx.nd.array(array, dtype=array.dtype)
    return mx.nd.from_numpy(array, zero_copy=True)
