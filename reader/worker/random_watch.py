"""Whether samples depend on the global random state of their worker.

If they do, one worker makes the whole batch: others would draw other numbers. Imports seeds. A
RandomWatch belongs to one worker process and is used in its main thread.
"""

from __future__ import annotations

from collections.abc import Callable

from reader.random.seeds import CapturedState

__all__ = ["RandomWatch"]


class RandomWatch:
    """Tells whether anything was drawn from the global random state since a batch began.

    Args:
        reseed: sets the initial state of the current batch; None: batches are not seeded, and none
            may have drawn since this object was made.
    """

    def __init__(self, reseed: Callable[[], None] | None = None) -> None:
        self._reseed = reseed
        self._start = CapturedState()  # or of the last `begins_untouched`

    def capture(self) -> CapturedState:
        """Return the state as it is."""
        return CapturedState()

    def begins_untouched(self) -> bool:
        """Whether the state is still the initial state of the current batch."""
        now = CapturedState()
        if self._reseed is not None:
            self._reseed()
            self._start = CapturedState()
            now.put_back()
        return now == self._start

    def is_untouched(self) -> bool:
        """Whether the state is still the same since `begins_untouched` returned True."""
        return CapturedState() == self._start

    def restart(self) -> None:
        """Restore the initial state of the current batch."""
        self._start.put_back()
