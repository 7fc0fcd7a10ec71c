"""The methods that measure a loader: `profile` and `ceiling`.

Imports the profile and the ceiling when they are called. Faces derive from it besides EngineFace;
it has no state.
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
    """A face that can be copied, so that its ceiling can be measured."""

    def ceiling(
        self,
        step: Callable[[Any], Any],
        *,
        batches: int = 4,
        seconds: float = 3.0,
        steps: int | None = None,
    ) -> Ceiling:
        """Measure how fast the training would be if batches cost nothing.

        It takes a few batches from a copy of this loader, and passes them to `step` again and
        again. Position, epoch, workers and iterators of this loader stay as they are; the copy has
        its own workers, which end before the steps begin. The dataset makes these batches once
        more. Blocks for a little more than `seconds`.

        Args:
            step: the training step: called with a batch. It should wait until the device has
                done its work.
            batches: how many to take, from 1; fewer if the epoch has fewer.
            seconds: for how long to measure steps, above 0; at least one step is measured.
            steps: measure at most this many steps; None: only `seconds` counts.

        Raises:
            ConfigError: an argument is out of its range, or the loader gave no batch.
            ConfigTypeError: `step` cannot be called.
        """
        from reader.observe.ceiling import measure

        return measure(self, step, batches, seconds, steps)
