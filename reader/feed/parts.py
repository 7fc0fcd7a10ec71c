"""How far each worker's part of an epoch was delivered, and the state it sent along on the way.

Imports `reader.data`. Parts belong to one iterator and are written by the thread that iterates;
whoever saves the loader's state reads them, and what they hold is data alone.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from reader.data.random_state import from_json, to_json
from reader.data.rest import Rest
from reader.errors import StateError, got
from reader.workers.told import Snapshot

__all__ = ["Part", "Parts"]

_STATES = ("dataset", "iterator", "rng")


class Part:
    """The part of one worker.

    `before` and `draws` tell what was drawn before the state was taken, and after it: lists of
    [how many batches, how many samples for each].
    """

    __slots__ = (
        "_packed",
        "_state",
        "before",
        "deal",
        "draws",
        "full",
        "is_ended",
        "left",
        "made",
    )

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._state: dict[str, Any] = state or {}
        self._packed: bytes | None = None  # a state as the worker sent it, not opened yet
        self.before: list[list[int]] = []
        self.draws: list[list[int]] = []
        self.full = 0  # batches of the usual size behind those in `draws`
        self.made = 0  # batches of this epoch, errors too
        self.is_ended = False
        # what all workers left of a deal over another number of them
        self.left: dict[str, Any] | None = None
        self.deal: dict[str, Any] | None = None  # what `shard` dealt out, where that is all

    @property
    def state(self) -> dict[str, Any]:
        """What the worker said last, by name."""
        packed, self._packed = self._packed, None
        if packed is not None:
            self._state = pickle.loads(packed)
        return self._state

    def take(self, snapshot: Snapshot, batch_size: int) -> None:
        """The worker sent its state with what was just counted."""
        self.settle(batch_size)
        _, is_used_up, is_position, packed, deal = snapshot
        self.is_ended |= is_used_up
        if deal != "":
            self.deal = deal
        if packed is None:
            return
        self._packed = packed
        self.before = [] if is_position else [*self.before, *self.draws]
        self.draws = []

    def settle(self, batch_size: int) -> None:
        """Write down the batches of the usual size."""
        if self.full:
            _append(self.draws, [self.full, batch_size])
            self.full = 0

    def next_epoch(self) -> Part:
        """What a worker that stays begins the next epoch with."""
        return Part({name: self.state[name] for name in ("dataset", "rng") if name in self.state})

    def told(self, batch_size: int) -> dict[str, Any]:
        """What the worker needs to go on."""
        self.settle(batch_size)
        found = dict(self.state)
        if self.made:
            found.update(made=self.made, before=self.before, draws=self.draws)
        if self.left is not None:
            found["left"] = self.left
        elif self.deal is not None:
            found["ranks"] = self.deal["ranks"]
        return found

    def to_json(self, batch_size: int) -> dict[str, Any]:
        """The part as JSON has it, as far as the user's own states are."""
        self.settle(batch_size)
        state = dict(self.state)
        if "rng" in state:
            state["rng"] = to_json(state["rng"])
        found: dict[str, Any] = {"state": state, "made": self.made, "ended": self.is_ended}
        for name, draws in (("before", self.before), ("draws", self.draws)):
            found[name] = [list(each) for each in draws]
        found.update(deal=self.deal, left=self.left)
        return found

    @property
    def taken(self) -> int:
        """How many samples were drawn in this epoch, where no state says more."""
        return sum(count * size for count, size in [*self.before, *self.draws])

    @classmethod
    def from_json(cls, saved: Any) -> Part:
        """Read what `to_json` wrote. StateError when it is something else."""
        if not isinstance(saved, dict) or not isinstance(saved.get("state"), dict):
            raise StateError(
                f"each of workers in the state must be a dict, got {got(saved)}. {_BAD}"
            )
        unknown = saved["state"].keys() - set(_STATES)
        if unknown:
            raise StateError(f"a worker in the state has no {sorted(unknown)}. {_BAD}")
        part = cls(dict(saved["state"]))
        if "rng" in part._state:
            part._state["rng"] = from_json(part._state["rng"])
        part.made = _checked("made", saved, lambda each: type(each) is int and each >= 0)
        part.is_ended = _checked("ended", saved, lambda each: type(each) is bool)
        part.before = _checked("before", saved, _is_draws)
        part.draws = _checked("draws", saved, _is_draws)
        part.deal = _checked("deal", saved, _is_deal)
        part.left = _checked("left", saved, _is_left)
        part._check_count()
        return part

    def _check_count(self) -> None:
        """Refuse batches of which nothing tells where they ended."""
        told = sum(count for count, _ in [*self.before, *self.draws])
        is_position = "dataset" in self._state or "iterator" in self._state
        if self.left is None and (told > self.made or (told < self.made and not is_position)):
            raise StateError(
                f"a worker in the state made {self.made} batches, and what was drawn for {told} of"
                f" them is told, {'with' if is_position else 'without'} a state of its dataset."
                f" {_BAD}"
            )


