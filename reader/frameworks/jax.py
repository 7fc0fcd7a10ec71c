"""Batches as jax.Arrays: on the arena's memory on the CPU, and copied by JAX to its devices.

Imports jax and LoDTensorArray. JAX holds the memory of a batch until its copy is done, or on the
CPU for as long as the array lives, and its copies run beside the program. A field whose type JAX
lacks (strings, dates, records) stays a NumPy array. Source: jax.device_put, jax.sharding.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np

from reader._core.batch.tensor_array import LoDTensorArray
from reader.places import Place

__all__ = ["make_jax_adapter", "missing_jax_device"]

_PINNED = "pinned_host"  # the memory that JAX calls so


def missing_jax_device(place: Place) -> str | None:
    """Say why batches cannot go to a place; None: they can."""
    version = f"jax {jax.__version__}"
    if place.target is not None:
        return None
    if place.kind == "gpu_pinned":
        kinds = [each.kind for each in jax.local_devices()[0].addressable_memories()]
        if _PINNED in kinds:
            return None
        return f"{version} has no page-locked memory here (memories: {', '.join(kinds)})"
    try:
        devices = jax.local_devices(backend=place.kind)
    except RuntimeError:
        known = sorted({device.platform for device in jax.local_devices()})
        return f"{version} finds no device for {str(place)!r} here (devices: {', '.join(known)})"
    if place.index is not None and place.index >= len(devices):
        return f"{version} finds {len(devices)} devices {place.kind!r} here, numbered from 0"
    return None


def make_jax_adapter(place: Place) -> Callable[[LoDTensorArray], Any]:
    """Return the function that makes the batch of a place, with jax.Array leaves.

    Args:
        place: "cpu", another backend of JAX and the number of its device, or a jax.Device or
            Sharding: then a batch is one array per field, divided over the devices.
    """
    target = place.target
    if place.kind == "gpu_pinned":
        target = jax.sharding.SingleDeviceSharding(jax.local_devices()[0], memory_kind=_PINNED)
    elif target is None:
        target = jax.local_devices(backend=place.kind)[place.index or 0]
    return functools.partial(_to_jax, target)


def _to_jax(target: Any, batch: LoDTensorArray) -> Any:
    fields = batch.numpy_fields()
    known = [i for i, each in enumerate(fields) if _has_jax_type(each.dtype)]
    made = jax.device_put([fields[i] for i in known], target)
    for i, array in zip(known, made, strict=True):
        fields[i] = array
    return batch.place_fields(fields)


@functools.cache
def _has_jax_type(dtype: Any) -> bool:
    try:
        jax.dtypes.canonicalize_dtype(dtype)
    except TypeError:
        return False
    return dtype.kind in "biufcV" and np.dtype(dtype).names is None
