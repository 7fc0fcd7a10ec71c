"""The position of each worker in its copy of a dataset, as states save it.

Imports `reader.data` and the types that cross. Counting makes new WorkerCursors, so that a state
that another thread saves is whole. Only initial states are noted in place, before anything counts.
"""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

from reader._core.epoch.tasks import Task
from reader.data.remaining_ranges import RemainingRanges
from reader.errors import StateError, got, workers_option
from reader.random.random_state import from_json, to_json
from reader.worker.worker_state import WorkerSnapshot

__all__ = ["WorkerCursor", "WorkerCursors"]

_STATES = ("dataset", "iterator", "rng")
_BAD = "Load a state that was saved by a loader of this kind"


class WorkerCursor:
    """The position of one worker. It does not change once it is among the `WorkerCursors`.

    `before` and `draws` are lists of [number of batches, samples per batch]. `before`: batches
    before the worker's last state; `draws`: batches since.
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
        self.full = 0  # full batches after those in `draws`
        self.made = 0  # batches of this epoch, exceptions in their places too
        self.is_ended = False
        # resumed with another number of workers: the items of `shard` that the former ones left
        self.left: dict[str, Any] | None = None
        self.shares: dict[str, Any] | None = None  # what `shard` divided

    @classmethod
    def divided_anew(cls, made: int, left: dict[str, Any]) -> WorkerCursor:
        """Return one after `made` batches, for a share of what the former workers left."""
        found = cls()
        found.made, found.left = made, left
        return found

    def copied(self) -> WorkerCursor:
        """Return a copy; copy.copy takes five times as long."""
        made = WorkerCursor(self._state)
        made._pickled = self._pickled
        made.before, made.draws, made.full = self.before, self.draws, self.full
        made.made, made.is_ended = self.made, self.is_ended
        made.left, made.shares = self.left, self.shares
        return made

    @property
    def state(self) -> dict[str, Any]:
        """The states that the worker sent last, by name."""
        if self._pickled is not None:
            self._state = pickle.loads(self._pickled)
            self._pickled = None
        return self._state

    def count(self, task: Task, batch_size: int) -> None:
        """Count a batch, an exception in its place, an end, or a death, which is both of these."""
        if task.is_full:
            self.made += 1
            self.full += 1
            return
        self.is_ended |= task.is_end
        if task.is_error or not task.is_end:
            self.made += 1
            size = batch_size if task.drawn is None else task.drawn
            if size == batch_size and not task.is_error:
                self.full += 1
            else:
                self.draws = _added(self.all_draws(batch_size), 1, size)
                self.full = 0
        if task.snapshot is not None:
            self.take(task.snapshot, batch_size)

    def take(self, snapshot: WorkerSnapshot, batch_size: int) -> None:
        """Take the state that the worker sent."""
        self.draws, self.full = self.all_draws(batch_size), 0
        self.is_ended |= snapshot.is_used_up
        if snapshot.has_shares:
            self.shares = snapshot.shares
        if snapshot.states is None:
            return
        self._pickled = snapshot.states
        self.before = [] if snapshot.is_position else [*self.before, *self.draws]
        self.draws = []

    def all_draws(self, batch_size: int) -> list[list[int]]:
        """Return `draws` with the full batches."""
        return _added(self.draws, self.full, batch_size) if self.full else self.draws

    def next_epoch(self, has_dataset_state: bool) -> WorkerCursor:
        """Return the cursor with which a persistent worker begins the next epoch.

        `has_dataset_state`: the dataset has a state, which is also its iterator's if both are one.
        """
        state = self.state
        found: dict[str, Any] = {name: state[name] for name in ("dataset", "rng") if name in state}
        if has_dataset_state and "iterator" in state:
            found.setdefault("dataset", state["iterator"])
        return WorkerCursor(found)

    def to_start(self, batch_size: int) -> dict[str, Any]:
        """Return what the worker needs to resume."""
        found = dict(self.state)
        if self.made:
            found.update(made=self.made, before=self.before, draws=self.all_draws(batch_size))
        if self.left is not None:
            found["left"] = self.left
        elif self.shares is not None:
            found["ranks"] = self.shares["ranks"]
        return found

    def to_json(self, batch_size: int) -> dict[str, Any]:
        """Return the cursor as JSON can hold it, if the user's own states can be held."""
        state = dict(self.state)
        if "rng" in state:
            state["rng"] = to_json(state["rng"])
        found: dict[str, Any] = {"state": state, "made": self.made, "ended": self.is_ended}
        for name, draws in (("before", self.before), ("draws", self.all_draws(batch_size))):
            found[name] = [list(each) for each in draws]
        found.update(deal=self.shares, left=self.left)
        return found

    @property
    def taken(self) -> int:
        """How many samples of this epoch were drawn, unless a state of the dataset counts them."""
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
            raise StateError(
                f"'state' of a worker may have the keys {_STATES}, got also {sorted(unknown)}."
                f" {_BAD}"
            )
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
        """Refuse a count of batches whose numbers of samples are unknown."""
        recorded = sum(count for count, _ in [*self.before, *self.draws])
        is_position = "dataset" in self._state or "iterator" in self._state
        if self.left is None and (
            recorded > self.made or (recorded < self.made and not is_position)
        ):
            raise StateError(
                f"the state contradicts itself: it has the sizes of {recorded} batches of a worker"
                f" that made {self.made}, {'with' if is_position else 'without'} a state of its"
                f" dataset. {_BAD}"
            )


