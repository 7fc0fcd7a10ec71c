"""Ragged fields: samples of different lengths as one tensor with its level of detail.

Imports LoDTensor. To be called in a `collate_fn`, in whatever process that runs; keeps no state.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reader._core.tensor import LoDTensor
from reader.errors import CollateError, shown

__all__ = ["concat_ragged"]


def concat_ragged(samples: Sequence[Any]) -> LoDTensor:
    """Return the rows of all samples, one behind the other, with the offsets of each sample.

    The LoD travels with the batch: with framework="numpy" the leaf is a LoDTensor, and with
    "paddle" in static mode a DenseTensor with that LoD. The bytes are copied here once, and once
    more on their way to the trainer.

    Args:
        samples: arrays or tensors with the same dtype and the same shape behind the first
            dimension, which may differ and may be 0; one at least.

    Raises:
        CollateError: no samples, or samples that do not fit together; the text names two.

    >>> import numpy as np
    >>> tensor = concat_ragged([np.zeros((2, 3)), np.ones((1, 3))])
    >>> tensor.shape, tensor.lod
    ((3, 3), [[0, 2, 3]])
    """
    if not samples:
        raise CollateError("cannot concatenate no samples; leave empty batches out")
    tensors = [LoDTensor(sample) for sample in samples]
    first = tensors[0]
    for row, tensor in enumerate(tensors):
        if tensor.ndim == 0 or tensor.lod:
            raise CollateError(
                f"cannot concatenate sample {row}, {shown(samples[row])}: it has"
                f" {'a LoD of its own' if tensor.lod else 'no first dimension'}. Give each sample"
                " as an array of rows"
            )
        if (tensor.dtype, tensor.shape[1:]) != (first.dtype, first.shape[1:]):
            raise CollateError(
                f"cannot concatenate sample {row} of dtype {tensor.dtype} and shape {tensor.shape}"
                f" with sample 0 of {first.dtype} and {first.shape}: all but the first dimension"
                " must agree. Convert or pad them in the dataset"
            )
    offsets = np.cumsum([0, *(tensor.shape[0] for tensor in tensors)]).tolist()
    rows = np.concatenate([tensor.storage() for tensor in tensors])
    if first.type.extended:
        rows = rows.view(first.type.numpy_dtype())
    return LoDTensor(rows, [offsets])
