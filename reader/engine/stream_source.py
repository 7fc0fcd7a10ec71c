"""The tasks of an iterable dataset: round robin over the workers that are not exhausted.

Imports the channel's task kinds and the table of tasks. What a worker drew from the user's
generator cannot be drawn again: a batch for which there was no memory is asked for again, and the
death of a worker ends its share.
"""

from __future__ import annotations

from typing import Any

from reader._core.epoch.tasks import Task, TaskState, TaskTable
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from reader.engine.backends.backend import Death
from reader.engine.task_source import Loss, Remedy
from reader.errors import InternalError

__all__ = ["StreamSource"]

_MOST_TRIES = 2  # to have a batch that found no memory


class _Share:
    """One worker's share of the dataset.

    Attributes:
        is_live: it is not exhausted.
        deaths: of workers, before the first answer.
        ended_by: the deaths for which it is over; empty: none.
    """

    def __init__(self, is_live: bool) -> None:
        self.is_live = is_live
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
        retries: how often a share is begun anew when its worker died.
    """

    batches = None

    def __init__(self, table: TaskTable, num_workers: int, retries: int = 1) -> None:
        self._table = table
        self._retries = retries
        known = table.worker_cursors.all
        self._shares = [_Share(not known[worker].is_ended) for worker in range(num_workers)]

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self) -> Task | None:
        """Draw a task for the worker whose turn it is; None: every worker has come to its end."""
        table, count = self._table, len(self._shares)
        turns = [(table.last_worker + 1 + step) % count for step in range(count)]
        live = [worker for worker in turns if self._shares[worker].is_live]
        if not live:
            return None
        worker = live[0]
        if not table.in_order:  # skip those that have more tasks than another one
            loads = table.loads()
            worker = min(live, key=loads.__getitem__)
        task = Task(TaskKind.TASK_NEXT, b"", worker)
        table.draw(task)
        return task

    def encode(self, task: Task) -> None:
        """A task has no keys."""
        self._table.ready(task, task.kind, task.payload)

    def note_share_end(self, worker: int) -> None:
        """Skip a worker from now on."""
        self._shares[worker].is_live = False

    def is_live(self, worker: int) -> bool:
        """Whether the worker is not exhausted."""
        return self._shares[worker].is_live

    # -- what went wrong -------------------------------------------------------------------------

    def short_of_memory(self, task: Task) -> Remedy:
        """Ask the worker again, which keeps the samples; after two tries the exception is raised.

        The next call starts over.
        """
        share = self._shares[task.worker]
        if share.ended_by:  # it died since, and the batch's samples with it
            task.deaths = share.ended_by
            return Remedy.RAISE
        task.tries += 1
        if task.tries > _MOST_TRIES:
            task.tries = 0
            return Remedy.RAISE
        return Remedy.ASK_AGAIN

    def lost(self, death: Death) -> list[tuple[Task, Loss]]:
        """A worker died: another one begins its share anew, or the share is over."""
        worker, table = death.worker_id, self._table
        share = self._shares[worker]
        mine = [task for task in table.unanswered() if task.worker == worker]
        lost = [task for task in mine if task.number in death.lost]
        # what has another state, or is in flight and not lost, was answered
        has_answered = table.has_answered(worker) or any(
            task.state != TaskState.HELD and task not in lost for task in mine
        )
        # those asked again come first: their turn is the earliest
        mine = [task for task in mine if task in lost or task.state == TaskState.HELD]
        if death.is_used_up or not share.is_live:
            share.is_live = False  # exhausted, or its end is on the way: nobody begins it anew
            self._end_by(share, worker, share.ended_by or [death])
            if any(task.kind == TaskKind.TASK_AGAIN for task in mine):
                return _raised(mine, share.ended_by)
            return [(task, Loss.ENDED) for task in mine]
        if not has_answered and not self._is_hopeless(share, death, mine):
            # nothing of its share was delivered: the new worker begins it anew
            return [(task, Loss.AGAIN) for task in lost]
        full = [task for task in self._aside_of(worker) if _is_full(task.value)]
        if not mine and not full:
            mine = [self._next_of(worker)]
        share.is_live = False
        deaths, share.deaths = share.deaths, []
        self._end_by(share, worker, deaths if death in deaths else [*deaths, death])
        # it is told of once, in the place of the first batch that is lost; the others have none
        first = min([*mine, *full], key=lambda task: task.turn)
        for task in full:
            if task is not first:
                task.value.kind = FailureKind.END
        if first in full:
            return [(task, Loss.ENDED) for task in mine]
        return _raised(mine, share.ended_by)

    def _next_of(self, worker: int) -> Task:
        """Draw until it is the turn of a worker, which has no task, and return its task."""
        while True:
            task = self.draw()
            if task is None:
                raise InternalError(f"worker {worker} is exhausted and was to have a task")
            self.encode(task)
            if task.worker == worker:
                return task

    def _aside_of(self, worker: int) -> list[Task]:
        return [task for task in self._table.those(TaskState.ASIDE) if task.worker == worker]

    def _end_by(self, share: _Share, worker: int, deaths: list[Death]) -> None:
        share.ended_by = deaths
        for task in self._aside_of(worker):
            task.deaths = deaths  # if it was to be asked for again, that cannot be

    def _is_hopeless(self, share: _Share, death: Death, mine: list[Task]) -> bool:
        """Whether workers died at the beginning of this share too often."""
        if not mine or death.busy is None:
            return False
        share.deaths.append(death)
        return len(share.deaths) > self._retries


def _is_full(answer: Any) -> bool:
    return type(answer) is Failure and answer.kind is FailureKind.FULL


def _raised(tasks: list[Task], deaths: list[Death]) -> list[tuple[Task, Loss]]:
    """The deaths are raised in the place of the first task, and the others end."""
    tasks[0].deaths = deaths
    return [(task, Loss.ENDED if at else Loss.RAISED) for at, task in enumerate(tasks)]
