"""Differences of Paddle 2.6 from 3.x. Imports paddle."""

from __future__ import annotations

from typing import Any

from paddle.base import core as typed_core

__all__ = ["IS_3", "DenseTensor", "DenseTensorArray", "init_queue", "is_capturing", "is_on_cpu"]

core: Any = typed_core
IS_3 = hasattr(core, "DenseTensor")  # 2.6 shares no memory by DLPack, and takes no bool
DenseTensor: Any = core.DenseTensor if IS_3 else core.LoDTensor
DenseTensorArray: Any = core.DenseTensorArray if IS_3 else core.LoDTensorArray
init_queue: Any = (
    core.init_dense_tensor_blocking_queue if IS_3 else core.init_lod_tensor_blocking_queue
)


def is_on_cpu(place: Any) -> bool:
    """Whether a place of Paddle is the CPU; some classes of places in 2.6 cannot tell."""
    return isinstance(place, core.CPUPlace) or bool(
        hasattr(place, "is_cpu_place") and place.is_cpu_place()
    )


def is_capturing() -> bool:
    """Whether CUDA captures a graph for Paddle."""
    return bool(core.is_cuda_graph_capturing())