class Parts:
    """The parts of all workers.

    Args:
        workers: how many there are; one, where the trainer does without.
        batch_size: samples of a full batch.
    """

    def __init__(self, workers: int, batch_size: int) -> None:
        self.all = [Part() for _ in range(workers)]
        self.batch_size = batch_size
        self.last = workers - 1  # whose answer was delivered last
        self.is_held = False  # what is counted is not delivered yet: it waits in a group
        self._waiting: list[Callable[[], None]] = []
        self._before = 0  # batches that other workers delivered
        # what holds until a batch is delivered: the parts of other workers, and the last of them
        self._origin: tuple[list[dict[str, Any]], int] | None = None

    @classmethod
    def dealt_anew(
        cls, saved: list[Part], last: int, workers: int, batch_size: int, delivered: int
    ) -> Parts:
        """Return parts of another number of workers that share what the saved ones left.

        Raises:
            StateError: the dataset does not deal by `shard`, one sample for each item.
        """
        began = [part for part in saved if part.before or part.draws]
        deals = [part.deal for part in began]
        if not began or any(each is None or each != deals[0] for each in deals):
            raise StateError(
                f"the state is that of {len(saved)} workers, each at a place of its own, and there"
                f" are {workers} here. Pass num_workers={len(saved)}, or let the dataset deal its"
                " items out by reader.shard, one sample for each: then any number of workers goes"
                " on"
            )
        parts = cls(workers, batch_size)
        parts._origin = [part.to_json(batch_size) for part in saved], last
        left = {**(deals[0] or {}), "taken": [part.taken for part in saved]}
        for part in parts.all:
            part.made = delivered // workers
            part.left = left
        parts.count_before(delivered)
        return parts

    def count_before(self, delivered: int) -> None:
        """So many batches were delivered in all, other workers' too."""
        self._before = delivered - sum(part.made for part in self.all)

    def count(self, worker: int, snapshot: Snapshot | None) -> None:
        """A batch was delivered."""
        if self.is_held:
            self._waiting.append(lambda: self._count(worker, snapshot))
        else:
            self._count(worker, snapshot)

    def _count(self, worker: int, snapshot: Snapshot | None) -> None:
        part = self.all[worker]
        self._origin = None
        part.made += 1
        part.full += 1
        self.last = worker
        if snapshot is not None:
            part.take(snapshot, self.batch_size)

    def count_failure(self, worker: int, drawn: int | None) -> None:
        """An exception was delivered, for which so many samples were drawn; None: a batch's."""
        size = self.batch_size if drawn is None else drawn
        self._later(lambda: self._count_failure(worker, size))

    def _count_failure(self, worker: int, drawn: int) -> None:
        part = self.all[worker]
        self._origin = None
        part.settle(self.batch_size)
        _append(part.draws, [1, drawn])
        part.made += 1
        self.last = worker

    def end(self, worker: int, snapshot: Snapshot | None) -> None:
        """A worker's part is used up."""
        self._later(lambda: self._end(worker, snapshot))

    def _end(self, worker: int, snapshot: Snapshot | None) -> None:
        self.all[worker].is_ended = True
        self.last = worker
        if snapshot is not None:
            self.all[worker].take(snapshot, self.batch_size)

    def note(self, snapshot: Snapshot) -> None:
        """A worker sent its state with a batch of a map-style dataset."""
        self._later(lambda: self.all[snapshot[0]].take(snapshot, self.batch_size))

    def _later(self, change: Callable[[], None]) -> None:
        if self.is_held:
            self._waiting.append(change)
        else:
            change()

    def release(self) -> None:
        """What was held back is delivered now."""
        self.is_held = False
        waiting, self._waiting = self._waiting, []
        for change in waiting:
            change()

    @property
    def batches(self) -> int:
        """How many batches were delivered, exceptions too."""
        return self._before + sum(part.made for part in self.all)

    def next_epoch(self) -> Parts:
        """What workers that stay begin the next epoch with."""
        parts = Parts(len(self.all), self.batch_size)
        parts.all = [part.next_epoch() for part in self.all]
        return parts

    def told(self, worker: int) -> bytes | None:
        """What a worker is told of its part, pickled; None: nothing."""
        told = self.all[worker].told(self.batch_size)
        return pickle.dumps(told, 5) if told else None

    def to_json(self) -> dict[str, Any]:
        """All parts, as `Part.to_json`, and whose turn came last."""
        found, last = [part.to_json(self.batch_size) for part in self.all], self.last
        if self._origin is not None:
            found, last = copy.deepcopy(self._origin)
        return {"workers": found, "last_worker": last}


_BAD = "Load a state that was saved by a loader of this kind"


def _append(draws: list[list[int]], more: list[int]) -> None:
    if draws and draws[-1][1] == more[1]:
        draws[-1] = [draws[-1][0] + more[0], more[1]]
    else:
        draws.append(more)


def _checked(name: str, saved: dict[str, Any], is_right: Callable[[Any], bool]) -> Any:
    if name not in saved or not is_right(saved[name]):
        raise StateError(f"{name} of a worker in the state is {got(saved.get(name))}. {_BAD}")
    return saved[name]


def _is_deal(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or type(value.get("contiguous")) is not bool:
        return False
    Rest.from_json(value.get("rest"))
    ranks = value.get("ranks")
    return type(ranks) is int and ranks >= 1


def _is_left(value: Any) -> bool:
    if value is None:
        return True
    taken = value.get("taken") if _is_deal(value) else None
    return isinstance(taken, list) and all(type(each) is int and each >= 0 for each in taken)


def _is_draws(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list)
        and len(each) == 2
        and all(type(number) is int and number >= 0 for number in each)
        for each in value
    )
