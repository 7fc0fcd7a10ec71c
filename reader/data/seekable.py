"""Iterating over a sampler or batch sampler from any position.

Imports `reader.checks`. Nothing here keeps state: the order belongs to the sampler, and an iterator
to its caller.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Generic, TypeVar

from reader.checks import as_int

__all__ = ["Seekable", "as_position", "iterate_from"]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")

_SEQUENCES = (list, tuple, range)  # whose iterators can seek


class Seekable(Generic[T_co]):
    """Base class of samplers and batch samplers: `iter_from` iterates from any position."""

    def __init_subclass__(cls, **options: Any) -> None:
        """Give a class with an `__iter__` of its own the `iter_from` that skips items."""
        super().__init_subclass__(**options)
        for base in cls.__mro__:
            if "iter_from" in vars(base):
                return
            if "__iter__" in vars(base):
                # an inherited iter_from would give the order of the inherited __iter__
                cls.iter_from = Seekable.iter_from  # type: ignore[method-assign]
                return

    def iter_from(self, position: int) -> Iterator[T_co]:
        """Iterate over what `iter(self)` would give now, from the item at `position` on.

        Like `iter(self)` it begins an iteration, and counts an epoch where `iter(self)` does.

        Args:
            position: how many items to skip, 0 or more; past the end nothing comes.

        Raises:
            ConfigError: a position that is no int of 0 or more.
        """
        position = as_position(position)
        return islice(iter(self), position, None)  # type: ignore[call-overload]


def as_position(position: object) -> int:
    """Return the position of an item, from 0. Else ConfigError."""
    return as_int("position", position, low=0, remedy="It is how many items to leave out.")


def iterate_from(items: Iterable[T], position: int) -> Iterator[T]:
    """Iterate over `items` from the one at `position` on, at once where its kind allows it.

    Args:
        items: a sampler, or any iterable; one without `iter_from` that is no list, tuple or range
            is read from its beginning.
        position: from 0; any size.
    """
    position = min(position, sys.maxsize)
    if callable(getattr(type(items), "iter_from", None)):
        found: Iterator[T] = items.iter_from(position)  # type: ignore[attr-defined]
        return found
    iterator = iter(items)
    if type(items) in _SEQUENCES:
        iterator.__setstate__(position)  # type: ignore[attr-defined]
        return iterator
    return islice(iterator, position, None)
