"""The shuffled order of an epoch, which computes the index at any place directly.

Imports `reader._core.random.permutation`, which computes it, and `reader.random.seeds`. An order
never changes once it is made; an iterator over it belongs to the caller.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Protocol

import numpy as np
import numpy.typing as npt

from reader._core.random.permutation import Permutation
from reader.random.seeds import order_key

__all__ = ["ALGORITHM", "Order", "Permutation", "indices_at", "shuffled"]

# The version of Permutation's values. Saved states name a place in an order, so any change of a
# value for a (count, key) is a new version and needs an entry in the changelog.
ALGORITHM = 1

# How many indices become Python ints at a time: few at first, for a quick first batch.
_FIRST, _MOST = 64, 4096


class Order(Protocol):
    """An order of samples that can be opened at any place, such as a Permutation."""

    def __getitem__(self, place: int, /) -> int:
        """Return the index at a place."""

    def take(self, start: int, stop: int, step: int = 1) -> npt.NDArray[np.int64]:
        """Return the indices at the places of range(start, stop, step)."""


def shuffled(count: int, seed: int, epoch: int) -> Permutation:
    """Return the order in which `epoch` takes `count` samples: a function of its arguments.

    Args:
        count: how many, 0 or more.
        seed: an int in [0, 2**64).
        epoch: from 0.
    """
    return Permutation(count, order_key(seed, epoch))


def indices_at(order: Order, places: range) -> Iterator[int]:
    """Iterate over the indices at some places of an order, as Python ints.

    Args:
        order: of up to 2**63 - 1 indices; the iterator keeps a few thousand of them.
        places: within the order, with a step from 1.
    """
    return chain.from_iterable(_chunks(order, places))


def _chunks(order: Order, places: range) -> Iterator[list[int]]:
    length, step = _FIRST, places.step
    while places:
        chunk, places = places[:length], places[length:]
        yield order.take(chunk.start, chunk[-1] + 1, step).tolist()
        length = min(length * 4, _MOST)
