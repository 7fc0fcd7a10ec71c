"""Paddle's default functions that collate samples, and that convert a sample without batching.

Imports paddle and numpy. These functions run in workers. The core stacks samples that are alike in
place, with the same result; `PaddleRules` collates the others.
"""

from __future__ import annotations

import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import paddle

from reader.errors import CollateError
from reader.policy import CollateRules

__all__ = ["PaddleRules", "default_collate_fn", "default_convert_fn"]

_NUMBERS = (numbers.Number, np.bool_)  # NumPy 2 does not count its bool among the numbers


class MissingKey(CollateError, KeyError):
    """A sample lacks a key that the first sample of its batch has; Paddle raises KeyError."""

    __str__ = Exception.__str__


class UnequalFields(CollateError):
    """Samples of one batch have different numbers of fields; Paddle raises RuntimeError."""


class UncollatedType(CollateError, TypeError):
    """A sample of a type that the default function does not collate; Paddle raises TypeError."""


def default_collate_fn(batch: Sequence[Any]) -> Any:
    """Stack a list of samples, field by field, as `paddle.io` does; the first sample decides.

    Arrays and tensors are stacked, numbers become an array (ints and floats together float64),
    strings and bytes stay a list, mappings become a dict and other sequences a list of batches.

    Args:
        batch: samples, one or more: arrays, paddle.Tensors, numbers, strings, and mappings and
            sequences of these.

    Raises:
        TypeError: a sample of another type.
        ValueError: arrays of different shapes, no samples, keys that the first sample lacks.
        KeyError: a key of the first sample that another lacks.
        RuntimeError: sequences of different lengths.

    Source: paddle.io.dataloader.collate of Paddle 3.3. Keys that only later samples have are an
    error here; Paddle silently drops them.
    """
    if not batch:
        raise CollateError("cannot make a batch of no samples; leave empty batches out")
    first = batch[0]
    if isinstance(first, np.ndarray):
        return _stack(batch)
    if isinstance(first, paddle.Tensor):
        return paddle.stack(list(batch), axis=0)
    if isinstance(first, _NUMBERS):
        return np.array(batch)
    if isinstance(first, (str, bytes)):
        return batch
    if isinstance(first, Mapping):
        _check_keys(batch)
        return {key: default_collate_fn([sample[key] for sample in batch]) for key in first}
    if isinstance(first, Sequence):
        _check_lengths(batch)
        return [default_collate_fn(fields) for fields in zip(*batch, strict=True)]
    raise _uncollated(first)


def default_convert_fn(batch: Any) -> Any:
    """Return a sample as it is, with dicts and lists in place of other mappings and sequences.

    Source: paddle.io.dataloader.collate of Paddle 3.3.
    """
    if isinstance(batch, (str, bytes, np.ndarray, paddle.Tensor)):
        return batch
    if isinstance(batch, Mapping):
        return {key: default_convert_fn(batch[key]) for key in batch}
    if isinstance(batch, Sequence):
        return [default_convert_fn(item) for item in batch]
    return batch


class PaddleRules(CollateRules):
    """See `reader.policy.CollateRules`."""

    keeps_aliases = False  # Paddle makes a new tensor, list or dict at each place

    @staticmethod
    def revive(array: Any, name: str | None) -> Any:
        """Return the Tensor that was stacked as an array; `name`: of a type that NumPy lacks."""
        made = paddle.to_tensor(array)
        return made if name is None else made.view(getattr(paddle, name))

    def can_stack(self, sample: Any) -> bool:
        """Whether the core makes the same batch in place; raises for a type that no batch holds."""
        if isinstance(sample, (np.ndarray, paddle.Tensor, *_NUMBERS, str, bytes)):
            return True
        if isinstance(sample, Mapping):
            return min([self.can_stack(sample[key]) for key in sample], default=True)
        if isinstance(sample, Sequence):
            found = [self.can_stack(item) for item in sample]
            return isinstance(sample, (list, tuple)) and all(found)  # the core takes a range as one
        raise _uncollated(sample)

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of samples that are not alike."""
        return default_collate_fn(samples)


def _stack(batch: Sequence[Any]) -> Any:
    try:
        return np.stack(batch, axis=0)
    except ValueError as error:
        shapes = sorted({np.shape(sample) for sample in batch})
        raise CollateError(
            f"{error}: the samples of the batch have shapes {shapes}. Pad them to one shape; or"
            " pass collate_fn=reader.RaggedFields(...) with the keys or places of ragged fields, or"
            " reader.concat_ragged for samples of one field: they make tensors with LoD"
        ) from error


def _uncollated(sample: Any) -> UncollatedType:
    return UncollatedType(
        "batch data con only contains: tensor, numpy.ndarray, dict, list, number, but got"
        f" {type(sample)}. Return one of these from the dataset, or pass a collate_fn"
    )


def _check_keys(batch: Sequence[Any]) -> None:
    first = batch[0]
    for row, sample in enumerate(batch):
        missing = [key for key in first if key not in sample]
        extra = [key for key in sample if key not in first]
        if missing:
            raise MissingKey(
                f"sample {row} of the batch lacks the keys {missing} that sample 0 has; give all"
                " samples the same keys, or pass a collate_fn"
            )
        if extra:
            raise CollateError(
                f"sample {row} of the batch has the keys {extra} that sample 0 lacks; give all"
                " samples the same keys, or pass a collate_fn"
            )


def _check_lengths(batch: Sequence[Any]) -> None:
    count = len(batch[0])
    for row, sample in enumerate(batch):
        if len(sample) != count:
            raise UnequalFields(
                f"fields number not same among samples in a batch: sample 0 has {count} and sample"
                f" {row} has {len(sample)}; make them alike, or pass a collate_fn"
            )
