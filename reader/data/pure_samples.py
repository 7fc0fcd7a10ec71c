"""Whether the samples of a dataset are pure: each a function of its index, whoever fetches it.

Imports `known_datasets`, `columns` and the core, and reads no sample. Only of such a dataset may
several workers make rows of one batch, or may a face fetch samples otherwise than its library does.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from reader._core.interpreter.own_attribute import MISSING, own_attribute
from reader.data.columns import INDICES, columns_of
from reader.data.known_datasets import ARRAYS, CHOSEN, JOINED, known_class
from reader.errors import ConfigTypeError, got
from reader.sharing.shared_list import SharedList

__all__ = ["has_pure_samples", "holds_numbers"]

_NAME = "has_pure_samples"
_FETCHING = ("__getitem__", "__getitems__", "__getattribute__")
_PLAIN = (list, tuple, range)


def has_pure_samples(dataset: Any) -> bool:
    """Whether the samples of a dataset are known to be pure.

    A dataset says so by its attribute `has_pure_samples`. A class's attribute also holds for its
    subclasses, except for one that fetches samples in its own way: that one must set it anew. What
    only `__getattr__` finds does not count: wrappers pass on what another dataset says. Lists and
    arrays are known to be pure, and so are chosen and joined samples of pure datasets.

    Raises:
        ConfigTypeError: the attribute is neither True nor False.
    """
    if _says(dataset):
        said = getattr(dataset, _NAME)
        if not isinstance(said, (bool, np.bool_)):
            raise ConfigTypeError(
                f"{_NAME} of a dataset must be True or False, got {got(said)}. True promises that"
                " a sample depends only on its index and on reader.sample_rng"
            )
        return bool(said)
    if type(dataset) in (*_PLAIN, SharedList):
        return True
    chosen = known_class(dataset, CHOSEN)
    if chosen is not None:
        is_plain = type(dataset.indices) in INDICES
        return is_plain and has_pure_samples(getattr(dataset, chosen.parts))
    joined = known_class(dataset, JOINED)
    if joined is not None:
        return all(has_pure_samples(part) for part in getattr(dataset, joined.parts))
    return columns_of(dataset) is not None


def holds_numbers(dataset: Any) -> bool:
    """Whether a dataset is arrays of numbers, so that no code of the user's fetches or stacks them.

    False for lists, arrays of objects and subclasses: code of the user's may be in those.
    """
    if type(dataset) is range:
        return True
    known = known_class(dataset, ARRAYS)
    arrays = [dataset]
    if known is not None:
        if (type(dataset).__module__, type(dataset).__name__) != (known.module, known.name):
            return False
        arrays = getattr(dataset, known.parts)
    elif known_class(dataset, CHOSEN) is not None:
        return False
    has_objects = any(type(each) is np.ndarray and each.dtype.hasobject for each in arrays)
    return not has_objects and columns_of(dataset) is not None


def _says(dataset: Any) -> bool:
    """Whether the attribute is set, on the dataset or on a class whose way of fetching it keeps."""
    for cls in type(dataset).__mro__:
        if _NAME in vars(cls):
            return True
        if any(name in vars(cls) for name in _FETCHING):
            break
    return own_attribute(dataset, _NAME, MISSING) is not MISSING
