"""The cursor of an epoch: the position of the last batch delivered, and where each worker is.

Imports `reader.data` and the types that cross. The stage alone moves a cursor; `state_dict` reads
it, also when the iterator is gone. It is plain data and refers to no object of the user.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from reader.data.order import Order
from reader.data.order_origin import OrderOrigin, Position
from reader.data.random_state import from_json, to_json
from reader.data.remaining_ranges import RemainingRanges
from reader.engine.schedule import Outcome, Task
from reader.errors import StateError, got
from reader.workers.worker_state import WorkerSnapshot

__all__ = ["Cursor", "MapCursor", "StreamCursor", "WorkerCursor", "WorkerCursors"]

_STATES = ("dataset", "iterator", "rng")
_BAD = "Load a state that was saved by a loader of this kind"
_NOT_DRAWN = object()  # in the place of the mark of a batch that was delivered in an earlier run


class Cursor:
    """What the epochs of both kinds of datasets have in common.

    Args:
        epoch: its number.
        epochs: which epochs the user's samplers and datasets were at when it began.
        workers: the workers' own cursors, where they send their states.
    """

    batches: int  # delivered, exceptions in the places of batches too

    def __init__(self, epoch: int, epochs: dict[str, int], workers: WorkerCursors | None) -> None:
        self.epoch = epoch
        self.epochs = epochs
        self.workers = workers
        self.is_finished = False  # the user's loop got the end of the epoch
        self.resumed: dict[str, Any] | None = None  # the state that the epoch was begun with

    def advance(self, task: Task, snapshot: WorkerSnapshot | None) -> None:
        """Count a batch that was delivered, with the state that its worker sent."""
        raise NotImplementedError

    def count(self, outcome: Outcome) -> None:
        """Count an outcome: a batch, an exception in its place, or the end of a worker."""
        raise NotImplementedError


class MapCursor(Cursor):
    """A position in the order of a map-style dataset.

    Args:
        epoch, epochs, workers: see Cursor.
        first: where the epoch is opened.
        beyond: batches after `first` that were delivered in an earlier run.
        in_order: False: batches are delivered in any order.
        turn: whose turn the first batch is, where workers take turns.
    """

    workers: WorkerCursors | None

    def __init__(
        self,
        epoch: int,
        epochs: dict[str, int],
        workers: WorkerCursors | None,
        first: Position,
        beyond: tuple[int, ...] = (),
        in_order: bool = True,
        turn: int | None = None,
    ) -> None:
        super().__init__(epoch, epochs, workers)
        self.first = first
        self.batches = first.batches  # without a gap
        self.mark: Any = None  # the mark of the last of them: see Order
        self.origin: OrderOrigin | None = None  # of the order, once its first batch was drawn
        self.turn = turn
        self._in_order = in_order
        # batch -> its mark: those that were delivered before an earlier batch was
        self._beyond: dict[int, Any] = dict.fromkeys(beyond, _NOT_DRAWN)

    @property
    def is_known(self) -> bool:
        """Whether the order's first batch was drawn."""
        return self.origin is not None

    def know(self, order: Order) -> None:
        """Take note of an order whose first batch was just drawn."""
        self.origin, self.mark = order.origin, order.start

    @property
    def beyond(self) -> list[int]:
        """The numbers of batches that were delivered before an earlier one was."""
        return sorted(self._beyond)

    def advance(self, task: Task, snapshot: WorkerSnapshot | None) -> None:
        """Count a batch that was delivered, or an exception in its place."""
        if self._in_order:
            self.batches = task.seq + 1
            self.mark = task.mark
        else:
            self.pass_by(task)
        if snapshot is not None and self.workers is not None:
            self.workers.note(snapshot)

    def count(self, outcome: Outcome) -> None:
        """Count what became of a task."""
        self.advance(outcome.task, outcome.snapshot)

    def pass_by(self, task: Task) -> None:
        """Count a batch that was delivered out of order, now or in an earlier run."""
        self._beyond[task.seq] = task.mark
        while self._beyond.get(self.batches, _NOT_DRAWN) is not _NOT_DRAWN:
            self.mark = self._beyond.pop(self.batches)
            self.batches += 1

    def next_turn(self, workers: int) -> int | None:
        """Whose turn it is, where workers take turns."""
        if self.turn is None:
            return None
        return (self.turn + self.batches - self.first.batches) % workers


