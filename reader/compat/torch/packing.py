"""Pickle what is no plain array or tensor, so that it arrives as through PyTorch's own queue.

Imports torch and the core. Runs in workers; tensors and arrays within an object become fields of
the batch, so that their bytes are copied once and never pickled.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import torch
import torch.utils.hooks

from reader._core.batch.exchange import is_plain_tensor
from reader._core.batch.structure import is_plain_array
from reader._core.batch.tensor_array import field_of_batch
from reader.compat.torch.inner import queue_reducers, rebuild_tensor, reduce_tensor

__all__ = ["pack"]

_MIN_NBYTES = 1024  # smaller arrays are cheaper to pickle than to describe
_reduce_ex: Any = torch.Tensor.__reduce_ex__
_storage_of: Any = torch.Tensor._typed_storage
_MAX_WASTE = 4  # a view is sent with its whole storage if that is at most this many times as large


def pack(value: Any, fields: list[Any]) -> bytes:
    """Pickle a value as PyTorch's workers do, with tensors and large arrays put into `fields`.

    Raises:
        RuntimeError: a tensor that requires a gradient and is no leaf, in PyTorch's words.
        Exception: what pickling the user's objects raises.
    """
    made = io.BytesIO()
    _Packer(made, fields).dump(value)
    return made.getvalue()


class _Packer(pickle.Pickler):
    """Knows what ForkingPickler does: connections, sockets, and torch's storages and tensors."""

    dispatch_table = queue_reducers

    def __init__(self, made: io.BytesIO, fields: list[Any]) -> None:
        super().__init__(made)  # in the protocol that PyTorch uses
        self._fields = fields

    def reducer_override(self, value: Any) -> Any:
        """Return how to make a value again; pickle calls it for all but the plainest types."""
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._reduce_tensor(value)
        if kind is torch.UntypedStorage and value.device.type == "cpu":
            whole = torch.empty(0, dtype=torch.uint8).set_(value)
            return _storage_of_batch, (self._add(whole),)
        if kind is np.ndarray and value.nbytes >= _MIN_NBYTES and is_plain_array(value):
            return field_of_batch, (self._add(value),)
        return NotImplemented

    def _add(self, field: Any) -> int:
        self._fields.append(field)
        return len(self._fields) - 1

    def _reduce_tensor(self, value: torch.Tensor) -> Any:
        if is_plain_tensor(value):
            return field_of_batch, (self._add(value),)
        if value.is_quantized:  # PyTorch's reduction loses scale and zero point
            return _reduce_ex(value, 5)
        if value.layout is not torch.strided or value.is_nested or not value.is_cpu:
            return reduce_tensor(value)
        if value.requires_grad:
            if not value.is_leaf:
                return reduce_tensor(value)  # raises
            torch.utils.hooks.warn_if_has_hooks(value)
        # its reduction also loses the marks of lazy conjugation and negation
        found = value.detach().resolve_conj().resolve_neg()
        if found.untyped_storage().nbytes() > _MAX_WASTE * max(found.nbytes, _MIN_NBYTES):
            found = found.clone()  # keeps the strides where elements lie without gaps
        form = (found.storage_offset(), found.size(), found.stride(), value.requires_grad)
        return rebuild_tensor, (type(value), _storage_of(found), form)


def _storage_of_batch(index: int) -> torch.UntypedStorage:
    """Return the storage of a field; called in the trainer while objects are unpickled."""
    field: torch.Tensor = field_of_batch(index)
    return field.untyped_storage()
