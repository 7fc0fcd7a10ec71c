"""The schedule: which task is next, which worker gets it, and which tasks are in flight.

Imports the types that cross and the window. `Schedule` is the protocol, which `map_tasks` and
`stream_tasks` implement, and `Remedies` what they may ask of the supervisor. Each has a Window,
which alone counts the tasks in flight. All of it belongs to one iterator and runs in the thread
that iterates.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from reader._core.steps.handover import Task
from reader._core.wire.failure import Failure
from reader.engine.backends.backend import Death

__all__ = ["Remedies", "Schedule"]


class Remedies(Protocol):
    """What a schedule may ask of the supervisor where a task gets no batch.

    Attributes:
        worker_retries: how often a batch is made again whose worker died.
        deaths: by batch, the workers that died at it.
    """

    worker_retries: int
    deaths: dict[int, list[Death]]

    def wait(self) -> Any:
        """Wait for the next batch or Failure, and return it."""

    def error_of(self, item: Failure, keys: list[Any], number: int) -> BaseException:
        """Return the exception of a Failure, with the deaths at its batch."""

    def is_hopeless(self, seq: int, death: Death) -> bool:
        """Note a worker's death at a batch; returns whether it was one too many."""

    def mark_bad(self, seq: int, death: Death) -> bool:
        """Have a batch made without the sample at which its worker died; False: it cannot be."""

    def is_hung(self, seq: int) -> bool:
        """Whether the worker of a batch was ended because that hung."""

    def give_up(self, seq: int, worker: int, is_end: bool = False) -> None:
        """Put a failure, or the end of its worker, in the place of a task that never comes."""

    def shrink(self) -> None:
        """There is no memory for the next batch: keep fewer in flight, and have it made again."""

    def halve(self) -> None:
        """Keep half as many batches in flight from now on."""

    def trim(self) -> None:
        """Have the memory of released batches given back."""

    def await_idle(self) -> None:
        """Wait until no worker has anything to do."""


class Schedule(Protocol):
    """Draws tasks, names the worker of each, and says which may be sent again."""

    def draw(self) -> Task | None:
        """Return the next task, the same one until `drawn`; None at the end.

        An interrupt may leave it anywhere: it is called again.
        """

    def drawn(self) -> None:
        """Count the task that `draw` returned as in flight. May be called once more for it."""

    @property
    def is_over(self) -> bool:
        """Whether all is delivered."""

    def draw_first(self) -> None:
        """Draw the first task now, so that a state can describe the order."""

    def number_of(self, seq: int | None) -> int:
        """Return the number of a batch in its epoch, for messages; None: of the next one."""

    def taking(self, wait: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next batch or Failure; `wait` waits for an answer of a worker."""

    def polling(self, poll: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next batch or Failure where it has come, as `poll` does."""

    def send(self) -> None:
        """Send what workers have room for now; called while a batch is waited for."""

    def refill(self) -> None:
        """Fill the window while a batch is out of the queue and not delivered yet."""

    def answered_task(self, item: Any) -> tuple[Task, Callable[[], Any] | None]:
        """Return the task of which an item is the answer, and what accepts the item.

        That is written in C; None: the feeder accepts it, and its task goes.
        """

    def end(self, worker: int) -> None:
        """Skip a worker from now on, whose copy of an iterable dataset is exhausted."""

    def retry(self, item: Any, remedies: Remedies) -> bool:
        """Have a failed task made again; False: the failure is raised."""

    def lose(self, death: Death, remedies: Remedies) -> None:
        """Give the tasks of a dead worker to other workers, or give them up."""
