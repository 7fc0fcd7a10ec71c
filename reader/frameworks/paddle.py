"""Batches as paddle tensors on the arena's memory: Tensor in dynamic mode, DenseTensor in static.

Imports paddle and LoDTensorArray. A field whose type paddle lacks (strings, uint16, ...) stays a
NumPy array. Paddle holds the memory through DLPack, and releases it without the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from reader._core.tensor_array import LoDTensorArray
from reader.frameworks.paddle_feed import FeedPlan

__all__ = ["dense_fields", "eager_tensors", "make_paddle_adapter", "to_paddle"]

_ARRAY = np.ndarray
eager_tensors: Callable[[list[Any]], list[Any]] = core.eager.read_next_tensor_list
_TYPES = frozenset(
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128"
    " float8_e4m3fn float8_e5m2".split()
)


def make_paddle_adapter(
    feed_list: Sequence[Any] | None, return_list: bool, is_single: bool
) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes paddle's batch on the CPU from a LoDTensorArray.

    In dynamic mode that is the batch in its containers. In static mode: with `return_list` the same
    with DenseTensors; else a dict by the names of `feed_list`, in a list when there is one place.

    Args:
        feed_list: the variables of the program, or names.
        return_list: see above.
        is_single: whether it is the only place.
    """
    if feed_list is None:
        return to_paddle
    plan = FeedPlan(feed_list)

    def to_list(batch: LoDTensorArray) -> Any:
        if not paddle.in_dynamic_mode():
            plan.check_count(batch)
        return to_paddle(batch)

    def to_feed(batch: LoDTensorArray) -> Any:
        if paddle.in_dynamic_mode():
            return to_paddle(batch)
        feed = plan.feed(batch, dense_fields)
        return [feed] if is_single else feed

    return to_list if return_list else to_feed


def to_paddle(batch: LoDTensorArray) -> Any:
    """Return the batch with paddle leaves that share its memory."""
    dense = dense_fields(batch)
    if not paddle.in_dynamic_mode():
        return batch.place_fields(dense)
    # all in one call, as paddle's own loader does: far cheaper than Tensor(dense) for each
    if _ARRAY not in map(type, dense):
        return batch.place_fields(eager_tensors(dense))
    tensors = iter(eager_tensors([d for d in dense if type(d) is not _ARRAY]))
    return batch.place_fields([d if type(d) is _ARRAY else next(tensors) for d in dense])


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
    if not batch.imported:  # else a signal came behind it, and the fields are asked for again
        batch.imported.extend(map(core.from_dlpack, filter(None, capsules)))
    if None not in capsules:
        return list(batch.imported)
    imported = iter(batch.imported)
    return [
        batch[place].numpy() if capsule is None else next(imported)
        for place, capsule in enumerate(capsules)
    ]
