"""Batches as paddle tensors on the arena's memory: Tensor in dynamic mode, DenseTensor in static.

Imports paddle and LoDTensorArray. A field whose type paddle lacks (strings, uint16, ...) stays a
NumPy array. Paddle holds the memory through DLPack, and releases it without the GIL.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
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


# (batch, {field: another shape to give it}) -> the fields
MakeFields = Callable[..., list[Any]]


class PaddleForm:
    """The form in which Paddle wants a batch.

    In dynamic mode that is the batch in its containers. In static mode: with `return_list` the same
    with DenseTensors; else a dict by the names of `feed_list`, in a list when there is one place.

    Args:
        feed_list: the variables of the program, or names.
        return_list: see above.
        is_single: whether it is the only place.
    """

    def __init__(self, feed_list: Sequence[Any] | None, return_list: bool, is_single: bool) -> None:
        self._plan = None if feed_list is None else FeedPlan(feed_list)
        self._return_list = return_list
        self._is_single = is_single

    def form(self, tensors: MakeFields, dense: MakeFields, batch: LoDTensorArray) -> Any:
        """Return the batch, its fields made by `tensors` in dynamic, `dense` in static mode."""
        if paddle.in_dynamic_mode():
            return batch.place_fields(tensors(batch))
        plan = self._plan
        if plan is None:
            return batch.place_fields(dense(batch))
        if self._return_list:
            plan.check_count(batch)
            return batch.place_fields(dense(batch))
        feed = plan.feed(batch, dense)
        return [feed] if self._is_single else feed


def make_paddle_adapter(form: PaddleForm) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes Paddle's batch on the CPU, on the memory of the arena."""
    return functools.partial(form.form, tensor_fields, dense_fields)


def tensor_fields(
    batch: LoDTensorArray, shapes: Mapping[int, tuple[int, ...]] | None = None
) -> list[Any]:
    """Return the fields as Tensors, or as arrays where paddle lacks the type.

    `shapes`: {field: another shape to give it}.
    """
    dense = dense_fields(batch, shapes)
    # all in one call, as paddle's own loader does: far cheaper than Tensor(dense) for each
    if _ARRAY not in map(type, dense):
        return _eager_tensors(dense)
    tensors = iter(_eager_tensors([d for d in dense if type(d) is not _ARRAY]))
    return [d if type(d) is _ARRAY else next(tensors) for d in dense]


def dense_fields(
    batch: LoDTensorArray, shapes: Mapping[int, tuple[int, ...]] | None = None
) -> list[Any]:
    """Return the fields as DenseTensors, or as arrays where paddle lacks the type.

    `shapes`: {field: another shape to give it}. Paddle keeps one deleter for each address, so no
    field may be imported twice.
    """
    capsules = batch.capsules(_TYPES, shapes)
    if batch.imported is None:
        batch.imported = []
    if not batch.imported:  # else a signal came after it, and this is the next try
        batch.imported.extend(map(core.from_dlpack, filter(None, capsules)))
    if None not in capsules:
        return list(batch.imported)
    imported = iter(batch.imported)
    return [
        _array_or_copy(batch[place].numpy(), (shapes or {}).get(place))
        if capsule is None
        else next(imported)
        for place, capsule in enumerate(capsules)
    ]


def _array_or_copy(array: Any, shape: tuple[int, ...] | None) -> Any:
    """Return an array as it is; one of bool as a DenseTensor with a copy: 2.6 takes no other."""
    if array.dtype != bool or IS_3:
        return array
    dense = DenseTensor()
    dense.set(array if shape is None else array.reshape(shape), core.CPUPlace())
    return dense
