"""An order that is opened again within its epoch, with samplers at the epoch that they were at.

Imports orders, samplers with a seed and epochs. Keeps nothing; samplers are the user's, and are put
back.
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
    """Have samplers of ours that do not count epochs themselves give the order of an epoch."""
    inner = (getattr(batch_sampler, name, None) for name in ("sampler", "batch_sampler"))
    for each in (sampler, batch_sampler, *inner):
        if isinstance(each, SeededSampler) and not each.counts_epochs:
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
    """Open an order again that was opened in this epoch, and draw its first batch.

    Samplers are put into the epochs they were at then, and back: they may count those themselves.
    """
    begun = {name: each for name, each in epochs.items() if not name.startswith("dataset")}
    carriers = find_carriers(begun, batch_sampler=batch_sampler, sampler=sampler)
    now = [own_epoch(each) for each in carriers]
    try:
        for each, was in zip(carriers, begun.values(), strict=True):
            each.set_epoch(was)
        set_seeded(epoch, sampler, batch_sampler)
        order, batches = opened(state, at)
        first = list(itertools.islice(batches, 1))  # some samplers look at their epoch only here
    finally:
        for each, own in zip(carriers, now, strict=True):
            each.set_epoch(own)
    return order, itertools.chain(first, batches)
