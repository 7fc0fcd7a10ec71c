"""Batches as paddle tensors on the arena's memory: Tensor in dynamic mode, DenseTensor in static.

Imports paddle and LoDTensorArray. A field whose type paddle lacks (strings, uint16, ...) stays a
NumPy array. Paddle holds the memory through DLPack; letting go of it needs no GIL.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from reader._core.tensor import LoDTensorArray
from reader.errors import ConfigError

__all__ = ["make_paddle_adapter"]

_ARRAY = np.ndarray
_make_tensors: Callable[[list[Any]], list[Any]] = core.eager.read_next_tensor_list
_TYPES = frozenset(
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128"
    " float8_e4m3fn float8_e5m2".split()
)


def make_paddle_adapter(
    feed_names: tuple[str, ...] | None, return_list: bool
) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes paddle's batch of a LoDTensorArray."""
    if return_list or feed_names is None:
        return to_paddle
    names = feed_names

    def to_feed(batch: LoDTensorArray) -> Any:
        if paddle.in_dynamic_mode():
            return to_paddle(batch)
        return [_name_fields(batch, names)]

    return to_feed


def to_paddle(batch: LoDTensorArray) -> Any:
    """Return the batch with paddle leaves that share its memory."""
    dense = _dense_fields(batch)
    if not paddle.in_dynamic_mode():
        return batch.place_fields(dense)
    # by the list, as paddle's own loader does: far cheaper than Tensor(dense) for each
    if _ARRAY not in map(type, dense):
        return batch.place_fields(_make_tensors(dense))
    tensors = iter(_make_tensors([d for d in dense if type(d) is not _ARRAY]))
    return batch.place_fields([d if type(d) is _ARRAY else next(tensors) for d in dense])


def _dense_fields(batch: LoDTensorArray) -> list[Any]:
    """The fields as DenseTensors, or as arrays where paddle lacks the type."""
    from_dlpack = core.from_dlpack
    return [
        batch[place].numpy() if capsule is None else from_dlpack(capsule)
        for place, capsule in enumerate(batch.capsules(_TYPES))
    ]


def _name_fields(batch: LoDTensorArray, names: tuple[str, ...]) -> dict[str, Any]:
    """The feed dict of a batch: by key for a dict, by position else. ConfigError if they differ."""
    made = batch.place_fields(_dense_fields(batch))
    if isinstance(made, dict):
        if set(made) != set(names):
            raise ConfigError(
                f"feed_list names {sorted(names)} and the batch has keys {sorted(map(str, made))};"
                " make them the same: feed_list is matched to dict samples by name"
            )
        return {name: made[name] for name in names}
    values = list(made) if isinstance(made, (list, tuple)) else [made]
    if len(values) != len(names):
        raise ConfigError(
            f"feed_list names {len(names)} inputs {list(names)} and the batch has {len(values)}"
            " fields; make the dataset return one field for each input, in order"
        )
    return dict(zip(names, values, strict=True))
