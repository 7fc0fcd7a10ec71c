"""Where the tasks of an epoch come from, and which of them can be made again.

Imports the types that cross and the tasks. `TaskSource` is the protocol, which `map_source` and
`stream_source` implement. A source belongs to one iterator, and runs in the thread that iterates.
"""

from __future__ import annotations

import enum
from typing import Any, Protocol

from reader._core.epoch.tasks import Task
from reader.engine.backends.backend import Death

__all__ = ["Loss", "Remedy", "TaskSource"]


class Loss(enum.Enum):
    """What becomes of a task whose worker died."""

    AGAIN = "it is sent to another worker"
    RAISED = "an exception stands in the place of its batch"
    ENDED = "it has no batch, and none is lost by that"


class Remedy(enum.Enum):
    """The remedy for a task whose worker had no memory for its batch."""

    SHRINK = "fewer tasks are kept in flight, and it is sent again"
    ASK_AGAIN = "its worker keeps the samples, and is asked again before all others"
    RAISE = "the exception stands in the place of its batch"


class TaskSource(Protocol):
    """Draws the tasks of an epoch.

    Attributes:
        batches: an iterator over the dataset keys of each batch; None: a task needs none.
    """

    batches: Any

    def draw(self) -> Task | None:
        """Draw the next task into the table; None: there are no more."""

    def encode(self, task: Task) -> int | None:
        """Make the keys of a drawn task ready for sending.

        An interrupt may leave it anywhere: it is called again. Returns how many samples the dataset
        has, where the next `batches` are those of a built-in sampler and need nothing else.
        """

    def note_shard_end(self, worker_id: int) -> None:
        """Draw no more tasks for a worker, whose copy of an iterable dataset is exhausted."""

    def handle_death(self, death: Death) -> list[tuple[Task, Loss]]:
        """Return what becomes of the tasks of a worker that died.

        Notes the deaths in its tasks. Of a stream it may draw tasks up to the worker's next turn,
        so that the exception has a place.
        """

    def handle_no_memory(self, task: Task) -> Remedy:
        """Return what is done for a task without memory for its batch; counts its tries."""
