"""Ragged fields: samples of different lengths as one tensor with its level of detail (LoD).

Imports LoDTensor. Called in a `collate_fn`, in any process; keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reader._core.batch.tensor import LoDTensor
from reader.errors import CollateError, ConfigError, got, shown

__all__ = ["RaggedFields", "concat_ragged"]


def concat_ragged(samples: Sequence[Any]) -> LoDTensor:
    """Return the rows of all samples, one after the other, with the offsets of each sample.

    The LoD travels with the batch: with framework="numpy" the leaf is a LoDTensor, and with
    "paddle" in static mode a DenseTensor with that LoD. The bytes are copied here once, and once
    more on their way to the trainer.

    Args:
        samples: arrays or tensors, one at least, with the same dtype and the same shape except for
            the first dimension, which may differ and may be 0.

    Raises:
        CollateError: there are no samples, or two differ; the text names both.

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


class RaggedFields:
    """Collate samples of several fields: concatenate the ragged ones, stack the others.

    Pass an instance as `collate_fn=`. Samples are dicts, whose keys `fields` names, or tuples and
    lists, whose positions it names. The batch is a dict or a list.

    Args:
        fields: keys or positions of the ragged fields, one at least; they become LoDTensors.

    Raises, when called:
        CollateError: a sample lacks a field, or samples do not fit together.

    >>> import numpy as np
    >>> words, labels = RaggedFields(0)([(np.zeros(2), 1), (np.ones(3), 0)])
    >>> words.lod, labels
    ([[0, 2, 5]], array([1, 0]))
    """

    def __init__(self, *fields: str | int) -> None:
        if not fields:
            raise ConfigError("RaggedFields needs the keys or places of ragged fields, got none")
        self.fields = fields

    def __call__(self, samples: Sequence[Any]) -> Any:
        """Return the batch of one or more samples."""
        if not samples:
            raise CollateError("cannot make a batch of no samples; leave empty batches out")
        first = samples[0]
        if isinstance(first, Mapping):
            keys: list[Any] = list(first)
        elif isinstance(first, (tuple, list)):
            keys = list(range(len(first)))
        else:
            raise CollateError(
                f"RaggedFields takes samples that are dicts, tuples or lists, got {got(first)}; for"
                " samples of one field pass collate_fn=reader.concat_ragged"
            )
        for row, sample in enumerate(samples):
            if len(sample) != len(keys):
                raise CollateError(
                    f"sample {row} has {len(sample)} fields and sample 0 has {len(keys)}; give all"
                    " samples the same fields"
                )
        missing = [field for field in self.fields if field not in keys]
        if missing:
            raise CollateError(
                f"RaggedFields has the fields {missing}, which the samples lack: their fields are"
                f" {keys}. Pass the keys or positions of existing fields"
            )
        made = {key: self._field(key, [sample[key] for sample in samples]) for key in keys}
        return made if isinstance(first, Mapping) else list(made.values())

    def _field(self, key: Any, values: list[Any]) -> Any:
        if key in self.fields:
            return concat_ragged(values)
        if isinstance(values[0], (str, bytes)) or values[0] is None:
            return values
        try:
            return np.stack([np.asarray(value) for value in values])
        except ValueError as error:
            shapes = sorted({np.shape(value) for value in values})
            raise CollateError(
                f"field {key!r} cannot be stacked: {error}; its samples have the shapes {shapes}."
                f" Pad them, or name it too: RaggedFields({key!r}, ...)"
            ) from error
