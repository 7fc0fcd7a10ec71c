"""Batches as torch tensors on the arena's memory.

Imports torch and LoDTensorArray. A field whose type torch lacks (strings, dates, records) stays a
NumPy array. The functions that make the fields are found once per Schema, and kept in it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from reader._core.dtype import EXTENDED, FieldType
from reader._core.tensor import Origin
from reader._core.tensor_array import LoDTensorArray
from reader.errors import InternalError
from reader.places import Place

__all__ = ["leaf_maker", "make_torch_adapter", "tensor_of", "to_torch", "to_torch_as_sent"]

_from_numpy = torch.from_numpy
_EXTENDED: dict[str, Any] = {
    name: getattr(torch, name) for name in EXTENDED if hasattr(torch, name)
}


def missing_device(place: Place) -> str:
    """Say why batches cannot go to a place that is not the CPU."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device for {str(place)!r} here"
    return f"copies to {str(place)!r} are not made by the loader yet"


def make_torch_adapter(place: Place) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes the batch of a place, which must be the CPU."""
    if place.kind != "cpu":
        raise InternalError(f"an adapter for {place} was asked for, which check_places refuses")
    return to_torch


def tensor_of(array: Any, name: str | None) -> Any:
    """Return a torch.Tensor on the memory of an array.

    Args:
        array: of a type that torch has; of unsigned integers for an extended type.
        name: of the extended type, such as "bfloat16", or None.
    """
    return _from_numpy(array) if name is None else _from_numpy(array).view(_EXTENDED[name])


def to_torch(batch: LoDTensorArray) -> Any:
    """Return the batch with torch.Tensor leaves that share its memory."""
    return batch.adapted(_makers(batch, False))


def to_torch_as_sent(batch: LoDTensorArray) -> Any:
    """As `to_torch`, but what the worker sent as a NumPy array stays one."""
    return batch.adapted(_makers(batch, True))


def _makers(batch: LoDTensorArray, keeps_arrays: bool) -> list[Callable[[Any], Any]]:
    schema = batch.schema
    makers: list[Any] | None = None if schema is None else schema.adapted
    if makers is None:
        origins = None if schema is None or not keeps_arrays else schema.origins
        makers = [
            _same if origins and origins[place] == Origin.ORIGIN_ARRAY else leaf_maker(its_type)
            for place, its_type in enumerate(batch.types)
        ]
        if schema is not None:
            schema.adapted = makers
    return makers


def leaf_maker(its_type: FieldType) -> Callable[[Any], Any]:
    """Return the function that makes a leaf from a field's bytes."""
    if not its_type.extended:
        return _from_numpy if _has_torch_type(its_type.storage) else _same
    if its_type.name in _EXTENDED:
        return functools.partial(tensor_of, name=its_type.name)
    return lambda field: field.view(its_type.numpy_dtype())


def _same(field: Any) -> Any:
    return field


def _has_torch_type(dtype: Any) -> bool:
    try:
        _from_numpy(np.empty(0, dtype))
    except TypeError:
        return False
    return True
