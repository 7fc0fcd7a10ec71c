"""The tasks of an iterable dataset: round robin over the workers that are not exhausted.

Imports the channel's task kinds and the table of tasks. Samples that a worker drew from the user's
generator cannot be drawn again: so its worker keeps a batch that found no memory, and the death of
a worker ends its shard.
"""

from __future__ import annotations

from bisect import bisect
from typing import Any

from reader._core.epoch.tasks import Task, TaskState, TaskTable
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from reader.engine.backends.backend import Death
from reader.engine.task_source import Loss, Remedy
from reader.errors import InternalError

__all__ = ["StreamSource"]

_NEXT = int(TaskKind.TASK_NEXT)
_MOST_TRIES = 2  # for a batch that found no memory


class _Shard:
    """The deaths at what one worker yields of the dataset.

    Attributes:
        deaths: of its workers before the first answer.
        ended_by: those that ended it; empty: none.
    """

    def __init__(self) -> None:
        self.deaths: list[Death] = []
        self.ended_by: list[Death] = []


class StreamSource:
    """Draws "the next batch" for one worker after the other; see `TaskSource`.

    The order of the batches is round robin over the workers, from 0; a worker whose copy of the
    dataset is exhausted is skipped from then on. So every run has the same order, whatever the
    timing.

    Args:
        table: of the epoch; its `worker_cursors` say who is exhausted, and its `last_worker` whose
            turn was last.
        num_workers: how many workers there are.
        retries: how often a shard is begun anew when its worker died.
    """

    batches = None

    def __init__(self, table: TaskTable, num_workers: int, retries: int = 1) -> None:
        self._table = table
        self._retries = retries
        known = table.worker_cursors.all
        self._in_order = table.in_order
        self._shards = [_Shard() for _ in range(num_workers)]
        self._live = [each for each in range(num_workers) if not known[each].is_ended]  # ascending

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self) -> Task | None:
        """Draw a task for the worker whose turn it is; None: every shard has ended."""
        table, live = self._table, self._live
        if not live:
            return None
        at = bisect(live, table.last_worker) % len(live)
        worker_id = live[at]
        if not self._in_order:  # skip workers that have more tasks than another one
            worker_id = min(live[at:] + live[:at], key=table.loads().__getitem__)
        return table.draw(_NEXT, b"", worker_id, True)

    def encode(self, task: Task) -> None:
        """Do nothing: each task is drawn ready for sending."""

    def note_shard_end(self, worker_id: int) -> None:
        """Skip a worker from now on."""
        if worker_id in self._live:
            self._live.remove(worker_id)

    def is_live(self, worker_id: int) -> bool:
        """Whether the worker is not exhausted."""
        return worker_id in self._live

    # -- what went wrong -------------------------------------------------------------------------

    def handle_no_memory(self, task: Task) -> Remedy:
        """Ask the worker again, which keeps the samples; after two tries raise the exception.

        The next call starts over.
        """
        shard = self._shards[task.worker]
        if shard.ended_by:  # the worker died since; the samples are lost
            task.note_deaths(shard.ended_by)
            return Remedy.RAISE
        return Remedy.ASK_AGAIN if task.note_no_memory(_MOST_TRIES) else Remedy.RAISE

    def handle_death(self, death: Death) -> list[tuple[Task, Loss]]:
        """Begin the shard anew in another worker, or end it; see `TaskSource`.

        Where the dead worker has no task, draws tasks up to its turn.
        """
        worker_id, table = death.worker_id, self._table
        shard = self._shards[worker_id]
        mine = [task for task in table.unanswered() if task.worker == worker_id]
        lost = [task for task in mine if task.number in death.lost]
        # what has another state, or is in flight and not lost, was answered
        has_answered = table.has_answered(worker_id) or any(
            task.state != TaskState.HELD and task not in lost for task in mine
        )
        # those asked again come first: their turn is the earliest
        mine = [task for task in mine if task in lost or task.state == TaskState.HELD]
        if death.is_used_up or not self.is_live(worker_id):
            # exhausted, or its end is on the way: it does not begin anew
            self._end_by(shard, worker_id, [death])
            if any(task.kind == TaskKind.TASK_AGAIN for task in mine):
                return _raised(mine, shard.ended_by)
            return [(task, Loss.ENDED) for task in mine]
        if not has_answered and not self._is_hopeless(shard, death, mine):
            # nothing of its shard was delivered: the new worker begins it anew
            return [(task, Loss.AGAIN) for task in lost]
        full = [task for task in self._aside_of(worker_id) if _is_full(task.value)]
        if not mine and not full:
            mine = [self._next_of(worker_id)]
        deaths = shard.deaths if death in shard.deaths else [*shard.deaths, death]
        self._end_by(shard, worker_id, deaths)
        # the first lost task gets the exception; the others end without one
        first = min([*mine, *full], key=lambda task: task.first_number)
        for task in full:
            if task is not first:
                table.replace_answer(task, task.value.as_kind(FailureKind.END))
        if first in full:
            return [(task, Loss.ENDED) for task in mine]
        return _raised(mine, shard.ended_by)

    def _next_of(self, worker_id: int) -> Task:
        """Draw until the turn of a worker that has no task, and return its task."""
        while True:
            task = self.draw()
            if task is None:
                raise InternalError(f"worker {worker_id} is exhausted and was to have a task")
            if task.worker == worker_id:
                return task

    def _aside_of(self, worker_id: int) -> list[Task]:
        return [task for task in self._table.those(TaskState.ASIDE) if task.worker == worker_id]

    def _end_by(self, shard: _Shard, worker_id: int, deaths: list[Death]) -> None:
        self.note_shard_end(worker_id)
        shard.ended_by = shard.ended_by or deaths
        for task in self._aside_of(worker_id):
            task.note_deaths(shard.ended_by)  # a task that was to be asked for again is lost

    def _is_hopeless(self, shard: _Shard, death: Death, mine: list[Task]) -> bool:
        """Whether workers died at the beginning of this shard too often."""
        if not mine or death.current_seq is None:
            return False
        shard.deaths.append(death)
        return len(shard.deaths) > self._retries


def _is_full(answer: Any) -> bool:
    return type(answer) is Failure and answer.kind is FailureKind.FULL


def _raised(tasks: list[Task], deaths: list[Death]) -> list[tuple[Task, Loss]]:
    """Raise the deaths in the place of the first task, and end the others."""
    tasks[0].note_deaths(deaths)
    return [(task, Loss.ENDED if at else Loss.RAISED) for at, task in enumerate(tasks)]
