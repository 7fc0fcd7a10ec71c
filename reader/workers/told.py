"""What a worker is told before the first task of a run, and what it tells of itself with batches.

Imports `reader.data`. A Told goes from the trainer to one worker; a Snapshots belongs to a worker
and is used in its main thread, and the objects whose states it takes are the user's.
"""

from __future__ import annotations

import dataclasses
import pickle
from contextlib import suppress
from typing import Any

from reader.data.epochs import Mark, tell_epoch
from reader.data.order_source import has_state
from reader.data.random_state import capture, put_back

__all__ = ["Snapshot", "Snapshots", "Told", "has_snapshots", "open_told", "put_rng"]

# (worker, whether its part is used up, whether it tells where the dataset is, its states pickled;
# None: no news; what was dealt out to it: a dict, or None when it cannot be told; "": no news)
Snapshot = tuple[int, bool, bool, "bytes | None", Any]


@dataclasses.dataclass(frozen=True)
class Told:
    """What a worker is told before its first task of a run.

    `marks`: the epochs of its datasets; `base_seed`: what keys `sample_rng`; `part`: where its part
    of the epoch was left, pickled, since only the worker may be able to open it; None: nowhere.
    """

    marks: list[Mark]
    base_seed: int
    part: bytes | None = None


class Snapshots:
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

    def take(self, is_used_up: bool = False) -> Snapshot:
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
        return self._worker_id, is_used_up, is_position, pickle.dumps(found, 5), ""

    def first(self) -> Snapshot | None:
        """Return the state before anything was drawn; None: there is none, or none yet."""
        if not self.is_wanted:
            return None
        with suppress(AttributeError):  # of an object that has its state from its first sample on
            return self.take()
        return None

    def tell_deal(self, deal: dict[str, Any] | None, is_used_up: bool) -> Snapshot:
        """Return no state, and what was dealt out."""
        return self._worker_id, is_used_up, False, None, deal

    def restore(self, part: dict[str, Any]) -> None:
        """Give the dataset the state it had. Raises what the user's code raises."""
        if "dataset" in part and self._dataset is not None:
            self._dataset.load_state_dict(part["dataset"])


def open_told(told: Told, dataset: Any) -> dict[str, Any]:
    """Tell the dataset of its epochs; returns the part. Raises what the user's code raises."""
    tell_epoch(dataset, told.marks)
    part: dict[str, Any] = {} if told.part is None else pickle.loads(told.part)
    return part


def put_rng(part: dict[str, Any]) -> None:
    """Set the worker's global random state as it was."""
    if "rng" in part:
        put_back(part["rng"])


def has_snapshots(dataset: Any, every: int, keeps_rng: bool, is_iterable: bool) -> bool:
    """Whether workers may send something along with their batches."""
    return bool(every) and (has_state(dataset) or keeps_rng or is_iterable)
