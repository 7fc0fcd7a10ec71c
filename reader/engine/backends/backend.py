"""The protocol of a backend, and what a backend tells of its workers.

Imports the standard library and the types that cross. A backend is lent to one iterator at a time,
by the PoolCache; what it sends and takes goes through its feeder.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, Protocol

from reader.workers.global_rng_lock import GlobalRngLock
from reader.workers.loop import WorkerError

__all__ = ["Backend", "Death", "WorkerActivity", "WorkerStatus"]


@dataclasses.dataclass(frozen=True)
class Death:
    """A worker process that ended by itself.

    Attributes:
        worker_id: from 0.
        pid: of the process.
        exitcode: minus the number of a signal; None: not known.
        lost: the numbers of tasks of this epoch that it had and did not answer.
        busy: the one of them that it was at; None: it was idle.
        started: whether it ever said hello.
        is_used_up: whether it had said that its copy of an iterable dataset is used up.
    """

    worker_id: int
    pid: int
    exitcode: int | None
    lost: list[int]
    busy: int | None
    started: bool
    is_used_up: bool


class WorkerActivity(enum.Enum):
    """What a worker does."""

    IDLE = "idle"
    BUSY = "busy"
    ENDED = "ended"


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """A worker just now, as `loader.workers()` tells it.

    Attributes:
        worker_id: from 0.
        pid: of its process; with threads, of this one.
        activity: whether it makes a batch.
        batch: the number of the task in hand, None when it is idle. Of a map-style dataset it is
            the number of the batch in its epoch.
        sample: the row of the sample in hand, -1 when it is none in particular.
        since_s: for how many seconds it has had the batch in hand.
    """

    worker_id: int
    pid: int | None
    activity: WorkerActivity
    batch: int | None = None
    sample: int = -1
    since_s: float = 0.0


class Backend(Protocol):
    """Workers of one kind, for one iterator at a time."""

    @property
    def feeder(self) -> Any:
        """What sends tasks and takes answers; see `reader._core.feeder.Feeder`."""

    @property
    def workers(self) -> int:
        """How many take tasks, 1 or more."""

    @property
    def window(self) -> int:
        """The most tasks in flight."""

    @property
    def rng_lock(self) -> GlobalRngLock | None:
        """What guards the global random state where workers share it with the trainer."""

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in the process that made it."""

    @property
    def is_open(self) -> bool:
        """Whether nobody closed it."""

    def open_epoch(self, send_starts: Callable[[], bool], cursor: Any) -> None:
        """An epoch begins, of which `cursor` says how far it had come.

        `send_starts` sends the workers what they are to begin with; a backend that needs it before
        the first task calls it.
        """

    def replace_ended(self) -> list[Death]:
        """Start others in the place of workers that ended, and tell of them."""

    def name_of(self, worker: int) -> str:
        """Name a worker in a message."""

    def open_error(self, payload: Any) -> WorkerError:
        """Open what a worker sent in the place of a batch."""

    def cancel_epoch(self) -> None:
        """Drop what is in flight as it comes in. Waits for nothing."""

    def close_soon(self) -> None:
        """End the workers; a thread of its own does the waiting."""

    def close(self) -> None:
        """End the workers and wait until nothing of them is left. Idempotent."""

    @property
    def handles(self) -> list[Any]:
        """A handle of each worker, as `multiprocessing.Process` has it, in their order."""

    def statuses(self) -> list[WorkerStatus]:
        """Return what each worker does just now."""
