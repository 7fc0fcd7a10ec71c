"""Whether samples depend on the global random state of their worker.

A batch of samples that do is made by one worker alone: others would draw other numbers. Imports
seeds. A RandomWatch belongs to one worker process and is used in its main thread.
"""

from __future__ import annotations

from collections.abc import Callable

from reader.random.seeds import CapturedState

__all__ = ["RandomWatch"]


class RandomWatch:
    """Tells whether anything was drawn from the global random state since a batch began.

    Args:
        reseed: called with the epoch and the number of a batch, makes the state that it begins
            with; None: batches are not seeded, and none may have drawn anything since this was
            made.

    Attributes:
        epoch, number: of the batch in hand.
    """

    def __init__(self, reseed: Callable[[int, int], None] | None = None) -> None:
        self.epoch = self.number = 0
        self._reseed = reseed
        self._start = CapturedState()  # when this was made, or the last `begins_untouched` called

    def capture(self) -> CapturedState:
        """Return the state as it is."""
        return CapturedState()

    def begins_untouched(self) -> bool:
        """Whether the state is still the one that the batch in hand began with."""
        now = CapturedState()
        if self._reseed is not None:
            self._reseed(self.epoch, self.number)
            self._start = CapturedState()
            now.put_back()
        return now == self._start

    def is_untouched(self) -> bool:
        """Whether it still is, after `begins_untouched` said so."""
        return CapturedState() == self._start

    def restart(self) -> None:
        """Make the state the one that the batch in hand began with."""
        self._start.put_back()
