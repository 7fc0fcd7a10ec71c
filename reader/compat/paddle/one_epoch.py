"""A batch sampler that is a generator: good for one epoch, and said so in the second.

Imports `reader.errors`. It belongs to the loader it was given to.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from reader.errors import ConfigError, got

__all__ = ["OneEpoch"]


class OneEpoch:
    """Iterates over a one-shot iterator once. ConfigError at the second time."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._is_used = False

    def __iter__(self) -> Iterator[Any]:
        if self._is_used:
            raise ConfigError(
                f"batch_sampler is the one-shot iterator or generator {got(self._batches)}, which"
                " the first epoch used up. Pass list(batch_sampler), or an object whose __iter__ is"
                " the generator function"
            )
        self._is_used = True
        return self._batches
