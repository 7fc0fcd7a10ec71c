"""Batches as NumPy arrays: writable views of the arena.

Imports LoDTensorArray alone. The arrays belong to the user.
"""

from __future__ import annotations

from typing import Any

from reader._core.tensor_array import LoDTensorArray

__all__ = ["to_numpy"]


def to_numpy(batch: LoDTensorArray) -> Any:
    """Return the batch with numpy.ndarray leaves. bfloat16 and float8 need ml_dtypes."""
    return batch.place_fields(batch.numpy_fields())