class StreamCursor(Cursor):
    """A position in the workers' copies of an iterable dataset."""

    workers: WorkerCursors

    def __init__(self, epoch: int, epochs: dict[str, int], workers: WorkerCursors) -> None:
        super().__init__(epoch, epochs, workers)

    @property
    def batches(self) -> int:  # type: ignore[override]
        """How many batches were delivered, exceptions too."""
        return self.workers.batches

    def advance(self, task: Task, snapshot: WorkerSnapshot | None) -> None:
        """Count a batch that was delivered."""
        self.workers.count(task.worker, snapshot)

    def count(self, outcome: Outcome) -> None:
        """Count what became of a task."""
        worker = outcome.task.worker
        if outcome.is_end:
            self.workers.end(worker, outcome.snapshot)
        elif outcome.is_error:
            self.workers.count_failure(worker, outcome.drawn)
        else:
            self.workers.count(worker, outcome.snapshot, outcome.drawn)


class WorkerCursor:
    """The position of one worker.

    `before` and `draws` count what was drawn before the state was taken and after it: lists of
    [how many batches, how many samples for each].
    """

    __slots__ = (
        "_pickled",
        "_state",
        "before",
        "draws",
        "full",
        "is_ended",
        "left",
        "made",
        "shares",
    )

    def __init__(self, state: dict[str, Any] | None = None) -> None:
        self._state: dict[str, Any] = state or {}
        self._pickled: bytes | None = None  # a state as the worker sent it, not unpickled yet
        self.before: list[list[int]] = []
        self.draws: list[list[int]] = []
        self.full = 0  # batches of the usual size behind those in `draws`
        self.made = 0  # batches of this epoch, exceptions in their places too
        self.is_ended = False
        # resumed with another number of workers: what the former ones left of what `shard` divided
        self.left: dict[str, Any] | None = None
        self.shares: dict[str, Any] | None = None  # what `shard` divided

    @property
    def state(self) -> dict[str, Any]:
        """The states that the worker sent last, by name."""
        pickled, self._pickled = self._pickled, None
        if pickled is not None:
            self._state = pickle.loads(pickled)
        return self._state

    def take(self, snapshot: WorkerSnapshot, batch_size: int) -> None:
        """Take the state that the worker sent with what was just counted."""
        self.settle(batch_size)
        self.is_ended |= snapshot.is_used_up
        if snapshot.has_shares:
            self.shares = snapshot.shares
        if snapshot.states is None:
            return
        self._pickled = snapshot.states
        self.before = [] if snapshot.is_position else [*self.before, *self.draws]
        self.draws = []

    def settle(self, batch_size: int) -> None:
        """Move the count of full batches into `draws`."""
        if self.full:
            _append(self.draws, [self.full, batch_size])
            self.full = 0

    def next_epoch(self) -> WorkerCursor:
        """Return the cursor with which a persistent worker begins the next epoch."""
        return WorkerCursor(
            {name: self.state[name] for name in ("dataset", "rng") if name in self.state}
        )

    def to_start(self, batch_size: int) -> dict[str, Any]:
        """Return what the worker needs to resume."""
        self.settle(batch_size)
        found = dict(self.state)
        if self.made:
            found.update(made=self.made, before=self.before, draws=self.draws)
        if self.left is not None:
            found["left"] = self.left
        elif self.shares is not None:
            found["ranks"] = self.shares["ranks"]
        return found

    def to_json(self, batch_size: int) -> dict[str, Any]:
        """Return the cursor as JSON can hold it, if the user's own states can be held."""
        self.settle(batch_size)
        state = dict(self.state)
        if "rng" in state:
            state["rng"] = to_json(state["rng"])
        found: dict[str, Any] = {"state": state, "made": self.made, "ended": self.is_ended}
        for name, draws in (("before", self.before), ("draws", self.draws)):
            found[name] = [list(each) for each in draws]
        found.update(deal=self.shares, left=self.left)
        return found

    @property
    def taken(self) -> int:
        """How many samples were drawn in this epoch, if no state of the dataset counts them."""
        return sum(count * size for count, size in [*self.before, *self.draws])

    @classmethod
    def from_json(cls, saved: Any) -> WorkerCursor:
        """Read what `to_json` wrote. StateError when it is something else."""
        if not isinstance(saved, dict) or not isinstance(saved.get("state"), dict):
            raise StateError(
                f"each of workers in the state must be a dict, got {got(saved)}. {_BAD}"
            )
        unknown = saved["state"].keys() - set(_STATES)
        if unknown:
            raise StateError(f"a worker in the state has no {sorted(unknown)}. {_BAD}")
        cursor = cls(dict(saved["state"]))
        if "rng" in cursor._state:
            cursor._state["rng"] = from_json(cursor._state["rng"])
        cursor.made = _checked("made", saved, lambda each: type(each) is int and each >= 0)
        cursor.is_ended = _checked("ended", saved, lambda each: type(each) is bool)
        cursor.before = _checked("before", saved, _is_draws)
        cursor.draws = _checked("draws", saved, _is_draws)
        cursor.shares = _checked("deal", saved, _is_shares)
        cursor.left = _checked("left", saved, _is_left)
        cursor._check_count()
        return cursor

    def _check_count(self) -> None:
        """Refuse a count of batches of which nothing says how many samples they took."""
        recorded = sum(count for count, _ in [*self.before, *self.draws])
        is_position = "dataset" in self._state or "iterator" in self._state
        if self.left is None and (
            recorded > self.made or (recorded < self.made and not is_position)
        ):
            raise StateError(
                f"the state records draws for {recorded} of {self.made} batches of a worker,"
                f" {'with' if is_position else 'without'} a state of its dataset: they cannot all"
                f" be drawn again. {_BAD}"
            )


