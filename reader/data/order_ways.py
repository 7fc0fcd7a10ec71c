"""The ways of entering an order: anywhere, with the sampler's own state, or by drawing it again.

Imports the log, `reader.data.{entry,order_source,random_state}` and the task format. A way belongs
to one epoch and runs in the thread that dispatches; samplers, and their iterators, are the user's.
"""

from __future__ import annotations

import copy
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import Any

import numpy as np

from reader._core.channel import TaskKind, encode_task
from reader.data.entry import Enterable, entered
from reader.data.order_log import OrderLog, Position
from reader.data.order_source import (
    LOAD,
    Cut,
    check_generators,
    generator_states,
    has_state,
    put_generators,
    state_of,
)
from reader.data.random_state import capture, from_json, swapped_in
from reader.errors import StateError, got

__all__ = ["Entry", "Replay", "Stateful", "can_enter"]

_INTEGERS = (TaskKind.TASK_INDICES, TaskKind.TASK_INDEX)
_CHUNK = 4096  # keys drawn again at a time


def can_enter(batches: Any, cut: Cut | None) -> bool:
    """Whether the order can be entered anywhere."""
    return _is_enterable(batches) if cut is None else _is_enterable(cut.sampler)


def _is_enterable(items: Any) -> bool:
    if type(items) in (list, tuple, range, np.ndarray):
        return True
    for base in type(items).__mro__:
        if "iter_from" in vars(base):
            # the one of the base class draws the items again and passes them by
            return vars(base)["iter_from"] is not vars(Enterable)["iter_from"]
        if "__iter__" in vars(base):
            return False  # an inherited iter_from would give the order of the inherited __iter__
    return False


class Entry:
    """An order that can be entered anywhere; a sampler that draws its seed tells it."""

    def __init__(self, batches: Any, cut: Cut | None, at: Position) -> None:
        self._batches = batches
        self._cut = cut
        self._drawer = _drawer(batches, cut)
        self.log = OrderLog("entry", at, None if cut is None else cut.batch_size)
        self.note = self._note_drawn if self._drawer is not None else None

    def begin(self) -> Iterator[Any]:
        """Begin anew."""
        return iter(self._batches)

    def enter(self, state: dict[str, Any], at: Position) -> Iterator[Any]:
        """Begin at a place."""
        if "drawn" in state:
            self._drawer.load_state_dict(state["drawn"])
        if self._cut is None:
            return _entered(self._batches, at.batches)
        position = at.batches * self._cut.batch_size if at.samples is None else at.samples
        return self._cut.batches(_entered(self._cut.sampler, position))

    def _note_drawn(self, kind: int, payload: bytes) -> None:  # noqa: ARG002
        # now and not before: an order may be drawn when its first item is taken
        self.log.fixed["drawn"] = state_of(self._drawer)

    @staticmethod
    def check(batches: Any, cut: Cut | None, state: dict[str, Any]) -> None:
        """Refuse a state that does not fit."""
        drawer = _drawer(batches, cut)
        if "drawn" in state and (drawer is None or not isinstance(state["drawn"], dict)):
            raise StateError(
                f"drawn in the state must be a dict, got {got(state['drawn'])}. {LOAD}"
            )
        check_state = getattr(drawer, "check_state", None)
        if "drawn" in state and check_state is not None:
            check_state(state["drawn"])

    @staticmethod
    def check_begun(batches: Any, cut: Cut | None, state: dict[str, Any]) -> None:
        """Refuse a state of an order that was begun with nothing drawn, where one is drawn."""
        drawer = _drawer(batches, cut)
        if drawer is not None and "drawn" not in state:
            raise StateError(
                f"the state lacks what the order was drawn with, and {type(drawer).__name__} here"
                f" would draw another one. {LOAD}"
            )


def _drawer(batches: Any, cut: Cut | None) -> Any:
    """The sampler whose state is what its last order was drawn with."""
    source = batches if cut is None else cut.sampler
    return source if has_state(source) else None


def _entered(items: Any, position: int) -> Iterator[Any]:
    return iter(items[position:]) if type(items) is np.ndarray else entered(items, position)


