"""The state of a worker: what it is sent when an epoch starts, and what it sends with batches.

Imports `reader.data`. An EpochStart goes from the trainer to one worker; a WorkerState belongs to
one worker and is used in its main thread, and the objects whose states it takes are the user's.
"""

from __future__ import annotations

import copy
import dataclasses
import pickle
from contextlib import suppress
from typing import Any, NamedTuple

from reader.data.epochs import Mark, tell_epoch
from reader.data.order_source import has_state
from reader.data.random_state import capture, put_back
from reader.errors import StateError

__all__ = ["EpochStart", "WorkerSnapshot", "WorkerState", "put_rng", "sends_snapshots"]


class WorkerSnapshot(NamedTuple):
    """What a worker tells of itself with a batch.

    `is_used_up`: nothing comes after the batch; `is_position`: the states say where its dataset or
    iterator is; `states`: pickled, None: no news; `shares`: with `has_shares`, what `shard`
    divided, or None when that is not known.
    """

    worker: int
    is_used_up: bool
    is_position: bool
    states: bytes | None
    has_shares: bool = False
    shares: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class EpochStart:
    """What a worker is sent before its first task of an epoch.

    `marks`: the epochs of its datasets; `base_seed`: what keys `sample_rng`; `cursor`: how far the
    worker had come, pickled, since only the worker may be able to open it; None: it begins.
    """

    marks: list[Mark]
    base_seed: int
    cursor: bytes | None = None

    def open(self, dataset: Any) -> dict[str, Any]:
        """Set the dataset's epochs; returns the cursor. Raises what the user's code raises."""
        tell_epoch(dataset, self.marks)
        found: dict[str, Any] = {} if self.cursor is None else pickle.loads(self.cursor)
        return found


class WorkerState:
    """Takes the state of a worker, as often as it is wanted.

    Args:
        worker_id: the worker's number.
        dataset: its copy.
        every: take it with each so many batches of this worker; 0: never.
        keeps_rng: take the global random state as well.
        is_shared: other workers have the same dataset, whose state is then nobody's.
    """

    def __init__(
        self, worker_id: int, dataset: Any, every: int, keeps_rng: bool, is_shared: bool
    ) -> None:
        self._worker_id = worker_id
        self._dataset = dataset if has_state(dataset) and not is_shared else None
        self._every = every
        self._keeps_rng = keeps_rng
        self._iterator: Any = None
        self._fresh: Any = None  # the dataset's state before it was given another one
        self.is_wanted = bool(every) and (self._dataset is not None or keeps_rng)
        self.has_state = self._dataset is not None

    def follow(self, iterator: Any) -> None:
        """Take the state of this iterator of the dataset, too; None: there is none now."""
        self._iterator = iterator if has_state(iterator) else None
        self.has_state = self._dataset is not None or self._iterator is not None
        self.is_wanted = bool(self._every) and (self.has_state or self._keeps_rng)

    def is_due(self, made: int) -> bool:
        """Whether the batch after `made` others brings a state along."""
        # with the first one, too: before it, the state may still be that of the epoch before
        return self.is_wanted and (made == 0 or (made + 1) % self._every == 0)

    def take(self, is_used_up: bool = False) -> WorkerSnapshot:
        """Return the state that the worker has now. Raises what the user's code raises.

        `is_used_up`: nothing comes after the batch, and the state may be that of a new beginning.
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
        """Return the state before anything was drawn; None: there is none, or none yet."""
        if not self.is_wanted:
            return None
        with suppress(AttributeError):  # of an object that has its state from its first sample on
            return self.take()
        return None

    def restore(self, cursor: dict[str, Any]) -> None:
        """Give the dataset the state it had. Raises what the user's code raises."""
        if "dataset" in cursor and self._dataset is not None:
            with suppress(Exception):  # it is wanted for a dataset that begins where it was loaded
                self._fresh = copy.deepcopy(self._dataset.state_dict())
            self._dataset.load_state_dict(cursor["dataset"])

    def refresh(self) -> bool:
        """Give the dataset the state that it had before it was restored; whether there is one."""
        fresh, self._fresh = self._fresh, None
        if fresh is None or self._dataset is None:
            return False
        self._dataset.load_state_dict(fresh)
        return True

    def restore_iterator(self, iterator: Any, cursor: dict[str, Any]) -> None:
        """Follow an iterator, and give it the state it had. Raises what the user's code raises."""
        if "iterator" in cursor:
            if not has_state(iterator):
                raise StateError(
                    "the state has one of the dataset's iterator, and"
                    f" {type(iterator).__name__} here has no load_state_dict. Load a state that was"
                    " saved with the same dataset"
                )
            iterator.load_state_dict(cursor["iterator"])
        self.follow(iterator)


def put_rng(cursor: dict[str, Any]) -> None:
    """Set the worker's global random state as it was."""
    if "rng" in cursor:
        put_back(cursor["rng"])


def sends_snapshots(dataset: Any, every: int, keeps_rng: bool, is_iterable: bool) -> bool:
    """Whether workers may send something along with their batches."""
    return bool(every) and (has_state(dataset) or keeps_rng or is_iterable)
