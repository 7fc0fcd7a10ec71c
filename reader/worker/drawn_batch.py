"""The samples drawn from a stream for one batch, and the state that is sent with it.

Imports the state of a worker. Both belong to the StreamFetcher that made them.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable
from typing import Any

from reader._core.wire.channel import WorkerChannel
from reader.worker.worker_state import WorkerSnapshot

__all__ = ["DrawnBatch", "SnapshotTaker"]


@dataclasses.dataclass(slots=True)
class DrawnBatch:
    """The samples drawn for a batch that may have to be made again, or the batch itself."""

    samples: list[Any]
    made: list[Any] | None = None  # the batch, and [] once the channel has it
    is_end: bool = False
    snapshot: SnapshotTaker | None = None  # takes the state that is sent with it
    task: tuple[int, int] = (-1, -1)  # inline: (run, number) of the task
    counts: Any = None  # inline: the fetcher's counts before it


class SnapshotTaker:
    """Takes the snapshot of a batch at the first call, and returns it at later ones."""

    __slots__ = ("_arguments", "_found", "_take")

    def __init__(self, take: Callable[..., Any], channel: WorkerChannel, is_due: bool) -> None:
        # no cycle: dropping the loop must close the user's generator at once
        self._take = weakref.WeakMethod(take)
        self._arguments: tuple[WorkerChannel, bool] | None = (channel, is_due)
        self._found: WorkerSnapshot | None = None

    def __call__(self) -> WorkerSnapshot | None:
        """Return the snapshot."""
        take = self._take()
        if self._arguments is not None and take is not None:
            self._found = take(*self._arguments)
            self._arguments = None
        return self._found
