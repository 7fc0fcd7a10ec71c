"""Batches as paddle tensors on the arena's memory: Tensor in dynamic mode, DenseTensor in static.

Imports paddle and LoDTensorArray. Paddle has no uint16 and no uint32: a Tensor has the numbers in a
wider type; in Paddle's face uint16 is read as bfloat16, as Paddle does. Fields of other missing
types (strings, uint64, ...) stay NumPy arrays. Paddle holds the memory through DLPack, and releases
it without the GIL.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.paddle_feed import FeedPlan
from reader.frameworks.paddle_version import IS_3, DenseTensor

__all__ = ["PaddleForm", "dense_fields", "make_paddle_adapter", "tensor_fields"]

_ARRAY = np.ndarray
_eager_tensors: Callable[[list[Any]], list[Any]] = core.eager.read_next_tensor_list
_TYPES = frozenset(
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128"
    " float8_e4m3fn float8_e5m2".split()
) - (frozenset() if IS_3 else {"bool"})


_WIDER = {"uint16": "int32", "uint32": "int64"}  # wider types for those that Paddle lacks

# (batch, {field: another shape to give it}, see dense_fields) -> the fields
MakeFields = Callable[..., list[Any]]


class PaddleForm:
    """The form of batches for Paddle.

    In dynamic mode: the batch in its containers. In static mode with `as_list`: the same with
    DenseTensors; without: a dict by the names of `inputs`, in a list if there is one place.

    Args:
        inputs: the variables of the program, or names.
        as_list: see above.
        is_single: whether it is the only place.
        reads_bfloat16: whether uint16 has the bits of bfloat16, as for Paddle's own loader.
    """

    def __init__(
        self,
        inputs: Sequence[Any] | None,
        as_list: bool,
        is_single: bool,
        reads_bfloat16: bool = False,
    ) -> None:
        self._bits: Container[int] = range(sys.maxsize) if reads_bfloat16 else ()
        self._plan = None if inputs is None else FeedPlan(inputs)
        self._as_list = as_list
        self._is_single = is_single

    def form(self, tensors: MakeFields, dense: MakeFields, batch: LoDTensorArray) -> Any:
        """Return the batch, with fields by `tensors` in dynamic and `dense` in static mode."""
        if paddle.in_dynamic_mode():
            return batch.place_fields(tensors(batch, None, self._bits))
        plan = self._plan
        if plan is None:
            return batch.place_fields(dense(batch, None, self._bits))
        if self._as_list:
            plan.check_count(batch)
            return batch.place_fields(dense(batch, None, self._bits))
        feed = plan.feed(batch, dense, self._bits)
        return [feed] if self._is_single else feed


def make_paddle_adapter(form: PaddleForm) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes Paddle's batch on the CPU, in the arena's memory."""
    return functools.partial(form.form, tensor_fields, dense_fields)


def tensor_fields(
    batch: LoDTensorArray,
    shapes: Mapping[int, tuple[int, ...]] | None = None,
    bits: Container[int] = (),
    widens: bool = True,
) -> list[Any]:
    """Return the fields as Tensors, or as arrays if Paddle lacks the type.

    Args: see `dense_fields`.
    """
    dense = dense_fields(batch, shapes, bits, widens)
    # all in one call, as Paddle's own loader does: far cheaper than Tensor(dense) for each
    if _ARRAY not in map(type, dense):
        return _eager_tensors(dense)
    tensors = iter(_eager_tensors([d for d in dense if type(d) is not _ARRAY]))
    return [d if type(d) is _ARRAY else next(tensors) for d in dense]


def dense_fields(
    batch: LoDTensorArray,
    shapes: Mapping[int, tuple[int, ...]] | None = None,
    bits: Container[int] = (),
    widens: bool = False,
) -> list[Any]:
    """Return the fields as DenseTensors, or as arrays if Paddle lacks the type.

    Paddle keeps one deleter for each address, so no field may be imported twice.

    Args:
        batch: whose fields they are.
        shapes: {field: another shape to give it}.
        bits: fields in which uint16 has the bits of bfloat16.
        widens: whether uint16 and uint32 become wider types that Paddle has.
    """
    capsules = batch.capsules(_TYPES, shapes)
    if batch.imported is None:
        batch.imported = []
    if not batch.imported:  # otherwise this is the next try after a signal
        batch.imported.extend(map(core.from_dlpack, filter(None, capsules)))
    if None not in capsules:
        return list(batch.imported)
    imported = iter(batch.imported)
    return [
        _array_or_copy(batch[place].numpy(), (shapes or {}).get(place), place in bits, widens)
        if capsule is None
        else next(imported)
        for place, capsule in enumerate(capsules)
    ]


def _array_or_copy(array: Any, shape: tuple[int, ...] | None, has_bits: bool, widens: bool) -> Any:
    """Return an array itself, or a copy if a DenseTensor cannot be on its memory."""
    wider = _WIDER.get(array.dtype.name) if widens else None
    if has_bits and array.dtype == np.uint16:
        wider = "uint16"  # Paddle reads it as bfloat16
    elif wider is None and (array.dtype != bool or IS_3):  # 2.6 only copies bool
        return array
    dense = DenseTensor()
    copied = array if shape is None else array.reshape(shape)
    dense.set(copied if wider is None else copied.astype(wider), core.CPUPlace())
    return dense
