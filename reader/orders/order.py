"""The order of an epoch's batches: begun, or opened at the position of a saved state.

Imports the four kinds of order and `reader.errors`. An order belongs to one epoch and runs in the
thread that draws tasks. Samplers are the user's; an order's origin and marks are plain data.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from reader.errors import StateError, got
from reader.orders.base_sampler import (
    LOAD,
    Batching,
    batching_of,
    changes_of,
    check_changes,
    check_generators,
    generator_states,
    has_state,
    is_seekable,
    is_sharding_sampler,
    put_generators,
    state_of,
)
from reader.orders.expected import expected
from reader.orders.order_origin import OrderKind, OrderOrigin, Position
from reader.orders.replayed_order import ReplayedOrder, StatefulOrder
from reader.orders.seekable_order import SeekableOrder
from reader.orders.sharded_order import ShardedOrder

__all__ = ["Order", "boundary_state", "check_order_state", "open_order"]

_BEGINNING = Position(0, 0)


class Order(Protocol):
    """One epoch's order, from which tasks are drawn.

    There are four kinds, by the batch sampler: *seekable*, opened at any position; *sharded* by
    ranks in lockstep; *stateful*, whose sampler has a state; and *replayed*, any other: drawn again
    from its initial random state, and checked against a checksum.

    Attributes:
        origin: data that holds at every position.
        start: the mark before the first batch.
        mark: called with the kind and payload of each task, its number and the mark before it;
            returns the mark after it: the data that a state needs, besides the number of the batch,
            to open the order there. It changes nothing. None: the number is enough.
        is_checked: whether the reopened order is known to be the same.
    """

    origin: OrderOrigin
    start: Any
    mark: Callable[[int, bytes, int, Any], Any] | None
    is_checked: bool

    def note_first(self, kind: int, payload: bytes) -> None:
        """Record data that is known once the first task is drawn."""


def open_order(
    batches: Any,
    state: dict[str, Any] | None = None,
    at: Position = _BEGINNING,
    every: int = 1,
    is_lazy: bool = False,
    seed: int | None = None,
    expect: Callable[..., None] | None = None,
) -> tuple[Order, Iterator[Any]]:
    """Open the order of an epoch; returns it, and the iterator of its batches.

    Args:
        batches: yields lists of dataset keys; iterated over anew for each epoch.
        state: the entry `order` of a saved state, checked by `check_order_state`; None: none.
        at: the position to resume at; in samples if `state` was saved with another batch size.
        every: take the state of a stateful sampler after every this many batches; 0: never.
        is_lazy: whether the first batch is drawn later than the epoch begins.
        seed: of the random state that a replayed order draws from; None: the trainer's own.
        expect: takes indices before their batches are drawn, of orders that can be opened at any
            position; see `expected`. None: nobody has use for them.

    Raises:
        StateError: the sampler does not give the same order again.
        Exception: whatever the sampler raises.
    """
    order, made = _opened(batches, state, at, every, is_lazy, seed)
    if expect is not None and isinstance(order, SeekableOrder):
        made = expected(made, expect)
    return order, made


def _opened(
    batches: Any, state: dict[str, Any] | None, at: Position, every: int, is_lazy: bool, seed: Any
) -> tuple[Any, Iterator[Any]]:
    batching = batching_of(batches)
    is_boundary = state is not None and state["way"] == "boundary"
    if state is not None and not is_boundary:
        order = _order(OrderKind(state["way"]), batches, batching, at, every, is_lazy, seed)
        made: Iterator[Any] = order.open_at(state, at)
        if isinstance(order, StatefulOrder) and at.batches == 0 and not at.samples:
            made = order.with_right_first(made, state.get("first"))
        return order, made
    if state is not None:
        _restore(batches, batching, state)
    kind = _kind_of(batches, batching, every)
    order = _order(kind, batches, batching, _BEGINNING, every, is_lazy, seed)
    made = order.begin()
    if is_boundary and isinstance(order, StatefulOrder):
        made = order.with_right_first(made, None)
    return order, made


def _order(
    kind: OrderKind,
    batches: Any,
    batching: Batching | None,
    at: Position,
    every: int,
    is_lazy: bool,
    seed: int | None,
) -> Any:
    if kind is OrderKind.SEEKABLE:
        return SeekableOrder(batches, batching, at)
    if kind is OrderKind.SHARDED and batching is not None:
        return ShardedOrder(batching, at)
    if kind is OrderKind.REPLAYED:
        return ReplayedOrder(batches, batching, at, is_lazy, seed)
    return StatefulOrder(batches, batching, at, max(1, every), is_lazy, seed)


def _restore(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:
    """Restore samplers to a state saved between two epochs."""
    source = batches if batching is None else batching.sampler
    if "source" in state:
        source.load_state_dict(state["source"])
    if "iterator" in state:  # of the finished epoch: loading it sets the sampler too
        iterator = iter(source)
        if has_state(iterator):
            iterator.load_state_dict(state["iterator"])
    put_generators(batches, state.get("generators", []))
    if "changes" in state:
        source.load_changes(state["changes"])


def _kind_of(batches: Any, batching: Batching | None, every: int) -> OrderKind:
    """Return the kind of an order that begins now."""
    if batching is not None and is_sharding_sampler(batching.sampler):
        return OrderKind.SHARDED
    if is_seekable(batches, batching):
        return OrderKind.SEEKABLE
    return OrderKind.STATEFUL if every else OrderKind.REPLAYED


def boundary_state(batches: Any, origin: OrderOrigin | None) -> dict[str, Any]:
    """Return the entry `order` of a state that is saved between two epochs.

    Args:
        batches: the batch sampler.
        origin: of the previous epoch; None before the first.
    """
    batching = batching_of(batches)
    source = batches if batching is None else batching.sampler
    found: dict[str, Any] = {"way": "boundary"}
    if _kind_of(batches, batching, 1) is OrderKind.STATEFUL:
        if has_state(source):
            found["source"] = state_of(source)
        last = None if origin is None else origin.last_iterator
        if last is not None:
            found["iterator"] = last
    generators = generator_states(batches)
    if generators:
        found["generators"] = generators
    changes = changes_of(source)
    if changes is not None:
        found["changes"] = copy.deepcopy([*changes])
    return found


def check_order_state(batches: Any, state: Any, every: int, is_begun: bool = False) -> None:
    """Check that an order of `batches` can be opened by `state`. Changes nothing.

    `is_begun`: whether some batches were delivered.

    Raises:
        StateError: it cannot.
    """
    if not isinstance(state, dict) or not isinstance(state.get("way"), str):
        raise StateError(
            f"'order' in the state must be a dict with a str 'way', got {got(state)}. {LOAD}"
        )
    way = state["way"]
    batching = batching_of(batches)
    own = _kind_of(batches, batching, every)
    source = batches if batching is None else batching.sampler
    is_replayable = own in (OrderKind.STATEFUL, OrderKind.REPLAYED)
    checks: dict[str, tuple[bool, Callable[..., None]]] = {
        "boundary": (True, _check_boundary),
        OrderKind.SEEKABLE.value: (own is OrderKind.SEEKABLE, SeekableOrder.check),
        OrderKind.SHARDED.value: (own is OrderKind.SHARDED, ShardedOrder.check),
        OrderKind.STATEFUL.value: (is_replayable, StatefulOrder.check),
        OrderKind.REPLAYED.value: (True, ReplayedOrder.check),
    }
    is_able, check = checks.get(way, (False, _check_boundary))
    if not is_able:
        raise StateError(
            f"the order in the state was saved by the method {way!r}, and the order of"
            f" {type(source).__name__} here resumes by {own.value!r}. {LOAD}"
        )
    check(batches, batching, state)
    if way == OrderKind.SEEKABLE.value and is_begun:
        SeekableOrder.check_begun(batches, batching, state)
    if "source" in state and not has_state(source):
        raise StateError(
            f"the state contains a state of the sampler, and {type(source).__name__} here has no"
            f" load_state_dict. {LOAD}"
        )


def _check_boundary(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:
    check_generators(batches, state)
    check_changes(batches if batching is None else batching.sampler, state)
