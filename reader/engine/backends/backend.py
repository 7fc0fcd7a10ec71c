"""The protocols of a backend and of its feeder, and what a backend reports of its workers.

Imports the standard library and the types that cross. A backend is lent to one iterator at a time,
by the PoolCache; what it sends and takes goes through its feeder.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from reader._core.memory.arena import Arena
from reader._core.memory.copying import copy_way
from reader._core.wire.failure import Failure
from reader._core.wire.local_channel import UserBatch
from reader._core.wire.times_log import TimesLog
from reader._core.wire.worker_reports import Damage, LostTasks, WorkerCounts, WorkerProgress
from reader.worker.global_rng_lock import GlobalRngLock
from reader.worker.loop import WorkerConfig, WorkerError

__all__ = [
    "Backend",
    "Death",
    "TaskFeeder",
    "UserBatch",
    "Watch",
    "WorkerActivity",
    "WorkerStatus",
    "arena_stats",
]


def arena_stats(arena: Arena | None, last: dict[str, Any] | None) -> dict[str, Any] | None:
    """Return the counts of an arena, or `last`, those of a closed one, where it is None."""
    counts = last if arena is None else arena.stats()
    return counts and {**counts, "copy_way": copy_way(), "is_open": arena is not None}


@dataclasses.dataclass(frozen=True)
class Death:
    """The end of a worker process: by itself, or killed because it hung or memory was damaged.

    Attributes:
        worker_id: from 0.
        pid: of the process.
        exitcode: minus the number of a signal; None: not known.
        lost: the numbers of its unanswered tasks of this epoch.
        current_seq: the one of them that it was at; None: it was idle.
        row: of the sample in it that it was at; -1: unknown.
        is_told: it needs no report: this package ended it, or another loader reports it.
        cause: what is known of the end of a worker on another machine.
        started: whether it ever reported that it runs.
        is_used_up: whether it had reported that its copy of an iterable dataset is exhausted.
        damage: the failed check of shared memory with the values that it saw, if all workers were
            killed for it.
    """

    worker_id: int
    pid: int
    exitcode: int | None
    lost: list[int]
    current_seq: int | None
    started: bool
    is_used_up: bool
    damage: Damage | None = None
    row: int = -1
    is_told: bool = False
    cause: str | None = None


class WorkerActivity(enum.Enum):
    """What a worker does."""

    STARTING = "starting"
    IDLE = "idle"
    BUSY = "busy"
    ENDED = "ended"


@dataclasses.dataclass(frozen=True)
class WorkerStatus:
    """What a worker does at this moment, as `loader.workers()` returns it.

    Attributes:
        worker_id: from 0.
        pid: of its process; with threads, of this one.
        activity: whether it makes a batch; "starting" until its `worker_init_fn` has returned.
        batch: the number of the task in hand, None when it is idle. With a map-style dataset it is
            the number of the batch in its epoch.
        sample: the row of the sample in hand; -1: unknown.
        since_s: for how many seconds it has been at that batch.
        thread_id: of its thread, as the system has it; with processes, of the main one: `pid`;
            None: on another machine.
        host: that machine, by its name; None: this one, or it has not started there yet.
        counts: of its work for this loader; None: it works for no other loader, on this machine.
    """

    worker_id: int
    pid: int | None
    activity: WorkerActivity
    batch: int | None = None
    sample: int = -1
    since_s: float = 0.0
    thread_id: int | None = None
    host: str | None = None
    counts: WorkerCounts | None = None


class Watch(Protocol):
    """Looks at the samples of workers for one loader; see Watchdog. Any thread may call it.

    Attributes:
        own_pause_s: how long a wait may last before the next look; None: there is none.
    """

    own_pause_s: float | None

    def look_once(self) -> None:
        """Log slow samples, and kill workers that hang."""


class TaskFeeder(Protocol):
    """Sends tasks and takes their answers; that of pools is `reader._core.wire.feeder.Feeder`."""

    @property
    def times(self) -> TimesLog:
        """The log for the times of batches that are taken."""

    @property
    def accepted(self) -> int:
        """The `next_seq` of this run, plus how many of its answers were accepted."""

    @property
    def sent(self) -> int:
        """One more than the number of the newest task that was sent."""

    @property
    def sends(self) -> int:
        """How many tasks were sent in all; one that is sent again counts again."""

    @property
    def queued(self) -> int:
        """How many batches are ready to be taken."""

    def begin_run(
        self,
        epoch: int,
        next_seq: int = 0,
        in_order: bool = True,
        times: TimesLog | None = None,
    ) -> None:
        """Expect the answers to tasks from `next_seq` on; those to earlier tasks are dropped.

        `times`: the log of what is taken from now on; None: that of before.
        """

    def dispatch(self, seq: int, kind: int, payload: Any, worker_id: int = -1) -> bool:
        """Send a task to a worker, -1: the least busy one; False: it has no space for a task."""

    def take(self, timeout: float | None = None) -> Any:
        """Return the next answer, the same one until `accept`.

        A LoDTensorArray, a UserBatch, or a Failure in the batch's place. None: a notice: see
        `ended_workers` and `failed_worker`, or a worker has space for a task again. False: no
        answer came within `timeout` seconds (None: no limit).
        """

    def accept(self) -> None:
        """Accept the answer that was taken; `take` returns the next one from now on."""

    def drop_task(self, seq: int, worker_id: int, is_end: bool = False) -> None:
        """Put a Failure in the place of a task's answer, which will not come.

        Its kind is END where `is_end`, else LOST.
        """

    def ended_workers(self) -> list[int]:
        """Return the workers whose process ended and was not replaced yet."""

    def failed_worker(self) -> Failure | None:
        """Return the Failure of a worker that could not start, once in each run."""

    def detach(self, worker_id: int) -> LostTasks:
        """Detach a worker that ended; returns its unanswered tasks."""

    @property
    def has_initial_states(self) -> bool:
        """Whether all workers that had a TASK_ENTER have begun the epoch, or ended."""

    def initial_state(self, worker_id: int) -> Any:
        """Return the answer of a worker to a TASK_ENTER, once; None: there is none."""

    def worker_progress(self, worker_id: int) -> WorkerProgress:
        """Return the batch and the sample that a worker is at."""

    @property
    def paused_s(self) -> float:
        """The seconds for which this process was stopped."""

    def clock_s(self) -> float:
        """Return the time by a clock that leaves out pauses of this process."""

    def watch_pauses(self, tick_s: float) -> None:
        """Notice pauses also while nobody waits for a batch, by a look each `tick_s` seconds."""

    def is_busy(self) -> bool:
        """Whether any worker has a task."""

    def trim(self) -> None:
        """Return the memory of released batches to the system."""


class Backend(Protocol):
    """Workers of one kind, for one iterator at a time.

    Attributes:
        works_ahead: batches may be made before the consumer waits for them.
        takes_keys: tasks carry dataset keys as they are; else encoded, see
            `reader._core.wire.channel`.

    Args:
        config: what each worker is given.
        window: most tasks in flight.
        max_bytes: most memory that batches may own; None: what the machine has.
        active: how many workers are started; None: all.
    """

    works_ahead: ClassVar[bool]
    takes_keys: ClassVar[bool]

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        max_bytes: int | None = None,
        active: int | None = None,
    ) -> None: ...

    @property
    def feeder(self) -> TaskFeeder:
        """The feeder: sends tasks and takes answers."""

    @property
    def num_workers(self) -> int:
        """How many workers may take tasks, 1 or more."""

    @property
    def started(self) -> int:
        """How many of them have been started."""

    @property
    def window(self) -> int:
        """The most tasks in flight."""

    @property
    def rng_lock(self) -> GlobalRngLock | None:
        """The lock of the global random state, if workers share it with the trainer."""

    @property
    def arena(self) -> Arena | None:
        """The arena; None: there is none yet, or it is closed."""

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in the process that made it."""

    @property
    def is_open(self) -> bool:
        """Whether it is not closed."""

    def open_epoch(self, send_starts: Callable[[], bool], progress: Any) -> None:
        """Begin an epoch, or resume it where `progress` (a Progress) is.

        `send_starts` sends each worker its EpochStart. The first task sends it, too; a backend that
        needs it earlier calls it here.
        """

    def replace_ended(self) -> list[Death]:
        """Start new workers in the place of those that ended; returns the deaths."""

    def name_of(self, worker_id: int) -> str:
        """Name a worker in a message."""

    def open_error(self, payload: Any) -> WorkerError:
        """Decode what a worker sent in the place of a batch."""

    def kill_worker(self, worker_id: int) -> bool:
        """Kill a worker that hangs, so that it is replaced; False: it cannot be killed."""

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:
        """Note the Watch of the iterator that has this backend.

        Returns a function that finds those of other loaders with the same workers.
        """

    def cancel_epoch(self) -> None:
        """Drop the answers of tasks in flight as they come. Blocks on nothing."""

    def close_soon(self, grace_s: float | None = None) -> None:
        """Close the workers; a thread of its own waits for them."""

    def close(self, grace_s: float | None = None) -> None:
        """End the workers and wait for their end. Idempotent.

        `grace_s`: the seconds that they have to finish their samples; None: 5, but 0 where an
        exception drops the backend.
        """

    @property
    def handles(self) -> list[Any]:
        """A handle of each worker, as `multiprocessing.Process` has it, in their order."""

    def statuses(self) -> list[WorkerStatus]:
        """Return what each worker does at this moment."""
