"""Batches as torch tensors on the arena's memory.

Imports torch and LoDTensorArray. A field whose type torch lacks (strings, dates, records) stays a
NumPy array. Each Schema keeps the functions that make its fields.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from reader._core.batch.dtype import EXTENDED, FieldType
from reader._core.batch.tensor import Origin
from reader._core.batch.tensor_array import LoDTensorArray

__all__ = [
    "field_dtype",
    "leaf_maker",
    "tensor_of",
    "to_pinned_torch",
    "to_torch",
    "to_torch_as_sent",
]

_from_numpy = torch.from_numpy
_EXTENDED: dict[str, Any] = {
    name: getattr(torch, name) for name in EXTENDED if hasattr(torch, name)
}


def tensor_of(array: Any, name: str | None) -> Any:
    """Return a torch.Tensor on the memory of an array.

    Args:
        array: of a type that torch has; unsigned integers for an extended type.
        name: of the extended type, such as "bfloat16", or None.
    """
    return _from_numpy(array) if name is None else _from_numpy(array).view(_EXTENDED[name])


def to_torch(batch: LoDTensorArray) -> Any:
    """Return the batch with torch.Tensor leaves that share its memory."""
    return batch.adapted(_makers(batch, False))


def to_torch_as_sent(batch: LoDTensorArray) -> Any:
    """As `to_torch`, but fields that the worker sent as NumPy arrays stay such."""
    return batch.adapted(_makers(batch, True))


def to_pinned_torch(keeps_arrays: bool, batch: LoDTensorArray) -> Any:
    """As `to_torch` or `to_torch_as_sent`, but copied into torch's page-locked memory."""
    makers = _makers(batch, keeps_arrays)
    return batch.adapted([functools.partial(_pinned, make) for make in makers])


def _pinned(make: Callable[[Any], Any], field: Any) -> Any:
    made = make(field)
    return made.pin_memory() if isinstance(made, torch.Tensor) else np.array(made)


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
        return _same if _torch_type(its_type.storage) is None else _from_numpy
    if its_type.name in _EXTENDED:
        return functools.partial(tensor_of, name=its_type.name)
    return lambda field: field.view(its_type.numpy_dtype())


def _same(field: Any) -> Any:
    return field


@functools.cache
def _torch_type(dtype: Any) -> Any:
    """Return torch's element type for one of NumPy's, or None."""
    try:
        return _from_numpy(np.empty(0, dtype)).dtype
    except TypeError:
        return None


def field_dtype(its_type: FieldType) -> Any:
    """Return torch's element type of a field; None: torch lacks it; the field stays an array."""
    if its_type.extended:
        return _EXTENDED.get(its_type.name)
    return _torch_type(its_type.storage)
