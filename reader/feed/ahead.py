"""An epoch that was begun before it was asked for, and whether it is still the right one.

Imports the iterators. It belongs to one loader; dropping it gives its pool back.
"""

from __future__ import annotations

from typing import Any

from reader.feed.groups import PlaceGroups
from reader.feed.iterator import EpochIterator

__all__ = ["Ahead"]


class Ahead:
    """The iterator of the next epoch, with what the user's objects said when it was begun.

    Args:
        batches: the iterator.
        before: what `epochs` gave before it was begun; `after` is set to what it gives then.
    """

    def __init__(self, batches: EpochIterator | PlaceGroups, before: list[Any]) -> None:
        self.batches = batches
        self.before = before
        self.after = before

    @staticmethod
    def epochs(*objects: Any) -> list[Any]:
        """The epoch that each of the user's objects is at, None where it does not say."""
        return [getattr(each, "epoch", getattr(each, "_epoch", None)) for each in objects]

    def is_valid(self, *objects: Any) -> bool:
        """Whether it can be used here, and the user has not chosen another epoch since.

        A sampler may count its epochs when it is iterated over: to set the epoch that it was begun
        with changes nothing about the batches, and the count is put right again.
        """
        now = self.epochs(*objects)
        for each, epoch, before, after in zip(objects, now, self.before, self.after, strict=True):
            if epoch == after:
                continue
            if epoch != before or not callable(getattr(each, "set_epoch", None)):
                return False
        for each, epoch, after in zip(objects, now, self.after, strict=True):
            if epoch != after:
                each.set_epoch(after)
        return self.batches.is_usable
