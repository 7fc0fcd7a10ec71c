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
from reader.feed.progress import Progress

__all__ = ["Group", "PlaceGroups"]


class Group:
    """The batches of a step, as they come in.

    Args:
        converts: makes the batch of each place.
        progress: told which batches the user does not have yet.
    """

    def __init__(self, converts: list[Callable[[LoDTensorArray], Any]], progress: Progress) -> None:
        self._converts = converts
        self._progress = progress
        self._made: list[tuple[int | None, Any]] = []  # (number of the batch, batch)

    def __len__(self) -> int:
        return len(self._made)

    @property
    def places(self) -> int:
        """How many batches make it full."""
        return len(self._converts)

    def add(self, batch: LoDTensorArray) -> None:
        """Take the next batch. The same one may come again, when Ctrl-C came before it counted."""
        if self._made and self._made[-1][0] == batch.seq:
            return
        made = self._converts[len(self._made)](batch)
        if not self._made:
            self._progress.hold(batch.seq)
        self._made = [*self._made, (batch.seq, made)]

    def take(self) -> list[Any]:
        """Hand the batches over, and begin anew."""
        made, self._made = self._made, []
        self._progress.release()
        return [batch for _, batch in made]

    def drop(self) -> None:
        """Let go of the batches; the user never got them."""
        self._made = []


class PlaceGroups(Iterator[list[Any]]):
    """Yields lists of batches: batch k goes to place k modulo the number of places.

    An exception in the place of a batch is raised as it is; the batches of its group that came
    before it are kept, and the group goes on with the next call.

    Args:
        batches: puts each batch into the group, and yields nothing of worth.
        group: where they are.
        drop_last: what becomes of a last group that is short: False, it is delivered; True, it is
            left out; None, it is left out with a UserWarning that says so.
    """

    def __init__(
        self,
        batches: EpochIterator,
        group: Group,
        drop_last: bool | None,
    ) -> None:
        self._batches = batches
        self._group = group
        self._drop_last = drop_last
        self._lock = threading.RLock()  # threads that share the iterator take turns
        self._groups = 0

    def __iter__(self) -> PlaceGroups:
        return self

    def __len__(self) -> int:
        """The number of batches of the whole epoch, not of groups."""
        return len(self._batches)

    @property
    def progress(self) -> Progress:
        """How far the epoch was delivered."""
        return self._batches.progress

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return self._batches.is_usable

    def close(self) -> None:
        """End the epoch here. Idempotent."""
        self._group.drop()
        self._batches.close()

    def __next__(self) -> list[Any]:
        with self._lock:
            while len(self._group) < self._group.places:
                try:
                    next(self._batches)
                except StopIteration:
                    return self._last()
            return self._take()

    def _last(self) -> list[Any]:
        if len(self._group) and self._drop_last is False:
            self.progress.is_finished = False  # not before the call after this one
            return self._take()
        left = len(self._take())
        if left and self._drop_last is None:
            count = self._group.places
            warnings.warn(
                f"the last {left} of {self._groups * count + left} batches were left out: they do"
                f" not fill a group of {count} places. Pass drop_last_group=False to get the short"
                " group, or drop_last_group=True to leave it out without this warning",
                stacklevel=3,
            )
        raise StopIteration

    def _take(self) -> list[Any]:
        self._groups += len(self._group) == self._group.places
        return self._group.take()
