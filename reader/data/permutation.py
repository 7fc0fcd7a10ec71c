"""The shuffled order of an epoch: which index stands at which place, at no cost for the others.

Imports `reader._core.permutation`, which computes it, and `reader.data.seeds` for its key. An order
is constant once it is made and belongs to nobody; iterators over it belong to who asked.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from reader._core.permutation import Permutation
from reader.data.seeds import order_key

__all__ = ["ALGORITHM", "Permutation", "indices_at", "shuffled"]

# The version of what Permutation computes. Saved states name a place in an order, so a change
# of any value for any (count, key) is a new version, and needs an entry in the changelog.
ALGORITHM = 1

# Indices turned into Python ints at a time: few at first, so that the first batch comes at once.
_FIRST, _MOST = 64, 4096


def shuffled(count: int, seed: int, epoch: int) -> Permutation:
    """Return the order in which `epoch` takes `count` samples: a function of its arguments.

    Args:
        count: how many, 0 or more.
        seed: an int in [0, 2**64).
        epoch: from 0.
    """
    return Permutation(count, order_key(seed, epoch))


def indices_at(order: Permutation, places: range) -> Iterator[int]:
    """Iterate over the indices at some places of an order, as Python ints.

    Args:
        order: of as many as 2**63 - 1 indices; nothing but a few thousand of them is kept.
        places: within the order, with a step from 1.
    """
    return chain.from_iterable(_chunks(order, places))


def _chunks(order: Permutation, places: range) -> Iterator[list[int]]:
    length, step = _FIRST, places.step
    while places:
        part, places = places[:length], places[length:]
        yield order.take(part.start, part[-1] + 1, step).tolist()
        length = min(length * 4, _MOST)
