"""A sampler that is a one-shot iterator: it serves one epoch and raises in the second.

Imports `reader.errors`. It belongs to the loader it is passed to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.errors import ConfigError, got

__all__ = ["OneShot"]


class OneShot:
    """Iterates over a one-shot iterator once. ConfigError the second time."""

    def __init__(self, name: str, items: Iterator[Any]) -> None:
        self._name = name  # the argument's name
        self._items = items
        self._is_used = False

    def is_of(self, items: Iterator[Any]) -> bool:
        """Whether it wraps this iterator."""
        return self._items is items

    def __iter__(self) -> Iterator[Any]:
        if self._is_used:
            raise ConfigError(
                f"{self._name} is the one-shot iterator or generator {got(self._items)}, which the"
                f" first epoch exhausted. Pass list({self._name}), or an object whose __iter__ is"
                " the generator function"
            )
        self._is_used = True
        return self._items
