"""The stage: how batches land with the user, place by place.

Imports the cursor. It belongs to one iterator; threads that share that take turns. With several
places the batches of a step are a group: they count when the group is handed over.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from reader.engine.cursor import Cursor

__all__ = ["Stage"]

Convert = Callable[[Any], Any]


class Stage:
    """Makes the user's batch of what a worker sent, for each place; nothing is counted before that.

    Attributes:
        places: how many.
        converts: for each place, what makes the user's batch.
        cursor: the position of the last batch delivered.

    Args:
        converts: for each place, what makes the user's batch.
        cursor: of the epoch; it counts what the iterator handed over.
        drop_last_group: what becomes of a last group that is short: False: it is delivered; True:
            it is left out; None: it is left out with a UserWarning that says so.
    """

    def __init__(
        self, converts: list[Convert], cursor: Cursor, drop_last_group: bool | None = False
    ) -> None:
        self.cursor = cursor
        self.places = len(converts)
        self.converts = converts
        self._drop_last_group = drop_last_group

    @property
    def delivers_short_group(self) -> bool:
        """Whether a last group that is short is delivered."""
        return self._drop_last_group is False

    def warn_of_short_group(self, left: int, batches: int) -> None:
        """Say that the last group is left out, unless the user wanted that.

        Args:
            left: how many batches it has.
            batches: of the epoch.
        """
        if left and self._drop_last_group is None:
            warnings.warn(
                f"the last {left} of {batches} batches were left out:"
                f" they do not fill a group of {self.places} places. Pass drop_last_group=False to"
                " get the short group, or drop_last_group=True to leave it out without this"
                " warning",
                stacklevel=4,
            )
