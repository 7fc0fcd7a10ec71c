"""Gluon's default functions that collate samples.

Imports the core and the errors. These functions run in workers. The core stacks equal-shaped
samples in place, with the same result; `GluonRules` collates the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reader._core.collate.rows import is_numeric
from reader.compat.gluon.arrays import as_nd, is_nd
from reader.errors import CollateError, got
from reader.policy import CollateRules

__all__ = ["GluonRules", "default_batchify_fn", "default_mp_batchify_fn"]


def default_batchify_fn(data: Sequence[Any]) -> Any:
    """Stack a list of samples as Gluon 1.x does; the first sample decides.

    Arrays are stacked. Tuples give a list with a batch for each field. Anything else, lists too,
    becomes one array by `np.asarray`. Beyond Gluon, dicts become a dict of batches, and strings
    stay a list.

    Raises:
        CollateError: the samples make no array.
    """
    return _leaves(_collated(data))


default_mp_batchify_fn = default_batchify_fn  # the loader handles shared memory


class GluonRules(CollateRules):
    """See `reader.policy.CollateRules`.

    Args:
        has_origins: whether a batchify function makes the batch: then its NumPy arrays arrive as
            such, not as mx.nd.NDArray.
    """

    def __init__(self, has_origins: bool) -> None:
        self.has_origins = has_origins

    def can_stack(self, sample: Any) -> bool:
        """Whether the core makes the same batch in place."""
        if isinstance(sample, tuple):
            return all(self.can_stack(field) for field in sample)
        if isinstance(sample, Mapping):
            return all(self.can_stack(sample[key]) for key in sample)
        if isinstance(sample, list):
            return False  # it is data
        return is_numeric(sample) or isinstance(sample, (str, bytes))

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of samples that are not alike, of NumPy arrays."""
        return _collated(samples)


def _collated(data: Sequence[Any]) -> Any:
    if not len(data):
        raise CollateError("cannot make a batch of no samples; leave empty batches out")
    first = data[0]
    if isinstance(first, tuple):
        for row, sample in enumerate(data):
            if not isinstance(sample, tuple) or len(sample) != len(first):
                raise CollateError(
                    f"sample {row} of the batch must have the {len(first)} fields of sample 0, got"
                    f" {got(sample)}. Make them alike, or pass a batchify_fn"
                )
        return [_collated([sample[place] for sample in data]) for place in range(len(first))]
    if isinstance(first, Mapping):
        for row, sample in enumerate(data):
            if not isinstance(sample, Mapping) or sample.keys() != first.keys():
                raise CollateError(
                    f"sample {row} of the batch must have the keys {list(first)} of sample 0, got"
                    f" {got(sample)}. Make them alike, or pass a batchify_fn"
                )
        return {key: _collated([sample[key] for sample in data]) for key in first}
    if isinstance(first, (str, bytes)):
        return list(data)
    arrays = [each.asnumpy() if is_nd(each) else np.asarray(each) for each in data]
    for row, array in enumerate(arrays):
        if array.dtype.kind not in "biufc" or array.shape != arrays[0].shape:
            raise CollateError(
                f"sample {row} of the batch is {got(data[row])} of shape {array.shape}, and"
                f" sample 0 has {arrays[0].shape}: they make no array of numbers. Pass a"
                " batchify_fn: batchify.Pad() for different lengths, or batchify.AsList()"
            )
    return np.stack(arrays)


def _leaves(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return as_nd(value)
    if isinstance(value, dict):
        return {key: _leaves(each) for key, each in value.items()}
    return [_leaves(each) for each in value] if isinstance(value, list) else value
