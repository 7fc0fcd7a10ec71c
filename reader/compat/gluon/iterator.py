"""The iterator of Gluon's loader, which begins nothing before the first step.

Imports the handover and the engine's iterator. It belongs to the process that made it, keeps its
loader alive, and releases the workers when it is dropped.
"""

from __future__ import annotations

from typing import Any

from reader._core.epoch.handover import Handover, Made
from reader._core.epoch.iterator import EpochIterator
from reader.compat.gluon.errors import timed_out
from reader.errors import LoadTimeout

__all__ = ["LazyIterator"]


class LazyIterator(Handover):
    """Yields the batches of an epoch, which begins with the first step.

    The first iterator that is asked for a batch takes the epoch that the loader has begun ahead.
    With `auto_reload` the end of an epoch begins the next one, unless it has begun already.

    Args:
        loader: the face.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._batches: EpochIterator | None = None

    def prepare(self) -> None:
        """Make the next item to hand over; see Handover."""
        batches = self._batches
        if batches is None:
            batches = self._batches = self._loader.begin()
            if not self._loader.auto_reload:
                self.source, self.is_watched = batches, _never
        try:
            found = self.made_by(batches)
        except StopIteration:
            self._loader.reload()
            raise
        self.made = Made(found.value, is_error=found.is_error, step=batches.hand_over)

    def reword(self, error: Exception) -> Exception | None:
        """Return Gluon's exception for one of the engine's; None: raise it as it is."""
        if isinstance(error, LoadTimeout):
            loader = self._loader
            return timed_out(error, loader.timeout, not loader.thread_pool)
        return None


def _never() -> bool:
    return False
