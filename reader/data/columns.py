"""Datasets that are arrays: which they are, and where their arrays lie.

Imports the core's Columns; knows other libraries' classes once those have imported them. It looks,
and reads no sample.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from reader._core.columns import Columns

__all__ = ["columns_of", "filler_of"]

# Classes of arrays side by side, and of chosen samples of a dataset: where each is defined, its
# name, and the attributes that hold what it was made of.
_SIDE_BY_SIDE = (
    ("reader.data.datasets", "TensorDataset", "tensors"),
    ("torch.utils.data.dataset", "TensorDataset", "tensors"),
    ("paddle.io.dataloader.dataset", "TensorDataset", "tensors"),
    ("paddle.fluid.dataloader.dataset", "TensorDataset", "tensors"),
    ("reader.compat.gluon.datasets", "ArrayDataset", "_arrays"),
    ("mxnet.gluon.data.dataset", "ArrayDataset", "_data"),
)
_CHOSEN = (
    ("reader.data.subset", "Subset"),
    ("torch.utils.data.dataset", "Subset"),
    ("paddle.io.dataloader.dataset", "Subset"),
    ("paddle.fluid.dataloader.dataset", "Subset"),
)

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_TENSORS = ("torch.Tensor", "paddle.Tensor", "mxnet.ndarray.NDArray")


def columns_of(dataset: Any) -> Columns | None:
    """Return the arrays whose rows a dataset's samples are; None where samples come from elsewhere.

    Known are NumPy arrays, maps of files and tensors themselves, and the classes of reader,
    PyTorch, Paddle and Gluon that hold arrays side by side, or chosen samples of such a dataset. A
    subclass that fetches samples in a way of its own is none of these.
    """
    source, indices = dataset, []
    while _fetches_as(dataset, _CHOSEN) is not None:
        if type(dataset.indices) not in (list, tuple, range, np.ndarray):
            return None
        indices.append(dataset.indices)
        dataset = dataset.dataset
    arrays = _arrays_of(dataset)
    return None if arrays is None else Columns(source, arrays, indices)


def filler_of(dataset: Any) -> Callable[[Any, Any], Any] | None:
    """Return what fetches a sample that may write itself to its row; None: the dataset has nothing.

    It is called with a key and `out`, for a dataset whose `__getitem__` has a parameter of that
    name, and for chosen samples of one.
    """
    if _fetches_as(dataset, _CHOSEN) is not None:
        inner, indices = filler_of(dataset.dataset), dataset.indices
        return None if inner is None else lambda key, out: inner(indices[key], out)
    fetch = getattr(type(dataset), "__getitem__", None)
    if hasattr(dataset, "__getitems__"):
        return None  # it fetches many at once
    return (lambda key, out: dataset.__getitem__(key, out=out)) if _takes_out(fetch) else None


def _takes_out(fetch: Any) -> bool:
    """Whether a function has a parameter `out` that may be given by name."""
    if type(fetch) is FunctionType and not fetch.__dict__:  # no decorator says otherwise
        code = fetch.__code__
        named = slice(code.co_posonlyargcount, code.co_argcount + code.co_kwonlyargcount)
        return "out" in code.co_varnames[named]
    try:
        parameter = inspect.signature(fetch).parameters.get("out")
    except (TypeError, ValueError):
        return False
    return parameter is not None and parameter.kind in _BY_NAME


def _arrays_of(dataset: Any) -> Callable[[], Sequence[Any]] | None:
    if _is_array(dataset):
        alone = (dataset,)
        return lambda: alone
    known = _fetches_as(dataset, _SIDE_BY_SIDE)
    if known is None:
        return None
    name = known[2]
    if not all(map(_is_array, getattr(dataset, name))):
        return None
    return lambda: getattr(dataset, name)


def _is_array(value: Any) -> bool:
    kind = type(value)
    if kind is np.ndarray or kind is np.memmap:
        return bool(value.ndim)
    return any(kind is _class(*name.rsplit(".", 1)) for name in _TENSORS)


def _class(module: str, name: str) -> Any:
    return getattr(sys.modules.get(module), name, None)


def _fetches_as(dataset: Any, known: Sequence[tuple[str, ...]]) -> tuple[str, ...] | None:
    """Return the entry of the class whose methods fetch the dataset's samples."""
    kind = type(dataset)
    for entry in known:
        cls = _class(*entry[:2])
        if cls is not None and all(
            getattr(kind, name, None) is getattr(cls, name, None)
            for name in ("__getitem__", "__getitems__", "__getattribute__")
        ):
            return entry
    return None
