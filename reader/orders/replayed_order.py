"""Orders that are not seekable: replayed and checked, or with a sampler that has a state.

Imports `order_origin`, `base_sampler`, the random state and the task format. An order belongs
to one epoch and runs in the thread that draws tasks; samplers, and their iterators, are the user's.
"""

from __future__ import annotations

import contextlib
import copy
import sys
import zlib
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import chain, islice
from typing import Any

from reader._core.wire.channel import TaskKind, encode_task
from reader.errors import StateError, got
from reader.orders.base_sampler import (
    LOAD,
    Batching,
    check_generators,
    generator_states,
    has_state,
    put_generators,
    state_of,
)
from reader.orders.order_origin import OrderKind, OrderOrigin, Position, StateMark
from reader.random.random_state import capture, from_json, swapped_in
from reader.random.seeds import CapturedState, seed_known_libraries

__all__ = ["ReplayedOrder", "StatefulOrder"]

_INTEGERS = (TaskKind.TASK_INDICES, TaskKind.TASK_INDEX)
_OF_CONTAINERS: tuple[type, ...] = (type(iter([])), type(iter(())), type(iter(range(0))))
_END = object()
_CHUNK = 4096  # keys drawn again at a time


class ReplayedOrder:
    """An order that resumes by drawing it again from its initial random state.

    Args:
        batches: the batch sampler.
        batching: the sampler and batch size, if it only makes batches.
        at: the position to open it at.
        is_lazy: whether the first batch is drawn later than the epoch begins.
        seed: seed of the global random state that the sampler draws from; None: the trainer's own
            state.
    """

    def __init__(
        self,
        batches: Any,
        batching: Batching | None,
        at: Position,
        is_lazy: bool,
        seed: int | None = None,
    ) -> None:
        self._batches = batches
        self._batching = batching
        self._source = batches if batching is None else batching.sampler
        self._is_lazy = is_lazy
        self._seed = seed
        self._checksum = 0
        self.is_checked = True
        self.origin = OrderOrigin(
            OrderKind.REPLAYED, at, None if batching is None else batching.batch_size
        )
        self.start: Any = 0  # the mark in front of the first batch

    def begin(self) -> Iterator[Any]:
        """Begin the order."""
        with self._seeded():
            self._capture()
            made = iter(self._batches)
        return self._drawn(made, made)

    @contextlib.contextmanager
    def _seeded(self) -> Iterator[None]:
        """Let the sampler draw from the seed within the block; then restore the trainer's state."""
        if self._seed is None:
            yield
            return
        put_own_back = CapturedState().put_back
        try:
            seed_known_libraries(self._seed)
            yield
            self.origin.fix({"seeded": True}, [*self.origin.random, capture()])
        finally:
            put_own_back()

    def _capture(self) -> None:
        random, entries = [capture()], self._rank()
        generators = generator_states(self._batches)
        if generators:
            entries["generators"] = generators
        if has_state(self._source):
            entries["source"] = state_of(self._source)
        self.origin.fix(entries, random)

    def _rank(self) -> dict[str, Any]:
        """Return this rank and the world size if ranks share an order: the checksum is per rank.

        Accelerate saves the state of one rank for all of them.
        """
        for each in (self._batches, self._source):
            for name in ("process_index", "rank"):
                rank = getattr(each, name, None)
                if type(rank) is int:
                    return {"rank": rank}
        return {}

    def _drawn(self, keys: Iterator[Any], made: Iterator[Any]) -> Iterator[Any]:
        """Return the batches `made` of `keys`; a sampler may draw these only with the first one."""
        if self._seed is not None:
            return self._seeded_on(keys, made, self.origin.random[-1])
        return self._lazily(made) if self._is_lazy else made

    def _seeded_on(
        self, keys: Iterator[Any], made: Iterator[Any], random: dict[str, Any]
    ) -> Iterator[Any]:
        """Let the sampler draw from the state `random`, not from the trainer's own."""
        batch: Any = None
        draws_more = True
        while batch is not _END:
            with swapped_in(random) if draws_more else nullcontext():
                batch = next(made, _END)
                if draws_more:
                    random = capture()
                    draws_more = not self._draws_at_once(keys)
            if batch is not _END:
                yield batch

    def _draws_at_once(self, keys: Iterator[Any]) -> bool:
        """Whether a sampler draws all its random numbers before its first key."""
        home = getattr(getattr(type(self._source), "__iter__", None), "__module__", None) or ""
        return type(keys) in _OF_CONTAINERS or home.startswith("torch.utils.data.")

    def _lazily(self, made: Iterator[Any]) -> Iterator[Any]:
        self.origin.random.append(capture())
        yield from made

    def open_at(self, state: dict[str, Any], at: Position) -> Iterator[Any]:
        """Draw the batches before `at` again, and check that they are the same."""
        put_generators(self._batches, state.get("generators", []))
        rank = self._rank()
        if "source" in state:
            self._source.load_state_dict(copy.deepcopy(state["source"]))
        random = [from_json(each) for each in state["random"]]
        is_own = state.get("rank") == rank.get("rank")  # otherwise the checksum is another rank's
        for _ in range(2 if "source" in state else 1):
            self._checksum = 0
            with _swapped(random[0]):
                made = iter(self._batches if self._batching is None else self._source)
            with _swapped(random[-1]):
                missing = self._pass_by(made, at)
                first = list(islice(made, 1))  # some samplers draw their order only here
                after = capture() if "seeded" in state else None
            is_same = not is_own or self._checksum == state["checksum"]
            if is_same and not missing and (not is_own or self._is_right(first, state)):
                break
        if not is_same or missing:
            raise StateError(
                f"the sampler ({type(self._source).__name__}) does not give the same order again:"
                f" its first {at.batches} batches are not those that were delivered. Give it a seed"
                " of its own, or state_dict and load_state_dict"
            )
        names = ("seeded", "generators", "source", *(("first",) if is_own else ()))
        self.origin.fix({name: state[name] for name in names if name in state} | rank, random)
        self.start = self._checksum
        keys, made = made, chain(first, made)
        if self._batching is not None:
            made = self._batching.batches(made)
        return made if after is None else self._seeded_on(keys, made, after)

    def _is_right(self, first: list[Any], state: dict[str, Any]) -> bool:
        """Whether an epoch opened at its beginning has the saved first key; True without one."""
        if "first" not in state or self._checksum:
            return True
        keys = first if self._batching is not None or not first else first[0]
        return _first_key_of(keys) == int(state["first"])

    def _pass_by(self, made: Iterator[Any], at: Position) -> bool:
        """Draw the delivered batches. Returns whether some are missing."""
        if self._batching is None:
            for _ in range(at.batches):
                keys = next(made, None)
                if keys is None:
                    return True
                self._add(*encode_task(keys if type(keys) is list else list(keys), True))
            return False
        size = self._batching.batch_size
        left = at.batches * size if at.samples is None else at.samples
        while left > 0:
            keys = list(islice(made, min(left, _CHUNK)))
            if not keys:
                return left >= size  # the last batch may have been short
            self._add(*encode_task(keys, True))
            left -= len(keys)
        return False

    def _add(self, kind: int, payload: bytes) -> None:
        self._checksum = ReplayedOrder.mark(self, kind, payload, 0, self._checksum)

    def note_first(self, kind: int, payload: bytes) -> None:
        """Record a checksum of the first key: a sampler with a state may begin at another key."""
        if self.origin.first.batches == 0 and "source" in self.origin.fixed:
            self.origin.fixed["first"] = _checksum_of_first_key(kind, payload)

    def mark(self, kind: int, payload: bytes, number: int, before: Any) -> Any:  # noqa: ARG002
        """Return the mark after a task: the checksum of all tasks up to it."""
        if kind in _INTEGERS:
            return zlib.crc32(payload, before)
        self.is_checked = False  # the bytes of other keys depend on more than their values
        return before

    @staticmethod
    def check(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        if type(state.get("checksum")) is not int:
            raise StateError(
                f"checksum in the state must be an int, got {got(state.get('checksum'))}. {LOAD}"
            )
        if type(state.get("first", 0)) is not int:
            raise StateError(
                f"first in the state must be an int, got {got(state['first'])}. {LOAD}"
            )
        if state.get("seeded", True) is not True:
            raise StateError(
                f"seeded in the state must be True, got {got(state['seeded'])}. {LOAD}"
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


class StatefulOrder(ReplayedOrder):
    """An order whose sampler or sampler's iterator has a state; without one it is replayed.

    Args:
        every: save the state after every this many batches.
    """

    def __init__(
        self,
        batches: Any,
        batching: Batching | None,
        at: Position,
        every: int,
        is_lazy: bool,
        seed: int | None = None,
    ) -> None:
        super().__init__(batches, batching, at, is_lazy, seed)
        self._every = every
        self._iterator: Any = None
        self._is_over = False  # the last batch of the epoch is drawn

    def begin(self) -> Iterator[Any]:
        """Begin the order."""
        with self._seeded():
            self._capture()
            self._iterator = iter(self._source)
        if not has_state(self._source) and not has_state(self._iterator):
            made = (
                self._iterator if self._batching is None else self._batching.batches(self._iterator)
            )
            return self._drawn(self._iterator, made)
        return self._watch()

    def _watch(self) -> Iterator[Any]:
        first = self.origin.first
        self.origin = OrderOrigin(
            OrderKind.STATEFUL, first, self.origin.batch_size, {"first": None}
        )
        self.start = StateMark(first.batches, self._states())
        made = self._iterator
        return self._ending(made if self._batching is None else self._batching.batches(made))

    def _ending(self, made: Iterator[Any]) -> Iterator[Any]:
        for batch in made:
            # after a short batch the sampler is exhausted: its state may be that of a new epoch
            self._is_over = self._batching is not None and len(batch) < self._batching.batch_size
            yield batch
        self.origin.note_end(self._states())

    def open_at(self, state: dict[str, Any], at: Position) -> Iterator[Any]:  # noqa: ARG002
        """Let the sampler resume from its own state."""
        if "source" in state:
            self._source.load_state_dict(copy.deepcopy(state["source"]))
        self._iterator = iter(self._source)
        if "iterator" in state and self._iterator is not self._source:
            if not has_state(self._iterator):
                raise StateError(
                    f"the state contains a state of the sampler's iterator, and the iterator of"
                    f" {type(self._source).__name__} here has no load_state_dict. {LOAD}"
                )
            self._iterator.load_state_dict(copy.deepcopy(state["iterator"]))
        self._is_over = state.get("over", False)
        if self._is_over:
            self._watch()
            self.origin.note_end(self._states())
            return iter(())
        for _ in islice(self._iterator, state["skip"]):
            pass
        return self._watch()  # only now: it saves the state of this position

    def with_right_first(self, made: Iterator[Any], first_key: int | None) -> Iterator[Any]:
        """Return the batches of an epoch whose sampler has a state saved between two epochs.

        With such a state the sampler may yield nothing, or only some batches; iterated over again,
        it begins again. `first_key`: checksum of the right first key, if known.
        """
        first = next(made, None)
        if first is None or (first_key is not None and _first_key_of(first) != first_key):
            return self.begin()
        return chain([first], made)

    def _states(self) -> dict[str, Any]:
        found: dict[str, Any] = {"over": True} if self._is_over else {}
        if has_state(self._source):
            found["source"] = state_of(self._source)
        if self._iterator is not self._source and has_state(self._iterator):
            found["iterator"] = state_of(self._iterator)
        return found

    def note_first(self, kind: int, payload: bytes) -> None:
        """Record a checksum of the first key of the epoch."""
        if self.origin.kind is OrderKind.REPLAYED:
            super().note_first(kind, payload)
        elif self.origin.first.batches == 0:
            self.origin.fixed["first"] = _checksum_of_first_key(kind, payload)

    def mark(self, kind: int, payload: bytes, number: int, before: Any) -> Any:
        """Return the mark after a task: the last state that was saved."""
        if self.origin.kind is OrderKind.REPLAYED:
            return super().mark(kind, payload, number, before)
        drawn = number + 1
        # also after the first: before it, the state may be the previous epoch's
        if drawn == 1 or (drawn - self.origin.first.batches) % self._every == 0:
            return StateMark(drawn, self._states())
        return before

    @staticmethod
    def check(batches: Any, batching: Batching | None, state: dict[str, Any]) -> None:  # noqa: ARG004
        """Refuse a state that does not fit."""
        skip = state.get("skip")
        if type(skip) is not int or not 0 <= skip <= sys.maxsize:
            raise StateError(f"skip in the state must be an int from 0, got {got(skip)}. {LOAD}")
        if type(state.get("over", False)) is not bool:
            raise StateError(f"over in the state must be a bool, got {got(state['over'])}. {LOAD}")
        if type(state.get("first", "")) not in (int, type(None)):
            value = got(state["first"]) if "first" in state else "none"
            raise StateError(f"'first' in the state must be an int or None, got {value}. {LOAD}")
        if "source" not in state and "iterator" not in state:
            raise StateError(
                f"the state must have 'source' or 'iterator', the state of the sampler, got"
                f" {got(state)}. {LOAD}"
            )


def _first_key_of(batch: Any) -> int:
    """Return the checksum of the first key of a batch from a sampler."""
    return _checksum_of_first_key(*encode_task(batch if type(batch) is list else list(batch), True))


def _checksum_of_first_key(kind: int, payload: bytes) -> int:
    """Return a checksum of only a task's first key: the batches may have another size."""
    return zlib.crc32(payload[:8]) if kind in _INTEGERS else 0


def _swapped(random: dict[str, Any]) -> AbstractContextManager[None]:
    return swapped_in(random) if random else nullcontext()
