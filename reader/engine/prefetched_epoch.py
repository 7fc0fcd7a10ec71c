"""An epoch that was begun before the user asked for it, and the check that it still fits.

Imports `reader.data.epochs` and signals. It belongs to one engine; dropping it releases its pool.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import is_interrupt
from reader.data.epochs import epoch_carriers, own_epoch

__all__ = ["PrefetchedEpoch", "prefetch_next"]


class PrefetchedEpoch:
    """The iterator of the next epoch, with the earlier epoch numbers of the user's objects.

    A sampler may count its epochs when it is iterated over. The count is put back until the epoch
    is taken over, so that the user sees the expected number.

    Args:
        begin: makes the iterator.
        draws: see Engine.
        objects: dataset and samplers; nested ones count, too.

    Attributes:
        draws_before: the state of `draws` before the epoch was begun; None: there are none.
    """

    def __init__(self, begin: Callable[[], Any], draws: Any, *objects: Any) -> None:
        self._draws = draws
        self.draws_before = None if draws is None else draws.state()
        self._carriers = epoch_carriers(*objects)
        self._before = [own_epoch(each) for each in self._carriers]
        self.batches: Any = begin()
        self._draws_after = None if draws is None else draws.state()
        self._after = [own_epoch(each) for each in self._carriers]
        self._set(self._before)

    def take_over(self) -> bool:
        """Return whether it can be used: in this process, and no other epoch was chosen."""
        if [own_epoch(each) for each in self._carriers] != self._before:
            return False
        self._set(self._after)
        return bool(self.batches.epoch.is_usable)

    def drop(self) -> None:
        """Release its workers, and undo its draws from `draws` unless more was drawn since."""
        self.batches.close()
        if self._draws is not None and self._draws.state() == self._draws_after:
            self._draws.load(self.draws_before)

    def _set(self, epochs: list[int | None]) -> None:
        for each, epoch, before, after in zip(
            self._carriers, epochs, self._before, self._after, strict=True
        ):
            if before != after and epoch is not None and hasattr(each, "set_epoch"):
                each.set_epoch(epoch)


def prefetch_next(engine: weakref.ref[Any]) -> None:
    """Begin the next epoch of a live engine; its errors are raised when it is iterated over."""
    found = engine()
    if found is not None:
        try:
            found.prefetch()
        except (Exception, SystemExit, GeneratorExit) as error:
            if is_interrupt(error):
                raise
