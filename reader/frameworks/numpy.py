"""Batches as NumPy arrays: writable views of the arena.

Imports LoDTensorArray and FieldType. The arrays belong to the user.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reader._core.batch.dtype import FieldType
from reader._core.batch.tensor_array import LoDTensorArray

__all__ = ["leaf_view", "to_numpy"]


def to_numpy(batch: LoDTensorArray) -> Any:
    """Return the batch with numpy.ndarray leaves. bfloat16 and float8 need ml_dtypes."""
    return batch.place_fields(batch.numpy_fields())


def leaf_view(its_type: FieldType) -> Callable[[Any], Any] | None:
    """Return the function that makes a leaf of stored bytes; None: they are the leaf."""
    if not its_type.extended:
        return None
    return lambda field: field.view(its_type.numpy_dtype())
