"""Batches as arrays of MXNet, views of the arena if MXNet allows it.

Imports mxnet and LoDTensor. MXNet takes memory by DLPack. It has fewer element types than NumPy,
and no 0-d and no empty arrays: those stay NumPy arrays.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import mxnet as mx
import numpy as np
import numpy.typing as npt

from reader._core.batch.dtype import FieldType
from reader._core.batch.tensor import LoDTensor, Origin
from reader._core.batch.tensor_array import LoDTensorArray

__all__ = ["nd_of", "to_mxnet"]

_TYPES = frozenset(np.dtype(kind) for kind in ("i1", "u1", "i4", "i8", "f2", "f4", "f8"))
_BOOL = np.dtype(bool)


def nd_of(array: npt.NDArray[Any]) -> Any:
    """Return an mx.nd.NDArray on the memory of an array, or the array if MXNet has no such type.

    After `mx.npx.set_np()` it is an mx.np.ndarray, as everywhere in MXNet.
    """
    if array.dtype in _TYPES and array.size and array.ndim:
        made = mx.nd.from_dlpack(LoDTensor(array).__dlpack__())
    elif array.dtype == _BOOL and array.size and array.ndim:  # DLPack lacks it here
        made = mx.nd.from_numpy(np.ascontiguousarray(array))
    else:
        return array
    return made.as_np_ndarray() if mx.util.is_np_array() else made


def to_mxnet(keeps_arrays: bool, pin_device_id: int | None, batch: LoDTensorArray) -> Any:
    """Return the batch with mx.nd.NDArray leaves.

    Args:
        keeps_arrays: what the worker sent as a NumPy array stays one.
        pin_device_id: copy the arrays into memory that is page-locked for this device; None: leave
            them in the arena.
        batch: of a worker.
    """
    schema = batch.schema
    makers: list[Any] | None = None if schema is None else schema.adapted
    if makers is None:
        origins = None if schema is None or not keeps_arrays else schema.origins
        make: Callable[[Any], Any] = nd_of
        if pin_device_id is not None:
            make = functools.partial(_pinned, mx.Context("cpu_pinned", pin_device_id))
        makers = [
            _leaf_maker(its_type)
            if its_type.extended or (origins and origins[place] == Origin.ORIGIN_ARRAY)
            else make
            for place, its_type in enumerate(batch.types)
        ]
        if schema is not None:
            schema.adapted = makers
    return batch.adapted(makers)


def _pinned(context: Any, array: npt.NDArray[Any]) -> Any:
    made = nd_of(array)
    return made if made is array else made.as_in_context(context)


def _leaf_maker(its_type: FieldType) -> Callable[[Any], Any]:
    if not its_type.extended:
        return _same
    return lambda field: field.view(its_type.numpy_dtype())


def _same(array: Any) -> Any:
    return array
