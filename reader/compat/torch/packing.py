"""Pickle objects so that they arrive as through PyTorch's own queue.

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

from reader._core.batch.exchange import is_plain_tensor, may_share_memory
from reader._core.batch.structure import is_plain_array
from reader._core.batch.tensor_array import field_of_batch
from reader.compat.torch.inner import queue_reducers, rebuild_tensor, reduce_tensor

__all__ = ["pack"]

_ALIGN = 64  # bytes; fields begin at such addresses
_MIN_NBYTES = 1024  # smaller arrays are cheaper to pickle than to describe
_reduce_ex: Any = torch.Tensor.__reduce_ex__
_storage_of: Any = torch.Tensor._typed_storage
# a view is sent with its whole storage if that is at most this many times as large, and views of
# one tensor share what they span if that is at most this many times as large as all of them
_MAX_WASTE = 4


def pack(value: Any, fields: list[Any]) -> bytes | None:
    """Pickle a value as PyTorch's workers do, with tensors and large arrays put into `fields`.

    Tensors on the same memory share a field. None: some share memory with `fields`, or are in both.

    Raises:
        RuntimeError: a tensor that requires a gradient and is no leaf, in PyTorch's words.
        Exception: what pickling the user's objects raises.
    """
    count = len(fields)
    made = io.BytesIO()
    packer = _Packer(made, fields, [])
    packer.dump(value)
    if packer.met and count:
        its_own = {id(field) for field in fields[:count]}
        if any(id(each) in its_own for each in packer.met):
            del fields[count:]
            return None
    tensors = [each for each in packer.met if type(each) is not np.ndarray]
    if tensors:
        others = [each for each in fields[:count] if type(each) is torch.Tensor]
        spans = _shared_spans(tensors + others) if may_share_memory(tensors + others) else []
        if spans:
            del fields[count:]
            if others and any(_span_of(each, spans) for each in others):
                return None
            made = io.BytesIO()
            _Packer(made, fields, spans).dump(value)
    return made.getvalue()


_Span = tuple[int, int, int]  # of a storage: its number, the first byte, the byte after the last


def _extent(tensor: torch.Tensor) -> _Span:
    """Return the bytes of its storage that a strided tensor has."""
    size = tensor.element_size()
    last: int = sum((extent - 1) * step for extent, step in zip(tensor.size(), tensor.stride()))
    begin = int(tensor.storage_offset()) * size
    end = begin + (last + 1) * size if tensor.numel() else begin
    return tensor.untyped_storage()._cdata, begin, end


def _shared_spans(tensors: list[torch.Tensor]) -> list[_Span]:
    """Return the spans of storages where several tensors overlap, and little else lies."""
    extents = {id(each): (*_extent(each), each.nbytes) for each in tensors if each.nbytes}
    spans: list[_Span] = []
    storage, begin, end, its_count, its_nbytes = 0, 0, 0, 0, 0
    for found in [*sorted(extents.values()), (0, 0, 0, 0)]:
        if found[0] == storage and found[1] < end:
            end = max(end, found[2])
            its_count += 1
            its_nbytes += found[3]
            continue
        if its_count > 1 and end - begin <= _MAX_WASTE * max(its_nbytes, _MIN_NBYTES):
            spans.append((storage, begin, end))
        storage, begin, end, its_nbytes = found
        its_count = 1
    return spans


def _span_of(tensor: torch.Tensor, spans: list[_Span]) -> _Span | None:
    """Return the span of a storage that a tensor lies in, or None."""
    storage, begin, end = _extent(tensor)
    for span in spans:
        if span[0] == storage and span[1] <= begin < end <= span[2]:
            return span
    return None


class _Packer(pickle.Pickler):
    """Knows what ForkingPickler does: connections, sockets, and torch's storages and tensors."""

    dispatch_table = queue_reducers

    def __init__(self, made: io.BytesIO, fields: list[Any], spans: list[_Span]) -> None:
        super().__init__(made)  # in the protocol that PyTorch uses
        self._fields = fields
        self._spans = spans  # tensors in one of these share its field
        self._places: dict[_Span, int] = {}  # of their fields
        self.met: list[Any] = []  # strided tensors and large arrays

    def reducer_override(self, value: Any) -> Any:
        """Return how to make a value again; pickle calls it for all but the plainest types."""
        kind = type(value)
        if kind is torch.Tensor or kind is torch.nn.Parameter:
            return self._reduce_tensor(value)
        if kind is torch.UntypedStorage and value.device.type == "cpu":
            whole = torch.empty(0, dtype=torch.uint8).set_(value)
            return _storage_of_batch, (self._add(whole),)
        if kind is np.ndarray:
            self.met.append(value)
            if value.nbytes >= _MIN_NBYTES and is_plain_array(value):
                return field_of_batch, (self._add(value),)
        return NotImplemented

    def _add(self, field: Any) -> int:
        self._fields.append(field)
        return len(self._fields) - 1

    def _reduce_tensor(self, value: torch.Tensor) -> Any:
        if is_plain_tensor(value):
            self.met.append(value)
            span = _span_of(value, self._spans) if self._spans else None
            return (
                (field_of_batch, (self._add(value),)) if span is None else self._view(value, span)
            )
        if value.is_quantized:  # PyTorch's reduction loses scale and zero point
            return _reduce_ex(value, 5)
        if value.layout is not torch.strided or value.is_nested or not value.is_cpu:
            return reduce_tensor(value)
        if value.requires_grad:
            if not value.is_leaf:
                return reduce_tensor(value)  # raises
            torch.utils.hooks.warn_if_has_hooks(value)
        self.met.append(value)
        # its reduction also loses the marks of lazy conjugation and negation
        found = value.detach().resolve_conj().resolve_neg()
        span = _span_of(found, self._spans) if self._spans else None
        if span is not None:
            return self._view(found, span, value)
        if found.untyped_storage().nbytes() > _MAX_WASTE * max(found.nbytes, _MIN_NBYTES):
            found = found.clone()  # keeps the strides where elements lie without gaps
        form = (found.storage_offset(), found.size(), found.stride(), value.requires_grad)
        return rebuild_tensor, (type(value), _storage_of(found), form)

    def _view(self, found: torch.Tensor, span: _Span, value: torch.Tensor | None = None) -> Any:
        """Return how to make a tensor on the field of a span, of the type and mark of `value`."""
        value = found if value is None else value
        begin = span[1] // _ALIGN * _ALIGN
        if span not in self._places:
            whole = torch.empty(0, dtype=torch.uint8)
            self._places[span] = self._add(
                whole.set_(found.untyped_storage(), begin, (span[2] - begin,), (1,))
            )
        offset = found.storage_offset() - begin // found.element_size()
        form = (offset, found.size(), found.stride(), value.requires_grad)
        return _view_of_batch, (type(value), self._places[span], found.dtype, form)


def _view_of_batch(kind: Any, index: int, dtype: torch.dtype, form: Any) -> torch.Tensor:
    """Return a tensor on a field of bytes; called in the trainer while objects are unpickled."""
    its: Any = torch.storage.TypedStorage
    storage = its(wrap_storage=_storage_of_batch(index), dtype=dtype, _internal=True)
    made: torch.Tensor = rebuild_tensor(kind, storage, form)
    return made


def _storage_of_batch(index: int) -> torch.UntypedStorage:
    """Return the storage of a field; called in the trainer while objects are unpickled."""
    field: torch.Tensor = field_of_batch(index)
    return field.untyped_storage()
