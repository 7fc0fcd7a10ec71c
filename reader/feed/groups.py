"""Groups of batches, one for each place: what a step of training on several places takes.

Imports the epoch's iterator. A group belongs to one iterator; threads that share it take turns.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from reader._core.tensor_array import LoDTensorArray
from reader.feed.iterator import EpochIterator

__all__ = ["PlaceGroups"]


class PlaceGroups(Iterator[list[Any]]):
    """Yields lists of batches: batch k goes to place k modulo the number of places.

    An exception in the place of a batch is raised as it is; the batches of its group that came
    before it are kept, and the group goes on with the next call.

    Args:
        batches: yields LoDTensorArrays.
        converts: makes the batch of each place.
        drop_last: what becomes of a last group that is short: False, it is delivered; True, it is
            left out; None, it is left out with a UserWarning that says so.
    """

    def __init__(
        self,
        batches: EpochIterator,
        converts: list[Callable[[LoDTensorArray], Any]],
        drop_last: bool | None,
    ) -> None:
        self._batches = batches
        self._converts = converts
        self._drop_last = drop_last
        self._lock = threading.RLock()  # threads that share the iterator take turns
        self._group: list[Any] = []
        self._groups = 0

    def __iter__(self) -> PlaceGroups:
        return self

    def __len__(self) -> int:
        """The number of batches of the whole epoch, not of groups."""
        return len(self._batches)

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return self._batches.is_usable

    def close(self) -> None:
        """End the epoch here. Idempotent."""
        self._group = []
        self._batches.close()

    def __next__(self) -> list[Any]:
        with self._lock:
            while len(self._group) < len(self._converts):
                try:
                    batch = next(self._batches)
                except StopIteration:
                    return self._last()
                self._group.append(self._converts[len(self._group)](batch))
            return self._take()

    def _last(self) -> list[Any]:
        if self._group and self._drop_last is False:
            return self._take()
        left = len(self._take())
        if left and self._drop_last is None:
            count = len(self._converts)
            warnings.warn(
                f"the last {left} of {self._groups * count + left} batches were left out: they do"
                f" not fill a group of {count} places. Pass drop_last_group=False to get the short"
                " group, or drop_last_group=True to leave it out without this warning",
                stacklevel=3,
            )
        raise StopIteration

    def _take(self) -> list[Any]:
        group, self._group = self._group, []
        self._groups += len(group) == len(self._converts)
        return group
