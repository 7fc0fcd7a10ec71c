"""Convert tensors of other libraries to arrays, without a copy and without importing the libraries.

Imports `reader._core` and looks into `sys.modules`: a value can only be a tensor of a library that
is imported. Collating and LoDTensor both use the converters registered here.
"""

from __future__ import annotations

import sys
from typing import Any

import numpy as np

from reader._core.batch.dtype import field_type
from reader._core.batch.exchange import is_array_shape, no_array
from reader._core.batch.structure import register_array_converter
from reader._core.batch.tensor import LoDTensor
from reader.errors import CollateError, DatasetError

__all__ = ["register_known_libraries"]

# torch element types that NumPy lacks, and the integer type of the same width
_TORCH_BITS = {
    "torch.bfloat16": ("bfloat16", "int16"),
    "torch.float8_e4m3fn": ("float8_e4m3fn", "uint8"),
    "torch.float8_e4m3fnuz": ("float8_e4m3fnuz", "uint8"),
    "torch.float8_e5m2": ("float8_e5m2", "uint8"),
    "torch.float8_e5m2fnuz": ("float8_e5m2fnuz", "uint8"),
    "torch.float8_e8m0fnu": ("float8_e8m0fnu", "uint8"),
    "torch.complex32": ("complex32", "int32"),
}


Found = tuple[np.ndarray[Any, Any], str | None, list[list[int]]]


def from_torch(value: Any) -> Found | None:
    """Return (array on the tensor's memory, name of an extended type or None, no LoD), or None."""
    torch = sys.modules["torch"]
    if not isinstance(value, torch.Tensor):
        return None
    if value.device.type != "cpu":
        raise DatasetError(
            f"a torch tensor on {value.device} cannot be collated; call .cpu() in the dataset, or"
            " keep samples on the CPU and move the batch in the training step"
        )
    if value.layout is not torch.strided or value.is_quantized or value.is_nested:
        kind = "quantized" if value.is_quantized else "nested" if value.is_nested else value.layout
        raise DatasetError(
            f"a torch tensor of kind {kind} cannot be collated; make it dense"
            " (to_dense, dequantize), or pass a collate_fn"
        )
    value = value.detach().resolve_conj().resolve_neg()
    if not is_array_shape(value.shape, value.element_size()):
        raise CollateError(no_array("torch tensor", str(value.dtype), tuple(value.shape)))
    bits = _TORCH_BITS.get(str(value.dtype))
    if bits is None:
        return value.numpy(), None, []
    storage = value.view(getattr(torch, bits[1])).numpy().view(f"u{value.element_size()}")
    return storage, bits[0], []


def from_paddle(value: Any) -> Found | None:
    """Return (array on the tensor's memory, name of an extended type or None, LoD), or None."""
    core = sys.modules["paddle"].base.core
    is_3 = hasattr(core, "DenseTensor")  # Paddle 2.6 lacks it
    if isinstance(value, core.eager.Tensor):
        if value._is_initialized() and not value.is_dense():
            raise DatasetError(
                "a sparse, distributed or SelectedRows paddle tensor cannot be collated; make it"
                " dense (to_dense), or pass a collate_fn"
            )
        if 0 in value.shape:
            return _empty(tuple(value.shape), str(value.dtype).rpartition(".")[2])
        if not value._is_initialized():
            raise DatasetError("a paddle tensor without data cannot be collated")
        # contiguous, since 2.6's DLPack passes no strides
        value = (value.detach() if is_3 else value.detach().contiguous()).get_tensor()
    elif not isinstance(value, core.DenseTensor if is_3 else core.LoDTensor):
        return None
    place = value._place()
    if not place.is_cpu_place():
        raise DatasetError(
            f"a paddle tensor on {place} cannot be collated; call .cpu() in the dataset, or keep"
            " samples on the CPU and move the batch in the training step"
        )
    if 0 in value.shape():
        names = {str(core.VarDesc.VarType.BF16): "bfloat16"}
        name = names.get(str(value._dtype()))
        return _empty(tuple(value.shape()), name or str(np.array(value).dtype))
    if not is_3 and value._dtype() == core.VarDesc.VarType.BOOL:  # 2.6's DLPack has no bool
        return np.array(value), None, value.lod()
    tensor = LoDTensor.from_dlpack(value._to_dlpack())
    return tensor.storage(), tensor.dtype if tensor.type.extended else None, value.lod()


def _empty(shape: tuple[int, ...], name: str) -> Found:
    """Return an array without elements, of the type with that name."""
    kind = field_type(name)
    try:
        return np.empty(shape, kind.storage), name if kind.extended else None, []
    except ValueError as error:  # too many elements for NumPy
        raise CollateError(no_array("paddle tensor", name, shape)) from error


def from_mxnet(value: Any) -> Found | None:
    """Return (array on the memory of an mx.nd.NDArray, None, no LoD), or None."""
    nd = sys.modules["mxnet"].nd
    if not isinstance(value, nd.NDArray):
        return None
    is_dense = type(value) is nd.NDArray  # those of other kinds are its subclasses
    if not is_dense and value.stype != "default":
        raise DatasetError(
            f"a sparse array of MXNet ({value.stype}) cannot be collated; call"
            ' .tostype("default") in the dataset, or pass a batchify function'
        )
    if not value.context.device_type.startswith("cpu"):
        raise DatasetError(
            f"an array of MXNet on {value.context} cannot be collated; call"
            " .as_in_context(mx.cpu()) in the dataset, or keep samples on the CPU"
        )
    shape = value.shape
    if 0 in shape or not shape:
        return value.asnumpy(), None, []
    return LoDTensor.from_dlpack(value.to_dlpack_for_read()).storage(), None, []


def register_known_libraries() -> None:
    """Register the converters for torch, paddle and mxnet. Imports none of them."""
    register_array_converter("torch", from_torch)
    register_array_converter("paddle", from_paddle)
    register_array_converter("mxnet", from_mxnet)
