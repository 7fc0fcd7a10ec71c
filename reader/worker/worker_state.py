"""The state of a worker: sent to it when an epoch starts, and by it with batches.

Imports `reader.data`. An EpochStart goes from the trainer to one worker; a WorkerState belongs to
one worker and is used in its main thread, and the objects whose states it takes are the user's.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from contextlib import suppress
from typing import Any, NamedTuple

from reader.data.epochs import Mark, apply_marks
from reader.errors import StateError
from reader.orders.base_sampler import has_state
from reader.random.random_state import capture, put_back
from reader.worker.bad_sample import BadSample
from reader.worker.shard_tracker import Division

__all__ = ["EpochStart", "WorkerSnapshot", "WorkerState", "put_rng", "sends_snapshots"]


class WorkerSnapshot(NamedTuple):
    """What a worker sends with a batch: its state, or only failed samples and news of its shard.

    `is_used_up`: nothing comes after the batch; `is_position`: the states hold the position of the
    dataset or iterator; `states`: pickled, None: none was taken; `shares`: with `has_shares`, the
    divisions of `shard`, or None when unknown; `bad`: samples of the batch that failed;
    `division`: what `shard` made of the epoch's items, None: it was reported before.
    """

    worker_id: int
    is_used_up: bool
    is_position: bool
    states: bytes | None
    has_shares: bool = False
    shares: dict[str, Any] | None = None
    bad: tuple[BadSample, ...] = ()
    division: Division | None = None


@dataclasses.dataclass(frozen=True)
class EpochStart:
    """Sent to a worker before its first task of an epoch.

    `marks`: the epochs of its datasets; `base_seed`: keys `sample_rng`; `cursor`: where the worker
    resumes, pickled, since the trainer may be unable to unpickle it; None: at the beginning;
    `sends_state`: the worker begins at once, and sends its initial state.
    """

    marks: list[Mark]
    base_seed: int
    cursor: bytes | None = None
    sends_state: bool = False

    def open(self, dataset: Any) -> dict[str, Any]:
        """Set the dataset's epochs; return the cursor. Raises what the user's code raises."""
        apply_marks(dataset, self.marks)
        found: dict[str, Any] = {} if self.cursor is None else pickle.loads(self.cursor)
        return found


class WorkerState:
    """Takes the state of a worker at the wanted interval.

    Args:
        worker_id: the worker's number.
        dataset: its copy.
        every: take it once in this many batches of this worker; 0: never.
        keeps_rng: whether to take the global random state as well.
        is_shared: whether other workers use the same dataset; its state is then not taken.
    """

    def __init__(
        self, worker_id: int, dataset: Any, every: int, keeps_rng: bool, is_shared: bool
    ) -> None:
        self._worker_id = worker_id
        self._dataset = dataset if has_state(dataset) and not is_shared else None
        self._every = every
        self._keeps_rng = keeps_rng
        self._iterator: Any = None
        self._fresh: Any = None  # the dataset's state before `restore`
        self.is_wanted = bool(every) and (self._dataset is not None or keeps_rng)
        self.has_state = self._dataset is not None

    def follow(self, iterator: Any) -> None:
        """Take the state of this iterator of the dataset too; None: there is none now."""
        self._iterator = iterator if has_state(iterator) else None
        self.has_state = self._dataset is not None or self._iterator is not None
        self.is_wanted = bool(self._every) and (self.has_state or self._keeps_rng)

    def is_due(self, made: int) -> bool:
        """Whether to send a state with the batch after `made` others."""
        # also with the first one: before it, the state may still be the previous epoch's
        return self.is_wanted and (made == 0 or (made + 1) % self._every == 0)

    def take(self, is_used_up: bool = False) -> WorkerSnapshot:
        """Return the worker's current state. Passes on exceptions of the user's code.

        `is_used_up`: nothing comes after the batch, and the state may be that of a fresh start.
        """
        found: dict[str, Any] = {}
        is_itself = self._iterator is not None and self._iterator is self._dataset
        if self._dataset is not None and not is_itself:
            found["dataset"] = self._dataset.state_dict()
        if self._iterator is not None:
            found["iterator"] = self._iterator.state_dict()
        is_position = bool(found)
        if self._keeps_rng:
            found["rng"] = capture()
        return WorkerSnapshot(self._worker_id, is_used_up, is_position, pickle.dumps(found, 5))

    def first(self) -> WorkerSnapshot | None:
        """Return the state before the first draw; None: there is none, or none yet."""
        if not self.is_wanted:
            return None
        with suppress(AttributeError):  # some objects have no state before their first sample
            return self.take()
        return None

    def restore(self, cursor: dict[str, Any]) -> None:
        """Load the cursor's state into the dataset. Raises what the user's code raises."""
        if "dataset" in cursor and self._dataset is not None:
            with suppress(Exception):  # only some datasets need it: see `refresh`
                self._fresh = copy.deepcopy(self._dataset.state_dict())
            self._dataset.load_state_dict(cursor["dataset"])

    def refresh(self) -> bool:
        """Load the state from before `restore` into the dataset; return whether there is one."""
        fresh, self._fresh = self._fresh, None
        if fresh is None or self._dataset is None:
            return False
        self._dataset.load_state_dict(fresh)
        return True

    def restore_iterator(self, iterator: Any, cursor: dict[str, Any]) -> None:
        """Follow an iterator with the cursor's state. Raises what the user's code raises."""
        if "iterator" in cursor:
            if not has_state(iterator):
                raise StateError(
                    "the state was saved with an iterator that has a state, and"
                    f" {type(iterator).__name__} here has no load_state_dict. Load a state that was"
                    " saved with the same dataset"
                )
            iterator.load_state_dict(cursor["iterator"])
        self.follow(iterator)


def put_rng(cursor: dict[str, Any]) -> None:
    """Restore the worker's global random state from its cursor."""
    if "rng" in cursor:
        put_back(cursor["rng"])


def sends_snapshots(dataset: Any, every: int, keeps_rng: bool, is_iterable: bool) -> bool:
    """Whether workers may send snapshots with their batches."""
    return bool(every) and (has_state(dataset) or keeps_rng or is_iterable)