class WorkerCursors:
    """The cursors of all workers.

    Args:
        workers: how many there are; one where `num_workers` is 0.
        batch_size: samples of a full batch.
    """

    def __init__(self, workers: int, batch_size: int) -> None:
        self.all = [WorkerCursor() for _ in range(workers)]
        self.batch_size = batch_size
        self.last = workers - 1  # the worker whose answer was delivered last
        self._before = 0  # batches that other workers delivered
        # until a batch is delivered: the former workers' cursors as they were saved, and their last
        self._origin: tuple[list[dict[str, Any]], int] | None = None

    @classmethod
    def divided_anew(
        cls, saved: list[WorkerCursor], last: int, workers: int, batch_size: int, delivered: int
    ) -> WorkerCursors:
        """Return cursors for another number of workers, which divide what the saved ones left.

        Raises:
            StateError: the dataset does not divide its items by `shard`, one sample for each item.
        """
        began = [cursor for cursor in saved if cursor.before or cursor.draws]
        shares = [cursor.shares for cursor in began]
        if not began or any(each is None or each != shares[0] for each in shares):
            raise StateError(
                f"this state cannot be resumed: it was saved by {len(saved)} workers, each at a"
                f" position of its own, and this loader has {workers}. Pass"
                f" num_workers={len(saved)}, or let the dataset divide its items by reader.shard,"
                " one sample for each: then any number of workers goes on"
            )
        made = cls(workers, batch_size)
        made._origin = [cursor.to_json(batch_size) for cursor in saved], last
        left = {**(shares[0] or {}), "taken": [cursor.taken for cursor in saved]}
        for cursor in made.all:
            cursor.made = delivered // workers
            cursor.left = left
        made.count_before(delivered)
        return made

    def count_before(self, delivered: int) -> None:
        """Note how many batches were delivered in all, by the former workers too."""
        self._before = delivered - sum(cursor.made for cursor in self.all)

    def count(self, worker: int, snapshot: WorkerSnapshot | None, drawn: int | None = None) -> None:
        """Count a batch for which `drawn` samples were drawn; None: a full batch."""
        cursor = self.all[worker]
        self._origin = None
        cursor.made += 1
        if drawn is None or drawn == self.batch_size:
            cursor.full += 1
        else:
            cursor.settle(self.batch_size)
            _append(cursor.draws, [1, drawn])
        self.last = worker
        if snapshot is not None:
            cursor.take(snapshot, self.batch_size)

    def count_failure(self, worker: int, drawn: int | None) -> None:
        """Count an exception for which `drawn` samples were drawn; None: a full batch."""
        cursor = self.all[worker]
        self._origin = None
        cursor.settle(self.batch_size)
        _append(cursor.draws, [1, self.batch_size if drawn is None else drawn])
        cursor.made += 1
        self.last = worker

    def end(self, worker: int, snapshot: WorkerSnapshot | None) -> None:
        """Note that a worker's copy of the dataset is exhausted."""
        self.all[worker].is_ended = True
        self.last = worker
        if snapshot is not None:
            self.all[worker].take(snapshot, self.batch_size)

    def note(self, snapshot: WorkerSnapshot) -> None:
        """Take the state that a worker sent with a batch of a map-style dataset."""
        self.all[snapshot.worker].take(snapshot, self.batch_size)

    @property
    def batches(self) -> int:
        """How many batches were delivered, exceptions too."""
        return self._before + sum(cursor.made for cursor in self.all)

    def next_epoch(self) -> WorkerCursors:
        """What workers that stay begin the next epoch with."""
        made = WorkerCursors(len(self.all), self.batch_size)
        made.all = [cursor.next_epoch() for cursor in self.all]
        return made

    def to_start(self, worker: int) -> bytes | None:
        """What a worker is sent to go on, pickled; None: nothing."""
        found = self.all[worker].to_start(self.batch_size)
        return pickle.dumps(found, 5) if found else None

    def to_json(self) -> dict[str, Any]:
        """All cursors, as `WorkerCursor.to_json`, and whose turn came last."""
        found, last = [cursor.to_json(self.batch_size) for cursor in self.all], self.last
        if self._origin is not None:
            found, last = copy.deepcopy(self._origin)
        return {"workers": found, "last_worker": last}


def _append(draws: list[list[int]], more: list[int]) -> None:
    if draws and draws[-1][1] == more[1]:
        draws[-1] = [draws[-1][0] + more[0], more[1]]
    else:
        draws.append(more)


def _checked(name: str, saved: dict[str, Any], is_right: Callable[[Any], bool]) -> Any:
    if name not in saved or not is_right(saved[name]):
        raise StateError(f"{name} of a worker in the state is {got(saved.get(name))}. {_BAD}")
    return saved[name]


def _is_shares(value: Any) -> bool:
    if value is None:
        return True
    if not isinstance(value, dict) or type(value.get("contiguous")) is not bool:
        return False
    RemainingRanges.from_json(value.get("rest"))
    ranks = value.get("ranks")
    return type(ranks) is int and ranks >= 1


def _is_left(value: Any) -> bool:
    if value is None:
        return True
    taken = value.get("taken") if _is_shares(value) else None
    return isinstance(taken, list) and all(type(each) is int and each >= 0 for each in taken)


def _is_draws(value: Any) -> bool:
    return isinstance(value, list) and all(
        isinstance(each, list)
        and len(each) == 2
        and all(type(number) is int and number >= 0 for number in each)
        for each in value
    )
