"""Reopen an order within its epoch, with the samplers at their epoch of that time.

Imports orders, samplers with a seed and epochs. Keeps nothing; samplers are the user's, and are
restored.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from reader.data.epochs import find_carriers, own_epoch
from reader.data.sampler import SeededSampler
from reader.orders.order import Order
from reader.orders.order_origin import Position

__all__ = ["reopened", "set_seeded"]


def set_seeded(epoch: int, sampler: Any, batch_sampler: Any) -> None:
    """Set the epoch of samplers of this package that do not count epochs themselves."""
    inner = getattr(batch_sampler, "sampler", None), getattr(batch_sampler, "batch_sampler", None)
    for each in (sampler, batch_sampler, *inner):
        # most samplers lack the attribute, which is found faster than the base class
        if getattr(each, "counts_epochs", True):
            continue
        if isinstance(each, SeededSampler):
            each.set_epoch(epoch)


def reopened(
    opened: Callable[[dict[str, Any], Position], tuple[Order, Iterator[Any]]],
    epoch: int,
    epochs: dict[str, int],
    sampler: Any,
    batch_sampler: Any,
    state: dict[str, Any],
    at: Position,
) -> tuple[Order, Iterator[Any]]:
    """Reopen an order that was opened in this epoch, and draw its first batch.

    Samplers are set to their epochs of that time, and back: they may count epochs themselves.
    """
    begun = {name: each for name, each in epochs.items() if not name.startswith("dataset")}
    carriers = find_carriers(begun, batch_sampler=batch_sampler, sampler=sampler)
    now = [own_epoch(each) for each in carriers]
    try:
        for each, was in zip(carriers, begun.values(), strict=True):
            each.set_epoch(was)
        set_seeded(epoch, sampler, batch_sampler)
        order, batches = opened(state, at)
        first = list(itertools.islice(batches, 1))  # some samplers read their epoch only here
    finally:
        for each, own in zip(carriers, now, strict=True):
            each.set_epoch(own)
    return order, itertools.chain(first, batches)
