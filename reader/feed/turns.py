"""Whose turn it is on an iterable dataset: workers in a circle, without those that are used up.

Imports the channel's task kinds. Turns belong to one iterator and run in the thread that iterates.
A worker's answers, batch after batch and at last its end, tell how far its copy has come.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

from reader._core.channel import TaskKind
from reader.feed.dispatcher import Task

__all__ = ["Turns"]


class Turns:
    """Draws "the next batch" for one worker after the other.

    The order of the batches is the circle of the workers, from 0: a worker whose copy of the
    dataset is used up is passed over from then on. So it is the same in every run, whatever the
    timing.

    Args:
        workers: how many there are.
        ended: those whose copies were used up before.
        last: whose turn came last, before.
    """

    is_resumable = True

    def __init__(self, workers: int, ended: Iterable[int] = (), last: int = -1) -> None:
        gone = set(ended)
        self._live = [worker for worker in range(workers) if worker not in gone]
        # place in `_live` of the worker whose turn it is
        self._at = next((at for at, worker in enumerate(self._live) if worker > last), 0)
        self._sent = [0] * workers  # tasks of this epoch, by worker
        self._loads: Callable[[], Counter[int]] | None = None

    def watch(self, loads: Callable[[], Counter[int]]) -> None:
        """Pass over workers that have more than their part of all tasks."""
        self._loads = loads

    def draw(self) -> Task | None:
        """Return the next task, or None when every worker has come to its end."""
        if not self._live:
            return None
        worker = self._next()
        if self._loads is not None:
            loads = self._loads()
            for _ in self._live[1:]:
                if all(loads[worker] <= loads[other] for other in self._live):
                    break
                worker = self._next()
        self._sent[worker] += 1
        return TaskKind.TASK_NEXT, b"", worker

    def _next(self) -> int:
        worker = self._live[self._at]
        self._at = (self._at + 1) % len(self._live)
        return worker

    def end(self, worker: int) -> None:
        """Pass a worker over from now on."""
        if worker not in self._live:
            return
        place = self._live.index(worker)
        del self._live[place]
        if place < self._at:
            self._at -= 1
        if self._at == len(self._live):
            self._at = 0

    def is_live(self, worker: int) -> bool:
        """Whether the worker's end has not been seen."""
        return worker in self._live

    def has_answered(self, worker: int, lost: int) -> bool:
        """Whether a worker answered any task of this epoch, of which `lost` are unanswered."""
        return self._sent[worker] > lost
