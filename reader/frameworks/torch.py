"""Batches as torch tensors on the arena's memory.

Imports torch and LoDTensorArray. A field whose type torch lacks (strings, dates, records) stays a
NumPy array.
"""

from __future__ import annotations

from typing import Any

import torch

from reader._core.tensor_array import LoDTensorArray
from reader.places import Place

__all__ = ["to_torch"]

_from_numpy = torch.from_numpy
_EXTENDED: dict[str, Any] = {
    name: getattr(torch, name)
    for name in (
        "bfloat16",
        "float8_e4m3fn",
        "float8_e4m3fnuz",
        "float8_e5m2",
        "float8_e5m2fnuz",
        "float8_e8m0fnu",
    )
    if hasattr(torch, name)
}


def _has_torch_type(dtype: Any) -> bool:
    import numpy as np

    try:
        _from_numpy(np.empty(0, dtype))
    except TypeError:
        return False
    return True


_known: dict[str, bool] = {}  # name of an element type -> whether torch has it


def missing_device(place: Place) -> str:
    """Say why batches cannot go to a place that is not the CPU."""
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device for {str(place)!r} here"
    return f"copies to {str(place)!r} are not made by the loader yet"


def to_torch(batch: LoDTensorArray) -> Any:
    """Return the batch with torch.Tensor leaves that share its memory."""
    fields: list[Any] = batch.storage_fields()
    for place, its_type in enumerate(batch.types):
        name = its_type.name
        if its_type.extended:
            if name in _EXTENDED:
                fields[place] = _from_numpy(fields[place]).view(_EXTENDED[name])
            else:
                fields[place] = fields[place].view(its_type.numpy_dtype())
            continue
        known = _known.get(name)
        if known is None:
            known = _known[name] = _has_torch_type(its_type.storage)
        if known:
            fields[place] = _from_numpy(fields[place])
    return batch.place_fields(fields)
