"""Batches as jax.Arrays: views of the arena on the CPU, copies on JAX's devices.

Imports jax and LoDTensorArray. JAX holds the memory of a batch until its copy is done, or on the
CPU for as long as the array lives, and its copies run beside the program. A field whose type JAX
lacks (strings, dates, records) stays a NumPy array. Source: jax.device_put, jax.sharding.
"""

from __future__ import annotations

import functools
from typing import Any

import jax
import numpy as np

from reader._core.batch.tensor_array import LoDTensorArray
from reader.places import Place

__all__ = [
    "is_jax_gpu",
    "jax_devices",
    "jax_fields",
    "jax_target",
    "missing_jax_device",
    "to_jax",
]

_PINNED = "pinned_host"  # JAX's name of page-locked memory


def missing_jax_device(place: Place) -> str | None:
    """Return why batches cannot go to a place; None: they can."""
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


def jax_target(place: Place) -> Any:
    """Return the jax.Device or Sharding of a place.

    Args:
        place: "cpu", another backend of JAX and the number of its device, or a jax.Device or
            Sharding: then each field is one array, divided over the devices.
    """
    if place.kind == "gpu_pinned":
        return jax.sharding.SingleDeviceSharding(jax.local_devices()[0], memory_kind=_PINNED)
    if place.target is not None:
        return place.target
    return jax.local_devices(backend=place.kind)[place.index or 0]


def is_jax_gpu(target: Any) -> bool:
    """Whether a target is memory of GPUs rather than of their host."""
    is_host = getattr(target, "memory_kind", None) == _PINNED
    return not is_host and all(each.platform == "gpu" for each in jax_devices(target))


def jax_devices(target: Any) -> set[Any]:
    """Return the devices of a Sharding, or a jax.Device itself."""
    return getattr(target, "device_set", None) or {target}


def to_jax(target: Any, batch: LoDTensorArray) -> Any:
    """Return a batch with jax.Array leaves on a target; see `jax_fields`."""
    return batch.place_fields(jax_fields(target, batch))


def jax_fields(target: Any, batch: LoDTensorArray) -> list[Any]:
    """Return the fields of a batch: jax.Arrays on a target, if JAX has their type.

    Args:
        target: a jax.Device or Sharding. Copies to a GPU go on when this returns.
        batch: JAX holds its memory until it is copied.
    """
    fields = batch.numpy_fields()
    known = [i for i, each in enumerate(fields) if _has_jax_type(each.dtype)]
    made = jax.device_put([fields[i] for i in known], target)
    for i, array in zip(known, made, strict=True):
        fields[i] = array
    return fields


@functools.cache
def _has_jax_type(dtype: Any) -> bool:
    try:
        jax.dtypes.canonicalize_dtype(dtype)
    except TypeError:
        return False
    return dtype.kind in "biufcV" and np.dtype(dtype).names is None
