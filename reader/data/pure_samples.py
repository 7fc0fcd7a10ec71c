"""Whether the samples of a dataset are pure: each a function of its index, whoever fetches it.

Imports `known_datasets`, `columns` and the core, and reads no sample. Only of such a dataset may
several workers make rows of one batch, or may a face fetch samples otherwise than its library does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reader._core.interpreter.own_attribute import MISSING, own_attribute
from reader.data.columns import columns_of
from reader.data.known_datasets import CHOSEN, JOINED, known_class
from reader.errors import ConfigTypeError, got

__all__ = ["has_pure_samples", "runs_no_user_code"]

_NAME = "has_pure_samples"
_FETCHING = ("__getitem__", "__getitems__", "__getattribute__")
_PLAIN = (list, tuple, range)


def has_pure_samples(dataset: Any) -> bool:
    """Whether the samples of a dataset are known to be pure.

    A dataset says so by its attribute `has_pure_samples`. That of a class holds for subclasses that
    fetch samples as it does; one with a `__getitem__` of its own says so anew. Nothing is asked of
    `__getattr__`, by which wrappers pass on what another dataset says. Known to be pure are lists
    and arrays as well, and chosen and joined samples of pure datasets.

    Raises:
        ConfigTypeError: the attribute is neither True nor False.
    """
    if _says(dataset):
        said = getattr(dataset, _NAME)
        if not isinstance(said, (bool, np.bool_)):
            raise ConfigTypeError(
                f"{_NAME} of a dataset must be True or False, got {got(said)}. True promises that"
                " a sample depends on its index alone, and on reader.sample_rng"
            )
        return bool(said)
    return _is_known(dataset, has_pure_samples)


def runs_no_user_code(dataset: Any) -> bool:
    """Whether samples are known to be fetched without code of the user: they draw no numbers.

    So it is of lists and arrays, and of chosen and joined samples of these.
    """
    return _is_known(dataset, runs_no_user_code)


def _is_known(dataset: Any, holds: Callable[[Any], bool]) -> bool:
    """Whether a dataset is one of those known, and `holds` is true of what it is made of."""
    if type(dataset) in _PLAIN:
        return True
    chosen = known_class(dataset, CHOSEN)
    if chosen is not None:
        is_plain = type(dataset.indices) in (*_PLAIN, np.ndarray)
        return is_plain and holds(getattr(dataset, chosen.parts))
    joined = known_class(dataset, JOINED)
    if joined is not None:
        return all(holds(part) for part in getattr(dataset, joined.parts))
    return columns_of(dataset) is not None


def _says(dataset: Any) -> bool:
    """Whether the dataset or its class has the attribute, and fetches samples as the one meant."""
    for cls in type(dataset).__mro__:
        if _NAME in vars(cls):
            return True
        if any(name in vars(cls) for name in _FETCHING):
            break
    return own_attribute(dataset, _NAME, MISSING) is not MISSING
