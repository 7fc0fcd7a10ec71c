"""The order of an epoch's batches: begun anew, or entered where a saved state says.

Imports the ways of doing it and `reader.errors`. An Order belongs to one epoch and runs in the
thread that dispatches; samplers are the user's. Its log is plain data that outlives it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from reader.data.order_log import OrderLog, Position
from reader.data.order_source import (
    LOAD,
    Cut,
    check_generators,
    cut_of,
    generator_states,
    has_state,
    put_generators,
    state_of,
)
from reader.data.order_ways import Entry, Replay, Stateful, can_enter
from reader.data.order_world import World, is_world_sampler
from reader.errors import StateError, got

__all__ = ["Note", "Order", "boundary_state", "check_order_state"]

Note = Callable[[int, bytes], Any]  # told of each task drawn; returns what to tell of the next one


class Order:
    """The batches of one epoch, and what has to be known to go on with them elsewhere.

    There are four ways, by what the batch sampler is: an order that can be *entered* anywhere; one
    of *ranks in lockstep* that share it; one whose sampler has a *state* of its own; and any other,
    which is *replayed* from the random state it began with, and checked against a checksum.

    Args:
        batches: yields lists of dataset keys; iterated over anew for each epoch.
        every: take the state of a stateful sampler whenever this many batches were drawn; 0: never.
        depth: most batches drawn and not delivered: so many states are kept.
        is_lazy: the first batch is drawn later than the epoch is begun.
    """

    def __init__(
        self, batches: Iterable[Any], every: int = 1, depth: int = 1, is_lazy: bool = False
    ) -> None:
        self._batches: Any = batches
        self._cut = cut_of(batches)
        self._every = every
        self._depth = depth
        self._is_lazy = is_lazy
        self.note: Note | None = None
        self.log: OrderLog = OrderLog("entry", Position(), None)

    def begin(self, state: dict[str, Any] | None, at: Position) -> Iterator[Any]:
        """Begin the epoch; `note` and `log` are those of this epoch from then on.

        Args:
            state: the order's part of a saved state, checked by `check_order_state`; None: none.
            at: where the epoch was left; with another batch size than `state` was taken with, in
                samples.

        Raises:
            StateError: the sampler does not give the same order again.
            Exception: whatever the sampler raises.
        """
        if state is not None and state["way"] == "boundary":
            self._restore(state)
            return self._begin_anew(True)
        if state is None:
            return self._begin_anew(False)
        way = self._way(state["way"], at)
        made: Iterator[Any] = way.enter(state, at)
        if isinstance(way, Stateful) and at.batches == 0 and not at.samples:
            made = way.with_right_first(made, state.get("first"))
        self.note, self.log = way.note, way.log
        return made

    def _begin_anew(self, is_restored: bool) -> Iterator[Any]:
        way = self._way(way_of(self._batches, self._every), Position(0, 0))
        made: Iterator[Any] = way.begin()
        if is_restored and isinstance(way, Stateful):
            made = way.with_right_first(made, None)
        self.note, self.log = way.note, way.log
        return made

    def _way(self, name: str, at: Position) -> Any:
        if name == "entry":
            return Entry(self._batches, self._cut, at)
        if name == "world" and self._cut is not None:
            return World(self._cut, at)
        if name == "replay":
            return Replay(self._batches, self._cut, at, self._depth, self._is_lazy)
        every = max(1, self._every)
        return Stateful(self._batches, self._cut, at, every, self._depth, self._is_lazy)

    def _restore(self, state: dict[str, Any]) -> None:
        """Put samplers where they were between two epochs."""
        source = self._batches if self._cut is None else self._cut.sampler
        if "source" in state:
            source.load_state_dict(state["source"])
        if "iterator" in state:  # that of the epoch that was over: it brings the sampler there
            iterator = iter(source)
            if has_state(iterator):
                iterator.load_state_dict(state["iterator"])
        put_generators(self._batches, state.get("generators", []))


def way_of(batches: Any, every: int) -> str:
    """Return which way an order that is begun now takes, as far as its batch sampler tells."""
    cut = cut_of(batches)
    if cut is not None and is_world_sampler(cut.sampler):
        return "world"
    if can_enter(batches, cut):
        return "entry"
    return "stateful" if every else "replay"


def boundary_state(batches: Any, log: OrderLog | None) -> dict[str, Any]:
    """Return the order's part of a state between two epochs.

    Args:
        batches: the batch sampler.
        log: of the epoch before, None before the first.
    """
    cut = cut_of(batches)
    source = batches if cut is None else cut.sampler
    found: dict[str, Any] = {"way": "boundary"}
    if way_of(batches, 1) == "stateful":
        if has_state(source):
            found["source"] = state_of(source)
        last = None if log is None else log.last_iterator
        if last is not None:
            found["iterator"] = last
    generators = generator_states(batches)
    if generators:
        found["generators"] = generators
    return found


def check_order_state(batches: Any, state: Any, every: int, is_begun: bool = False) -> None:
    """Check that an order of `batches` can be entered by `state`; looks and changes nothing.

    `is_begun`: some of it was delivered.

    Raises:
        StateError: it cannot.
    """
    if not isinstance(state, dict) or not isinstance(state.get("way"), str):
        raise StateError(f"order in the state must be a dict with a way, got {got(state)}. {LOAD}")
    way = state["way"]
    own = way_of(batches, every)
    cut = cut_of(batches)
    source = batches if cut is None else cut.sampler
    is_able = {
        "boundary": True,
        "entry": own == "entry",
        "world": own == "world",
        "stateful": own in ("stateful", "replay"),
        "replay": True,
    }
    if not is_able.get(way, False):
        raise StateError(
            f"the order in the state was left in the way {way!r}, and that of"
            f" {type(source).__name__} here is entered by {own!r}. {LOAD}"
        )
    check = {
        "entry": Entry.check,
        "world": World.check,
        "stateful": Stateful.check,
        "replay": Replay.check,
        "boundary": _check_boundary,
    }[way]
    check(batches, cut, state)
    if way == "entry" and is_begun:
        Entry.check_begun(batches, cut, state)
    if "source" in state and not has_state(source):
        raise StateError(
            f"the state has one of the sampler, and {type(source).__name__} here has no"
            f" load_state_dict. {LOAD}"
        )


def _check_boundary(batches: Any, cut: Cut | None, state: dict[str, Any]) -> None:  # noqa: ARG001
    check_generators(batches, state)
