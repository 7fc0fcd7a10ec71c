"""The stage: how batches land with the user, place by place.

Imports the tasks and the copier. It belongs to one iterator; threads that share that take turns.
With several places the batches of a step are a group, and so are those of a sampler that yields
steps: they count when the group is handed over. So does a batch whose copy to a device was issued
ahead.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

from reader._core.epoch.handover import Made
from reader._core.epoch.tasks import Task
from reader.engine.copier import Copier
from reader.errors import ReaderError

__all__ = ["Stage"]

Convert = Callable[[Any], Any]


class Stage:
    """Makes the user's batch of what a worker sent, for each place; it is counted after that.

    Attributes:
        places: how many there are.
        most_ahead: the most batches that may have landed and wait: one group, plus, for devices,
            the copies issued ahead.
        hands_over_at_once: a batch can be handed over as soon as it is made.
        has_step_batches: the batch sampler says which batches make a step; batch k of a step lands
            on place k.

    Args:
        converts: the converter of each place; for a device its copier's `issue`.
        drop_last_group: False: a short last group is delivered; True: it is left out; None: it is
            left out with a UserWarning.
        copiers: for each place, if they are devices.
        copies_ahead: for each device, how many copies are issued before the turn of their batches.
    """

    def __init__(
        self,
        converts: Sequence[Convert],
        drop_last_group: bool | None = False,
        copiers: Sequence[Copier] = (),
        copies_ahead: int = 0,
        has_step_batches: bool = False,
    ) -> None:
        self.places = len(converts)
        self.copiers = copiers
        self.most_ahead = self.places * (1 + copies_ahead)
        self.hands_over_at_once = self.places == 1 and not copiers and not has_step_batches
        self.has_step_batches = has_step_batches
        self._converts = converts
        self._drop_last_group = drop_last_group

    def converter(self, index: int, part: int = 0) -> Convert:
        """Return the converter of a batch.

        Args:
            index: its place among the batches that are not handed over yet.
            part: its number among the batches of its step.
        """
        return self._converts[(part if self.has_step_batches else index) % self.places]

    def group_size(self, landed: list[Task]) -> int:
        """Return how many landed batches are handed over next; 0: the group is not complete."""
        size = self.places
        if self.has_step_batches:
            size = 1 if not landed else max(1, landed[0].parts)
        return size if len(landed) >= size else 0

    def is_left(self, task: Task, landed: list[Task]) -> bool:
        """Whether a batch is to be left out: an earlier one of its step has failed."""
        if task.part == 0:
            return False
        before = landed[-1] if landed else None
        return before is None or before.number + 1 != task.number or before.part + 1 != task.part

    def take(self, tasks: list[Task]) -> Made:
        """Return what is handed over next, of landed batches; waits for no copy."""
        if self.copiers:
            values = [
                self.copiers[place % self.places].deliver(task.value)
                for place, task in enumerate(tasks)
            ]
        else:
            values = [task.value for task in tasks]
        is_group = tasks[0].parts > 0 if self.has_step_batches else self.places > 1
        return Made(values if is_group else values[0], tasks=tasks)

    def check_capture(self) -> None:
        """Refuse to fetch a batch while a graph is captured: its copy would not be repeated."""
        if self.copiers and self.copiers[0].is_capturing:
            raise ReaderError(
                "a batch was asked for while a CUDA graph is captured: the graph would not fetch"
                " one when it is replayed. Fetch it before the capture, and copy each later one"
                " into the tensors that the graph reads (static.copy_(batch)); see docs/devices.md"
            )

    def has_space(self, index: int) -> bool:
        """Whether the batch at an index could land now: its copier has space for a copy."""
        if self.has_step_batches:
            return all(copier.has_space for copier in self.copiers)
        return self.copiers[index % self.places].has_space

    def sweep(self) -> None:
        """Release the slots of finished copies."""
        for copier in self.copiers:
            copier.sweep()

    def free_slots(self) -> None:
        """Wait until the copies under way no longer need their slots: memory is short."""
        for copier in self.copiers:
            copier.wait()

    @property
    def delivers_short_group(self) -> bool:
        """Whether a last group that is short is delivered."""
        return self._drop_last_group is False

    def warn_of_short_group(self, left: int, batches: int) -> None:
        """Warn that the last group is left out, unless the user asked for that.

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
