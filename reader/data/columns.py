"""Fetch without a copy: from datasets that are arrays, and from samples that write themselves.

Imports the core's Columns and the known classes of datasets. It reads no sample.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from reader._core.collate.columns import Columns
from reader.data.dataset import Dataset, MappedDataset
from reader.data.known_datasets import ARRAYS, CHOSEN, known_class
from reader.sharing.shared_array import SharedArray
from reader.sharing.shared_list import SharedList

__all__ = ["INDICES", "columns_of", "filler_of", "reading_ahead"]

# kinds of lists of indices whose items come without code of the user's
INDICES = (list, tuple, range, np.ndarray, SharedArray, SharedList)

_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)

_TENSORS = (("torch", "Tensor"), ("paddle", "Tensor"), ("mxnet.ndarray", "NDArray"))
_NAMES = {name for _, name in _TENSORS}


def columns_of(dataset: Any) -> Columns | None:
    """Return the arrays whose rows a dataset's samples are; None where samples come from elsewhere.

    Known are NumPy arrays, maps of files and tensors themselves, and the classes of reader,
    PyTorch, Paddle and Gluon that hold arrays side by side, or chosen samples of such a dataset. A
    subclass that fetches samples in a way of its own is none of these.
    """
    source, indices = dataset, []
    while known_class(dataset, CHOSEN) is not None:
        if type(dataset.indices) not in INDICES:
            return None
        indices.append(dataset.indices)
        dataset = dataset.dataset
    fill = _batch_filler_of(dataset)
    if fill is not None:
        return Columns(source, None, indices, fill)
    arrays = _arrays_of(dataset)
    return None if arrays is None else Columns(source, arrays, indices)


def filler_of(dataset: Any) -> Callable[[Any, Any], Any] | None:
    """Return the function that fetches a sample into its row of the batch; None: there is none.

    It is called with a key and `out`, for a `reader.Dataset` whose `__getitem__` has a parameter
    `out=None`, and for chosen samples of one. In a dataset that was written for another library a
    parameter of that name means something else.
    """
    if known_class(dataset, CHOSEN) is not None:
        inner, indices = filler_of(dataset.dataset), dataset.indices
        return None if inner is None else lambda key, out: inner(indices[key], out)
    if not isinstance(dataset, Dataset) or hasattr(dataset, "__getitems__"):  # fetches many at once
        return None
    fetch: Any = type(dataset).__getitem__
    if not _takes_out(fetch):
        return None
    fetches: Any = dataset
    return lambda key, out: fetches.__getitem__(key, out=out)


def reading_ahead(dataset: Any, name: str = "__read_ahead__") -> Callable[..., None] | None:
    """Return the function that has the files of samples read ahead; None: there is none.

    It is called with keys, for a `reader.Dataset` that has such a method, and for chosen or mapped
    samples of one.

    Args:
        dataset: that is asked.
        name: "__read_ahead__", which is called in workers with the keys of a batch, and returns
            when they can be read; or "__expect__", called in the trainer with keys that come next,
            and whether an epoch begins with them: it does not wait for their bytes.
    """
    if known_class(dataset, CHOSEN) is not None:
        inner, indices = reading_ahead(dataset.dataset, name), dataset.indices
        if inner is None:
            return None
        return lambda keys, *begins: inner([indices[key] for key in keys], *begins)
    if not isinstance(dataset, Dataset):
        return None
    if type(dataset) is MappedDataset:
        return reading_ahead(dataset.dataset, name)
    return getattr(dataset, name, None)


def _batch_filler_of(dataset: Any) -> Callable[[Any, Any], None] | None:
    """Return the function that writes the rows of a batch; None: there is none.

    It is `__fill_batch__` of a `reader.Dataset`, called with indices and a dict of arrays, unless a
    subclass fetches samples in a way of its own.
    """
    if isinstance(dataset, Dataset):
        for kind in type(dataset).__mro__:
            if "__fill_batch__" in vars(kind):
                return dataset.__fill_batch__  # type: ignore[attr-defined,no-any-return]
            if "__getitem__" in vars(kind) or "__getitems__" in vars(kind):
                return None
    return None


def _takes_out(fetch: Any) -> bool:
    """Whether a function has a parameter `out` that may be given by name."""
    if type(fetch) is FunctionType and not fetch.__dict__:  # a decorator could say otherwise
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
        alone = (_plain(dataset),)
        return lambda: alone
    known = known_class(dataset, ARRAYS)
    if known is None:
        return None
    name = known.parts
    if not all(map(_is_array, getattr(dataset, name))):
        return None
    return lambda: [_plain(array) for array in getattr(dataset, name)]


def _plain(array: Any) -> Any:
    """Return the plain array of a shared one."""
    return array.view(np.ndarray) if type(array) is SharedArray else array


def _is_array(value: Any) -> bool:
    kind = type(value)
    if kind in (np.ndarray, np.memmap, SharedArray):
        return bool(value.ndim)
    if kind.__name__ not in _NAMES:
        return False
    return any(kind is getattr(sys.modules.get(module), name, None) for module, name in _TENSORS)
