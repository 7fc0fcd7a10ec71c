"""PyTorch's default collating, in place where that gives the same batch.

Imports torch and the core. Workers use `TorchRules`; where stacking in place might give another
batch, PyTorch's own function makes it. Keeps no state.
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import torch

from reader._core.batch.dtype import field_type
from reader._core.batch.exchange import can_stack_tensor
from reader._core.batch.structure import is_named_tuple
from reader._core.collate.alike import collate_alike
from reader._core.interpreter.signals import is_interrupt
from reader.compat.torch import inner
from reader.compat.torch.packing import pack
from reader.frameworks.torch import field_dtype, tensor_of
from reader.policy import CollateRules

__all__ = ["TorchRules", "with_extended"]

_SCALARS = {
    np.bool_,
    *(np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64),
    *(np.float16, np.float32, np.float64, np.complex64, np.complex128),
}  # PyTorch refuses np.uint64, though torch has that type
_ARRAYS = {np.dtype(kind) for kind in _SCALARS}
# PyTorch's own functions, which programs replace
_COLLATE, _LIBRARY = inner.collate.default_collate, inner.collate.collate
_CONTAINERS = (tuple, list, dict)
_MAX_DEPTH = 90  # levels of containers; PyTorch collates deeper ones
_MAX_NDIM = 60


class TorchRules(CollateRules):
    """How PyTorch collates by default; see `reader.policy.CollateRules`.

    Samples are stacked in place where the result is that of `torch.utils.data.default_collate`:
    plain tensors, arrays, numbers and strings in plain containers, all samples exactly of the
    types and shapes of the first one. Any other batch goes through that function itself, and so
    does every batch while its map of functions is not PyTorch's own.
    """

    is_strict = True
    pack = staticmethod(pack)
    revive = staticmethod(tensor_of)

    def can_stack(self, sample: Any) -> bool:
        """Whether stacking in place makes exactly the batch that PyTorch makes."""
        own = _foreign_keys()
        return own is not None and _can_stack(sample, own, 0)

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of PyTorch's function, or raise its errors."""
        return _with_extended(inner.collate.default_collate, samples)


@functools.cache
def with_extended(function: Any) -> Any:
    """Return PyTorch's `default_collate` or `default_convert`, extended to more types of NumPy.

    It raises TypeError for arrays of bfloat16 and its like (ml_dtypes), and for numbers of uint64,
    though torch has those types.
    """
    return functools.partial(_with_extended, function)


def _with_extended(function: Any, samples: Any) -> Any:
    its = inner.collate
    functions = its.default_collate_fn_map
    # of other samples PyTorch's function makes a batch as fast
    is_nested = type(samples) is list and samples and type(samples[0]) in _CONTAINERS
    is_own = is_nested and function is _COLLATE and its.collate is _LIBRARY
    if is_own and functions == _own_functions():
        try:
            return collate_alike(samples, functions, _LIBRARY)
        except Exception as error:
            if is_interrupt(error):
                raise  # else PyTorch's function raises the error in its own words
    try:
        return function(samples)
    except TypeError:
        found = _with_tensors(samples, 0)
        if found is samples:
            raise
    return function(found)


def _with_tensors(value: Any, depth: int) -> Any:
    """Return a value with tensors in place of the NumPy values that PyTorch refuses."""
    kind = type(value)
    if kind is np.uint64:
        return torch.from_numpy(np.array(value))
    if kind is np.ndarray and value.dtype.kind == "V" and value.flags.writeable:
        its_type = _extended(value.dtype)
        if its_type is not None:
            return tensor_of(value.view(its_type.storage), its_type.name)
    if depth < _MAX_DEPTH and (kind is tuple or kind is list or is_named_tuple(kind)):
        items = [_with_tensors(item, depth + 1) for item in value]
        if any(new is not old for new, old in zip(items, value)):
            return kind(*items) if is_named_tuple(kind) else kind(items)
    if depth < _MAX_DEPTH and kind is dict:
        made = {key: _with_tensors(item, depth + 1) for key, item in value.items()}
        if any(made[key] is not value[key] for key in made):
            return made
    return value


@functools.cache
def _extended(dtype: np.dtype[Any]) -> Any:
    """Return the FieldType of a type of ml_dtypes that torch has; None: it is none."""
    try:
        found = field_type(dtype)
    except TypeError:  # it holds Python objects
        return None
    return found if found.extended and field_dtype(found) is not None else None


def _can_stack(sample: Any, foreign: tuple[Any, ...], depth: int) -> bool:
    kind = type(sample)
    if foreign and isinstance(sample, foreign):
        return False
    if kind is torch.Tensor:
        return bool(sample.dim() < _MAX_NDIM and can_stack_tensor(sample))
    if kind is np.ndarray or kind is np.memmap:
        return _can_stack_array(sample)
    if kind is int:
        return bool(-(1 << 63) <= sample < 1 << 63)
    if kind in (float, bool, str, bytes) or kind in _SCALARS:
        return True
    if depth == _MAX_DEPTH:
        return False
    if kind is dict:
        # 1 and True are the same key: samples that differ only in that would seem alike
        return all(
            type(key) in (str, int) and _can_stack(value, foreign, depth + 1)
            for key, value in sample.items()
        )
    if kind is tuple or kind is list or is_named_tuple(kind):
        return all(_can_stack(item, foreign, depth + 1) for item in sample)
    return False


def _can_stack_array(array: np.ndarray[Any, Any]) -> bool:
    """Whether torch.as_tensor takes the array, or torch has its type of ml_dtypes."""
    if array.dtype.kind == "V":
        if _extended(array.dtype) is None:
            return False
    elif array.dtype not in _ARRAYS or not array.dtype.isnative:
        return False
    if array.ndim >= _MAX_NDIM:
        return False
    return all(step >= 0 and step % array.itemsize == 0 for step in array.strides)


def _own_functions() -> dict[Any, Any]:
    """Return PyTorch's map of collating functions as it is until a program changes it.

    The functions are looked up anew: a worker of this face has one of its own for tensors.
    """
    its = inner.collate
    return {
        torch.Tensor: its.collate_tensor_fn,
        np.ndarray: its.collate_numpy_array_fn,
        (np.bool_, np.number, np.object_): its.collate_numpy_scalar_fn,
        float: its.collate_float_fn,
        int: its.collate_int_fn,
        str: its.collate_str_fn,
        bytes: its.collate_str_fn,
    }


def _foreign_keys() -> tuple[Any, ...] | None:
    """Return the types that the program added to PyTorch's map of collating functions.

    None: stacking in place would differ from PyTorch, since one of its functions was replaced, or a
    mode of torch (such as a default device) changes what they do.
    """
    its, own = inner.collate, _own_functions()
    found = its.default_collate_fn_map
    if list(found.items())[: len(own)] != list(own.items()):
        return None
    functions = (its.default_collate, its.collate, *own.values())
    if any(getattr(each, "__module__", None) != its.__name__ for each in functions):
        return None
    if inner.is_in_torch_mode():
        return None
    foreign: list[Any] = []
    for key in list(found)[len(own) :]:
        foreign += key if isinstance(key, tuple) else [key]
    return tuple(foreign)
