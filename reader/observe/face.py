"""The methods by which a loader is looked at: `profile` and `ceiling`.

Imports the profile and the ceiling when they are called. Faces derive from it beside what feeds
them; it has no state.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from reader.observe.observed import Observed

if TYPE_CHECKING:
    from reader.observe.ceiling import Ceiling
    from reader.observe.profile import Profile

__all__ = ["ObservedFace", "ProfiledFace"]


class ProfiledFace(Observed):
    """A face whose loop can be profiled."""

    def profile(self) -> Profile:
        """Return a profile of this loader, for a `with` statement around a loop over it.

        The same as `reader.profile(loader)`: see there.
        """
        from reader.observe.profile import Profile

        return Profile(self)


class ObservedFace(ProfiledFace):
    """A face that also tells how fast its loop could be: it can be copied."""

    def ceiling(
        self,
        step: Callable[[Any], Any],
        *,
        batches: int = 4,
        seconds: float = 3.0,
        steps: int | None = None,
    ) -> Ceiling:
        """Measure how fast the training would be if its batches cost nothing.

        It takes a few batches of a copy of this loader, keeps them, and gives them to `step` again
        and again. Position, epoch and workers of this loader stay as they are, and its iterators
        go on; the copy has workers of its own, which end before the steps begin. The dataset is
        asked for these batches once more than it would be. Blocks for `seconds` and a little more.

        Args:
            step: the training step: called with a batch. It should wait until the device has
                done its work.
            batches: how many are taken, from 1; fewer where the epoch has fewer.
            seconds: for how long steps are measured, above 0. One step at least is.
            steps: after how many steps the measuring ends before that; None: after `seconds`.

        Raises:
            ConfigError: an argument is out of its range, or the loader gave no batch.
            ConfigTypeError: `step` cannot be called.
        """
        from reader.observe.ceiling import measure

        return measure(self, step, batches, seconds, steps)