class WorkerCursors:
    """The cursors of all workers.

    Args:
        num_workers: how many workers there are; 1 where the loader has none.
        batch_size: samples of a full batch.
    """

    def __init__(self, num_workers: int, batch_size: int) -> None:
        self.all = [WorkerCursor() for _ in range(num_workers)]
        self.batch_size = batch_size
        self.last = num_workers - 1  # the worker whose answer was delivered last
        self._before = 0  # batches that other workers delivered
        # until a batch is delivered: the saved cursors of the former workers, and their last worker
        self._origin: tuple[list[dict[str, Any]], int] | None = None
        self.awaited: set[int] = set()  # workers whose initial states are still to come

    @classmethod
    def divided_anew(
        cls, saved: list[WorkerCursor], last: int, num_workers: int, batch_size: int, delivered: int
    ) -> WorkerCursors:
        """Return cursors for another number of workers, which divide the remaining items.

        Raises:
            StateError: the dataset does not divide its items by `shard`, one sample for each item.
        """
        began = [cursor for cursor in saved if cursor.before or cursor.draws]
        shares = [cursor.shares for cursor in began]
        if not began or any(each is None or each != shares[0] for each in shares):
            raise StateError(
                f"this state cannot be resumed: it was saved by {len(saved)} workers, each at a"
                f" position of its own, and this loader has {num_workers}. Pass"
                f" {workers_option(len(saved))}. To resume with any number of workers, have the"
                " dataset's __iter__ iterate over reader.shard(items), one sample for each item"
            )
        made = cls(num_workers, batch_size)
        made._origin = [cursor.to_json(batch_size) for cursor in saved], last
        left = {**(shares[0] or {}), "taken": [cursor.taken for cursor in saved]}
        each = delivered // num_workers
        made.take([WorkerCursor.divided_anew(each, left) for _ in range(num_workers)])
        made.count_before(delivered)
        return made

    def take(self, cursors: list[WorkerCursor], last: int | None = None) -> None:
        """Begin at these cursors; `last`: the worker whose answer was delivered last."""
        self.all = cursors
        self.last = self.last if last is None else last

    def count_before(self, delivered: int) -> None:
        """Note how many batches were delivered, those of the former workers included."""
        self._before = delivered - sum(cursor.made for cursor in self.all)

    def after(self, tasks: list[Task], is_stream: bool) -> WorkerCursors:
        """Return the cursors behind tasks that were delivered.

        Args:
            tasks: in the order of delivery of each worker.
            is_stream: the tasks are of an iterable dataset; else they may have snapshots, and count
                for no worker.
        """
        if not is_stream and all(task.snapshot is None for task in tasks):
            return self
        made = object.__new__(WorkerCursors)  # copy.copy takes three times as long
        vars(made).update(vars(self))
        changed: dict[int, WorkerCursor] = {}
        for task in tasks:
            worker_id = task.worker if is_stream else _sender_of(task)
            if worker_id is None:
                continue
            if worker_id not in changed:
                changed[worker_id] = self.all[worker_id].copied()
            if is_stream:
                changed[worker_id].count(task, self.batch_size)
            elif task.snapshot is not None:
                changed[worker_id].take(task.snapshot, self.batch_size)
        made.all = [changed.get(worker_id, cursor) for worker_id, cursor in enumerate(self.all)]
        if is_stream:
            made.last, made._origin = tasks[-1].worker, None
        return made

    def expect_initial_states(self) -> None:
        """Expect the initial states of workers that do not resume; the others' are known.

        This and the two below change the cursors in place: call them before a batch is counted.
        """
        for worker_id, cursor in enumerate(self.all):
            if not (cursor.made or cursor.is_ended or cursor.left):
                self.awaited.add(worker_id)

    def note_initial_state(self, worker_id: int, snapshot: WorkerSnapshot | None) -> None:
        """Note the state with which a worker began the epoch; None: it has none."""
        self.awaited.discard(worker_id)
        # no need to keep a random state alone: the workers were just seeded
        if snapshot is not None and (snapshot.is_position or self.all[worker_id].state):
            self.note(snapshot)

    def note(self, snapshot: WorkerSnapshot) -> None:
        """Note the state with which a worker began, before anything was delivered."""
        cursor = self.all[snapshot.worker_id].copied()
        cursor.take(snapshot, self.batch_size)
        self.all[snapshot.worker_id] = cursor

    @property
    def batches(self) -> int:
        """How many batches were delivered, exceptions included."""
        return self._before + sum(cursor.made for cursor in self.all)

    def next_epoch(self, has_dataset_state: bool) -> WorkerCursors:
        """Return the cursors of persistent workers for the next epoch."""
        made = WorkerCursors(len(self.all), self.batch_size)
        made.all = [cursor.next_epoch(has_dataset_state) for cursor in self.all]
        return made

    def to_start(self, worker_id: int) -> bytes | None:
        """Return what a worker is sent to resume, pickled; None: nothing."""
        found = self.all[worker_id].to_start(self.batch_size)
        return pickle.dumps(found, 5) if found else None

    def to_json(self) -> dict[str, Any]:
        """Return all cursors as JSON, and the worker whose turn was last."""
        found, last = [cursor.to_json(self.batch_size) for cursor in self.all], self.last
        if self._origin is not None:
            found, last = copy.deepcopy(self._origin)
        return {"workers": found, "last_worker": last}


def _sender_of(task: Task) -> int | None:
    return None if task.snapshot is None else int(task.snapshot.worker_id)


def _added(draws: list[list[int]], count: int, size: int) -> list[list[int]]:
    if draws and draws[-1][1] == size:
        return [*draws[:-1], [draws[-1][0] + count, size]]
    return [*draws, [count, size]]


def _checked(name: str, saved: dict[str, Any], is_right: Callable[[Any], bool]) -> Any:
    if name not in saved or not is_right(saved[name]):
        raise StateError(
            f"{name!r} of a worker in the state is not valid: got {got(saved.get(name))}. {_BAD}"
        )
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
