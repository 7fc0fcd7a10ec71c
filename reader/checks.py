"""Checks of single arguments, shared by every public constructor.

Imports `reader.errors`, numpy and the standard library. Each check returns the converted value, or
raises ConfigError or ConfigTypeError with the value, the limit and a remedy. Keeps no state.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["as_bool", "as_int", "as_reiterable", "has_method"]


def as_int(name: str, value: object, *, low: int, high: int = sys.maxsize, remedy: str) -> int:
    """Return `value` as an int within [low, high]; anything with `__index__` but a bool passes."""
    limit = f"an int of {low} or more" if high == sys.maxsize else f"an int in [{low}, {high}]"
    message = f"{name} must be {limit}, got {got(value)}. {remedy}"
    if isinstance(value, (bool, np.bool_)):
        raise ConfigTypeError(message)
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise ConfigTypeError(message) from None
    if not low <= number <= high:
        raise ConfigError(message)
    return number


def as_bool(name: str, value: object, *, remedy: str = "Pass True or False.") -> bool:
    """Return `value` as a bool; only `bool` and `numpy.bool_` pass."""
    if not isinstance(value, (bool, np.bool_)):
        raise ConfigTypeError(f"{name} must be a bool, got {got(value)}. {remedy}")
    return bool(value)


def as_reiterable(name: str, value: Any) -> Any:
    """Return `value` if each epoch can iterate over it afresh; refuse a one-shot iterator."""
    what = "lists of indices" if name == "batch_sampler" else "dataset indices"
    if isinstance(value, type):
        raise ConfigTypeError(
            f"{name} must be an iterable of {what}, got the class {value.__name__}. Pass an"
            f" instance of it: {value.__name__}(...)."
        )
    if isinstance(value, (str, bytes)) or not has_method(value, "__iter__", "__getitem__"):
        raise ConfigTypeError(
            f"{name} must be an iterable of {what}, got {got(value)}. Pass a list, or an object"
            " whose __iter__ returns a fresh iterator for each epoch."
        )
    if isinstance(value, Iterator):
        raise ConfigError(
            f"{name} must give a fresh iterator for each epoch, got the one-shot iterator"
            f" {got(value)}, which would be empty from the second epoch on. Pass list({name}), or"
            " an object whose __iter__ is the generator function."
        )
    return value


def has_method(value: object, *names: str) -> bool:
    """Say whether the type of `value` has one of the special methods (None switches one off)."""
    return any(getattr(type(value), name, None) is not None for name in names)
