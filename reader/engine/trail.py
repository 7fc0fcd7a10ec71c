"""The last steps of an epoch: a state can be saved behind each of them.

Imports the tasks and the cursors of workers. A Trail belongs to the Progress of one epoch, which
holds its lock. It keeps tasks that were counted: without their keys and their batches.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from reader._core.epoch.tasks import Task, TaskTable
from reader.engine.worker_cursors import WorkerCursors

__all__ = ["Reached", "Trail"]


class Reached(NamedTuple):
    """A position that an epoch has reached.

    Attributes:
        steps: how many steps come before it.
        batches: how many batches were delivered without a gap, exceptions in their places too.
        mark: of the last of them, see `reader.orders.order.Order`.
        beyond: the numbers of batches that were delivered early.
        cursors: of the workers; None: these have no state.
        failed: how many samples have failed.
    """

    steps: int
    batches: int
    mark: Any
    beyond: list[int]
    cursors: WorkerCursors | None
    failed: int


class Trail:
    """The positions behind the last steps, each made only when it is asked for.

    Tasks are counted in lots. It keeps each lot with the position before it, as long as one of the
    last `keep` steps needs it.

    Args:
        table: of the epoch.
        keep: how many steps.
    """

    def __init__(self, table: TaskTable, keep: int) -> None:
        self._table = table
        self._keep = keep
        self._lots: deque[tuple[Reached, int, list[Task]]] = deque()  # with their earliest step

    def add(self, before: Reached, tasks: list[Task]) -> None:
        """Keep a lot that was just counted; drop those that are no longer needed."""
        lots = self._lots
        lots.append((before, min(task.step for task in tasks), tasks))
        oldest = self._table.steps - self._keep
        while len(lots) > 1 and lots[1][1] - 1 <= oldest:
            lots.popleft()
        marks = self._table.marks
        if marks is not None:
            for batches in [each for each in marks if each < lots[0][0].batches]:
                del marks[batches]

    @property
    def oldest(self) -> int:
        """The fewest steps behind which the position is known."""
        return self._lots[0][1] - 1 if self._lots else self._table.steps

    def marks(self) -> dict[int, Any]:
        """Return the marks of the order at the positions that are kept, by their batches."""
        if self._table.marks is not None:
            return dict(self._table.marks)
        found = {before.batches: before.mark for before, _, _ in self._lots}
        return found | {task.number + 1: task.mark for _, _, lot in self._lots for task in lot}

    def at(self, steps: int, now: Reached) -> Reached:
        """Return the position behind so many steps, from `oldest` on; `now`: the newest one."""
        lots = list(self._lots)
        while len(lots) > 1 and not any(task.step > steps for task in lots[0][2]):
            del lots[0]
        if not lots:
            return now
        before, tasks = lots[0][0], [task for _, _, lot in lots for task in lot]
        later = [task for task in tasks if task.step > steps]
        if not later:
            return now
        taken = [task for task in tasks if task.step <= steps]
        if self._table.in_order:
            taken = tasks[: tasks.index(later[0])]
        cursors, failed = before.cursors, before.failed
        if cursors is not None and taken:
            cursors = cursors.after(taken, self._table.is_stream)
        failed += sum(len(task.snapshot.bad) for task in taken if task.snapshot is not None)
        if self._table.is_stream:
            batches = now.batches if cursors is None else cursors.batches
            return Reached(steps, batches, None, [], cursors, failed)
        numbers = {task.number for task in later}
        batches = min(*numbers, now.batches)
        if self._table.in_order:
            mark = taken[-1].mark if taken else before.mark
            return Reached(steps, batches, mark, [], cursors, failed)
        marks = self._table.marks
        mark = None if marks is None else marks[batches]
        beyond = sorted({*range(batches, now.batches), *now.beyond} - numbers)
        return Reached(steps, batches, mark, beyond, cursors, failed)
