"""The iterator over one epoch of an iterable dataset: ends by worker, and nothing made again.

Imports the iterator, the window and turns. What a worker drew from the user's generator cannot be
drawn anew, so a batch that found no room is asked for again, and a dead worker ends its part.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from reader._core.channel import TaskKind
from reader._core.tensor_array import LoDTensorArray
from reader.feed.dispatcher import Task
from reader.feed.iterator import EpochIterator, EpochOptions, WaitStats
from reader.feed.keeper import PoolKeeper
from reader.feed.trouble import failure
from reader.feed.turns import Turns
from reader.workers.pool import Death

__all__ = ["StreamIterator"]


class StreamIterator(EpochIterator):
    """Yields the batches of the workers' copies of an iterable dataset, one worker after the other.

    Args:
        keeper: lends the pool.
        workers: how many take turns.
        convert: makes the user's batch of a LoDTensorArray.
        options: see EpochOptions.
        stats: counted up while iterating.
    """

    def __init__(
        self,
        keeper: PoolKeeper,
        workers: int,
        convert: Callable[[LoDTensorArray], Any],
        options: EpochOptions,
        stats: WaitStats,
    ) -> None:
        self._turns = Turns(workers)
        self._early: deque[tuple[Any, Task]] = deque()  # accepted while another was waited for
        super().__init__(keeper, lambda: self._turns, convert, options, stats)

    @property
    def _is_over(self) -> bool:
        return not self._early and self._window.is_over

    @property
    def _place(self) -> int:
        return self._batches

    def _take(self) -> Any:
        return self._early[0][0] if self._early else super()._take()

    def _accept(self, item: Any) -> Task:
        if self._early and self._early[0][0] is item:
            return self._early.popleft()[1]
        return super()._accept(item)

    def _refuse(self, item: Any) -> None:
        if item.kind == "end":
            self._turns.end(item.worker)
            self._accept(item)
            self._window.fill()
        elif item.kind == "full":
            self._ask_again(item)
        else:
            self._fail(item)

    def _ask_again(self, item: Any) -> None:
        """A worker found no room for what it drew and keeps it: wait for it, ahead of the rest."""
        self._halve()
        kind, payload, worker = self._accept(item)
        if kind != TaskKind.TASK_AGAIN:
            payload = item.seq.to_bytes(8, "little")
        self._feeder.trim()
        task = (int(TaskKind.TASK_AGAIN), payload, worker)
        seq = self._window.add(task)
        self._window.hold([(seq, task)])
        self._window.fill()
        came: deque[tuple[Any, Task]] = deque()
        try:
            while True:
                found = super()._take()
                its_task = super()._accept(found)
                if found.seq == seq:
                    came.appendleft((found, its_task))
                    break
                came.append((found, its_task))
        finally:
            self._early = came + self._early
        if type(found) is not LoDTensorArray and found.kind == "full":
            # still here: iterating on asks once more
            raise failure(self._pool, found, [], [], self._options, self._batches)

    def _mourn(self, death: Death) -> None:
        lost = sorted(death.lost)
        worker = death.worker_id
        if not self._turns.is_live(worker):
            for seq in lost:
                self._feeder.give_up(seq, worker, is_end=True)
            return
        first = lost[0] if lost else self._window.dispatched
        is_given_up = self._is_given_up(first, death)
        if lost and not is_given_up and not self._turns.has_answered(worker, len(lost)):
            # nothing of its part was seen: the one in its place begins it anew
            self._window.hold((seq, self._window.task(seq)) for seq in lost)
        else:
            self._turns.end(worker)
            if not lost:
                self._window.add((int(TaskKind.TASK_NEXT), b"", worker))
            self._feeder.give_up(first, worker)
            for seq in lost[1:]:
                self._feeder.give_up(seq, worker, is_end=True)
        if death.busy is None:
            self._count_idle_death(death)