class Replay:
    """An order that is drawn again, from the random state that it began with.

    Args:
        batches: the batch sampler.
        cut: what it cuts.
        at: where the order is entered.
        depth: most batches drawn and not delivered.
        is_lazy: the first batch is drawn later than the epoch is begun.
    """

    def __init__(
        self, batches: Any, cut: Cut | None, at: Position, depth: int, is_lazy: bool
    ) -> None:
        self._batches = batches
        self._cut = cut
        self._source = batches if cut is None else cut.sampler
        self._depth = depth
        self._is_lazy = is_lazy
        self._checksum = 0
        self._drawn = at.batches
        self.log = OrderLog("replay", at, None if cut is None else cut.batch_size)
        self.note: Callable[[int, bytes], Any] | None = self._note_task

    def begin(self) -> Iterator[Any]:
        """Begin anew."""
        self._capture()
        made = iter(self._batches)
        return self._lazily(made) if self._is_lazy else made

    def _capture(self) -> None:
        self.log.keep_checksums(self._depth, 0)
        self.log.random = [capture()]
        generators = generator_states(self._batches)
        if generators:
            self.log.fixed["generators"] = generators
        if has_state(self._source):
            self.log.fixed["source"] = state_of(self._source)
        self.log.fixed.update(self._rank())

    def _rank(self) -> dict[str, Any]:
        """Which part of the order this is, where ranks share one: the checksum is that part's.

        Accelerate saves the state of one rank for all of them.
        """
        for each in (self._batches, self._source):
            for name in ("process_index", "rank"):
                rank = getattr(each, name, None)
                if type(rank) is int:
                    return {"rank": rank}
        return {}

    def _lazily(self, made: Iterator[Any]) -> Iterator[Any]:
        self.log.random.append(capture())
        yield from made

    def enter(self, state: dict[str, Any], at: Position) -> Iterator[Any]:
        """Draw what came before once more, and check that it is the same."""
        put_generators(self._batches, state.get("generators", []))
        rank = self._rank()
        if "source" in state:
            self._source.load_state_dict(copy.deepcopy(state["source"]))
        random = [from_json(each) for each in state["random"]]
        is_own = state.get("rank") == rank.get("rank")  # else another rank's part was noted
        for _ in range(2 if "source" in state else 1):  # its state may be of the epoch before
            self._checksum = 0
            with _swapped(random[0]):
                made = iter(self._batches if self._cut is None else self._source)
            with _swapped(random[-1]):
                missing = self._pass_by(made, at)
                first = list(islice(made, 1))  # what draws its order late draws it here
            is_same = not is_own or self._checksum == state["checksum"]
            if is_same and not missing and (not is_own or self._is_right(first, state)):
                break
        if not is_same or missing:
            raise StateError(
                f"the sampler ({type(self._source).__name__}) does not give the same order again:"
                f" its first {at.batches} batches are not those that were delivered. Give it a seed"
                " of its own, or state_dict and load_state_dict"
            )
        self.log.random = random
        names = ("generators", "source", "first") if is_own else ("generators", "source")
        self.log.fixed = {name: state[name] for name in names if name in state} | rank
        self.log.keep_checksums(self._depth, self._checksum)
        made = chain(first, made)
        return made if self._cut is None else self._cut.batches(made)

    def _is_right(self, first: list[Any], state: dict[str, Any]) -> bool:
        """Whether an epoch that is entered at its beginning begins as it did, where known."""
        if "first" not in state or self._checksum:
            return True
        keys = first if self._cut is not None or not first else first[0]
        return _first_of(keys) == int(state["first"])

    def _pass_by(self, made: Iterator[Any], at: Position) -> bool:
        """Draw what was delivered; whether some of it is missing."""
        if self._cut is None:
            for _ in range(at.batches):
                keys = next(made, None)
                if keys is None:
                    return True
                self._add(*encode_task(keys if type(keys) is list else list(keys), True))
            return False
        size = self._cut.batch_size
        left = at.batches * size if at.samples is None else at.samples
        while left > 0:
            keys = list(islice(made, min(left, _CHUNK)))
            if not keys:
                return left >= size  # the last batch may have been short
            self._add(*encode_task(keys, True))
            left -= len(keys)
        return False

    def _add(self, kind: int, payload: bytes) -> None:
        if kind in _INTEGERS:  # what other keys are written as depends on more than their values
            self._checksum = zlib.crc32(payload, self._checksum)

    def _note_task(self, kind: int, payload: bytes) -> Any:
        self._add(kind, payload)
        self._drawn += 1
        if self._drawn == 1 and "source" in self.log.fixed:
            self.log.fixed["first"] = _first(kind, payload)
        self.log.note_checksum(self._drawn, self._checksum)
        return self._note_task

    @staticmethod
    def check(batches: Any, cut: Cut | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        if type(state.get("checksum")) is not int:
            raise StateError(
                f"checksum in the state must be an int, got {got(state.get('checksum'))}. {LOAD}"
            )
        random = state.get("random")
        if not isinstance(random, list) or len(random) not in (1, 2):
            raise StateError(f"random in the state must be a list, got {got(random)}. {LOAD}")
        for each in random:
            found = from_json(each)
            try:
                with swapped_in(found):
                    pass
            except Exception as error:
                raise StateError(f"random in the state cannot be set: {error!r}. {LOAD}") from error
        check_generators(batches, state)


class Stateful(Replay):
    """An order whose sampler, or whose sampler's iterator, has a state; else it is replayed.

    Args:
        every: take it whenever so many batches were drawn.
    """

    def __init__(
        self,
        batches: Any,
        cut: Cut | None,
        at: Position,
        every: int,
        depth: int,
        is_lazy: bool,
    ) -> None:
        super().__init__(batches, cut, at, depth, is_lazy)
        self._every = every
        self._iterator: Any = None
        self._is_over = False  # nothing comes after the batch drawn last

    def begin(self) -> Iterator[Any]:
        """Begin anew."""
        self._capture()
        self._iterator = iter(self._source)
        if not has_state(self._source) and not has_state(self._iterator):
            made = self._iterator if self._cut is None else self._cut.batches(self._iterator)
            return self._lazily(made) if self._is_lazy else made
        return self._watch()

    def _watch(self) -> Iterator[Any]:
        log = OrderLog("stateful", self.log.first, self.log.batch_size)
        log.keep_states(self._depth, self._every)
        log.note_state(self._drawn, self._states())
        log.fixed["first"] = None
        self.log = log
        self.note = self._note_state
        made = self._iterator if self._cut is None else self._cut.batches(self._iterator)
        return self._ending(made)

    def _ending(self, made: Iterator[Any]) -> Iterator[Any]:
        for batch in made:
            # a short batch has run into the end, and the state may be that of a new beginning
            self._is_over = self._cut is not None and len(batch) < self._cut.batch_size
            yield batch
        self.log.last_iterator = self._states().get("iterator")

    def enter(self, state: dict[str, Any], at: Position) -> Iterator[Any]:  # noqa: ARG002
        """Have the sampler go on from its own state."""
        if "source" in state:
            self._source.load_state_dict(copy.deepcopy(state["source"]))
        self._iterator = iter(self._source)
        if "iterator" in state and self._iterator is not self._source:
            if not has_state(self._iterator):
                raise StateError(
                    f"the state has one of the sampler's iterator, and that of"
                    f" {type(self._source).__name__} here has no load_state_dict. {LOAD}"
                )
            self._iterator.load_state_dict(copy.deepcopy(state["iterator"]))
        self._is_over = state.get("over", False)
        if self._is_over:
            self._watch()
            self.log.last_iterator = self._states().get("iterator")
            return iter(())
        for _ in islice(self._iterator, state["skip"]):
            pass
        return self._watch()  # not before: the state it notes is that of this place

    def with_right_first(self, made: Iterator[Any], first_key: int | None) -> Iterator[Any]:
        """Return the epoch whose sampler was put where it was between two epochs.

        A sampler that keeps its place may say there that nothing, or only a rest, is left; iterated
        over again it begins anew. `first_key`: checksum of the right first key, where known.
        """
        first = next(made, None)
        if first is None or (first_key is not None and _first_of(first) != first_key):
            return self.begin()
        return chain([first], made)

    def _states(self) -> dict[str, Any]:
        found: dict[str, Any] = {"over": True} if self._is_over else {}
        if has_state(self._source):
            found["source"] = state_of(self._source)
        if self._iterator is not self._source and has_state(self._iterator):
            found["iterator"] = state_of(self._iterator)
        return found

    def _note_state(self, kind: int, payload: bytes) -> Any:
        self._drawn += 1
        if self._drawn == 1:
            self.log.fixed["first"] = _first(kind, payload)
        # after the first, too: before it, the state may still be that of the epoch before
        if self._drawn == 1 or (self._drawn - self.log.first.batches) % self._every == 0:
            self.log.note_state(self._drawn, self._states())
        return self._note_state

    @staticmethod
    def check(batches: Any, cut: Cut | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        skip = state.get("skip")
        if type(skip) is not int or not 0 <= skip <= sys.maxsize:
            raise StateError(f"skip in the state must be an int from 0, got {got(skip)}. {LOAD}")
        if type(state.get("over", False)) is not bool:
            raise StateError(f"over in the state must be a bool, got {got(state['over'])}. {LOAD}")
        if type(state.get("first", "")) not in (int, type(None)):
            raise StateError(f"first in the state is {got(state.get('first'))}. {LOAD}")
        if "source" not in state and "iterator" not in state:
            raise StateError(f"the state lacks that of the sampler: {got(state)}. {LOAD}")


def _first_of(batch: Any) -> int:
    return _first(*encode_task(batch if type(batch) is list else list(batch), True))


def _first(kind: int, payload: bytes) -> int:
    """A checksum of the first key alone, for the batches may be cut otherwise."""
    return zlib.crc32(payload[:8]) if kind in _INTEGERS else 0


def _swapped(random: dict[str, Any]) -> AbstractContextManager[None]:
    return swapped_in(random) if random else nullcontext()
