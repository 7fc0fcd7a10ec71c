"""An order that can be opened at any position in constant time.

Imports the samplers of `reader.data`, `order_origin` and `base_sampler`. An order belongs
to one epoch and runs in the thread that draws tasks; the samplers are the user's.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from reader.data.batch_sampler import NoBatching
from reader.data.sampler import RandomSampler, SequenceSampler, check_facts
from reader.data.seekable import iterate_from
from reader.errors import StateError, got
from reader.orders.base_sampler import LOAD, Batching, has_state, state_of
from reader.orders.order_origin import OrderKind, OrderOrigin, Position

__all__ = ["SeekableOrder"]


class SeekableOrder:
    """The order of a sampler with `iter_from`. The state has the seed that the sampler drew.

    Args:
        batches: the batch sampler.
        batching: the sampler and batch size, if it only makes batches.
        at: the position to open it at.
    """

    start: Any = None  # the mark before the first batch
    mark: Any = None  # the number of a batch is enough
    is_checked = True

    def __init__(self, batches: Any, batching: Batching | None, at: Position) -> None:
        self._batches = batches
        self._batching = batching
        self._drawer = _drawer(batches, batching)
        self.origin = OrderOrigin(
            OrderKind.SEEKABLE, at, None if batching is None else batching.batch_size
        )

    def begin(self) -> Iterator[Any]:
        """Begin the order."""
        found = self._index_batches(0)
        return iter(self._batches) if found is None else found

    def open_at(self, state: dict[str, Any], at: Position) -> Iterator[Any]:
        """Begin at a saved position."""
        # behind the last batch no other is drawn, and `note_first` is not called
        self.origin.fix({name: state[name] for name in ("drawn", "facts") if name in state})
        if "drawn" in state:
            self._drawer.load_state_dict(state["drawn"])
        if self._batching is None:
            return _from(self._batches, at.batches)
        position = at.samples
        if position is None:
            position = at.batches * self._batching.batch_size
        found = self._index_batches(position)
        if found is not None:
            return found
        return self._batching.batches(_from(self._batching.sampler, position))

    def _index_batches(self, position: int) -> Iterator[Any] | None:
        """Return the batches without Python integers for the indices; None: they have others."""
        batching = self._batching
        if batching is None or isinstance(self._batches, NoBatching):
            return None
        if type(batching.sampler) not in (SequenceSampler, RandomSampler):
            return None
        batches: Iterator[Any] = batching.sampler.index_batches(
            position, batching.batch_size, batching.drop_last
        )
        return batches

    def note_first(self, kind: int, payload: Any) -> None:  # noqa: ARG002
        """Record the order's seed or random state: many samplers draw it with their first item."""
        if self._drawer is not None:
            self.origin.fixed["drawn"] = state_of(self._drawer)
        elif _has_facts(self._batches):
            self.origin.fixed["facts"] = self._batches.order_facts()

    @staticmethod
    def check(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:
        """Refuse a state that does not fit."""
        drawer = _drawer(batches, batching)
        if "drawn" in state and (drawer is None or not isinstance(state["drawn"], dict)):
            raise StateError(
                f"drawn in the state must be a dict, got {got(state['drawn'])}. {LOAD}"
            )
        check_state = getattr(drawer, "check_state", None)
        if "drawn" in state and check_state is not None:
            check_state(state["drawn"])
        source = batches if drawer is None else drawer
        if _has_facts(source):
            check_facts(source, state.get("facts") if drawer is None else state.get("drawn"))

    @staticmethod
    def check_begun(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:
        """Refuse a state that lacks the seed of an order that was drawn with one."""
        drawer = _drawer(batches, batching)
        if drawer is not None and "drawn" not in state:
            raise StateError(
                "the state must have 'drawn', the seed or random state of the order: without it,"
                f" {type(drawer).__name__} here would give another order. {LOAD}"
            )


def _drawer(batches: Any, batching: Batching | None) -> Any:
    """The sampler whose state is the seed or random state of its last order."""
    source = batches if batching is None else batching.sampler
    return source if has_state(source) else None


def _has_facts(source: Any) -> bool:
    return hasattr(type(source), "order_facts")


def _from(items: Any, position: int) -> Iterator[Any]:
    return iter(items[position:]) if type(items) is np.ndarray else iterate_from(items, position)
