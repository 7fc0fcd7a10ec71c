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
from reader.feed.iterator import EpochIterator, EpochOptions
from reader.feed.keeper import PoolKeeper
from reader.feed.parts import Parts
from reader.feed.progress import Progress
from reader.feed.trouble import drawn_by, failure
from reader.feed.turns import Turns
from reader.feed.wait_stats import WaitStats
from reader.workers.interrupt import interrupt_after
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
        progress: with the parts of the workers.
    """

    def __init__(
        self,
        keeper: PoolKeeper,
        workers: int,
        convert: Callable[[LoDTensorArray], Any],
        options: EpochOptions,
        stats: WaitStats,
        progress: Progress,
    ) -> None:
        parts = progress.parts or Parts(workers, 1)
        ended = [worker for worker, part in enumerate(parts.all) if part.is_ended]
        self._turns = Turns(workers, ended, parts.last)
        self._delivered = parts
        self._early: deque[tuple[Any, Task]] = deque()  # accepted while another was waited for
        self._asked: int | None = None  # the task that asks again for the batch that is next
        self._tries = 0  # how often it was asked for again
        self._first_deaths: dict[int, list[Death]] = {}  # by worker: before it answered anything
        super().__init__(keeper, lambda: self._turns, convert, options, stats, progress)
        self._batches = progress.first.batches

    @property
    def _is_over(self) -> bool:
        return not self._early and self._asked is None and self._window.is_over

    @property
    def _place(self) -> int:
        return self._batches

    @property
    def _first(self) -> int:
        return 0  # tasks are turns, and not batches

    def _send(self) -> None:
        if self._asked is None:
            super()._send()
        else:
            self._window.flush()

    def _refill(self) -> None:
        if not self._early:
            super()._refill()

    def _take(self) -> Any:
        while self._asked is not None:
            self._send()  # what is accepted below makes room in the window, and nobody tells
            found = super()._take()
            if found.seq == self._asked:
                return found
            self._set_aside(found)
        return self._early[0][0] if self._early else super()._take()

    def _accept(self, item: Any) -> Task:
        if self._asked is None and self._early and self._early[0][0] is item:
            task = self._early.popleft()[1]
        else:
            self._asked = None
            task = super()._accept(item)
        if type(item) is LoDTensorArray:
            self._delivered.count(task[2], item.attached)
        elif item.kind not in ("end", "full"):
            self._delivered.count_failure(task[2], drawn_by(self._pool, item))
        return task

    def _note(self, item: LoDTensorArray) -> None:
        """It was counted with the batch."""

    def _refuse(self, item: Any) -> None:
        if item.kind == "end":
            with interrupt_after():
                is_first = self._turns.is_live(item.worker)
                self._turns.end(item.worker)
                self._accept(item)
                if is_first:
                    self._delivered.end(item.worker, item.payload)
            self._refill()
        elif item.kind == "full":
            self._ask_again(item)
        else:
            self._fail(item)

    # -- memory ----------------------------------------------------------------------------------

    def _ask_again(self, item: Any) -> None:
        """A worker found no room for what it drew and keeps it: have it sent ahead of the rest.

        At first as soon as the worker can; the second time when no other batch takes memory. Then
        it is ArenaFull, and iterating on asks once more.
        """
        with interrupt_after():
            task = self._accept(item)
            kind, payload, worker = task
            is_new = kind != TaskKind.TASK_AGAIN
            self._tries = 1 if is_new else self._tries + 1
            self._early.appendleft((item, task))  # until it is asked for: waiting may be given up
        if self._tries > 2:
            self._tries = 0
            raise failure(self._pool, item, [], [], self._options, self._batches)
        self._halve()
        while self._tries == 2 and not self._window.is_empty:
            self._set_aside(super()._take())
        self._feeder.trim()
        if self._tries == 2:
            self._settle()  # the other workers give back what they keep for later
        number = item.seq.to_bytes(8, "little") if is_new else payload
        with interrupt_after():
            self._early.popleft()
            self._asked = self._window.send((int(TaskKind.TASK_AGAIN), number, worker))

    def _set_aside(self, item: Any) -> None:
        """Accept what came before its turn, without the memory of the arena."""
        with interrupt_after():
            task = super()._accept(item)
            if type(item) is LoDTensorArray:
                item = item.private_copy()
            self._early.append((item, task))

    # -- deaths ----------------------------------------------------------------------------------

    def _mourn(self, death: Death) -> None:
        worker = death.worker_id
        held = self._window.held_by(worker)
        open_ = sorted({*death.lost, *held})
        nexts = sum(self._window.task(seq)[0] == TaskKind.TASK_NEXT for seq in open_)
        if death.is_used_up or not self._turns.is_live(worker):
            self._give_up(open_, worker)
        elif not self._turns.has_answered(worker, nexts) and not self._is_hopeless(death, open_):
            # nothing of its part was seen: the one in its place begins it anew
            self._window.hold((seq, self._window.task(seq)) for seq in death.lost)
        else:
            self._turns.end(worker)
            if not open_:
                open_ = [self._window.add((int(TaskKind.TASK_NEXT), b"", worker))]
            deaths = self._first_deaths.pop(worker, [])
            self._deaths[open_[0]] = deaths if death in deaths else [*deaths, death]
            self._feeder.give_up(open_[0], worker)
            self._give_up(open_[1:], worker)
            self._window.drop_held(open_)
        if death.busy is None:
            self._count_idle_death(death)

    def _is_hopeless(self, death: Death, seqs: list[int]) -> bool:
        """Whether workers died at the beginning of this part too often."""
        if not seqs or death.busy is None:
            return False
        deaths = self._first_deaths.setdefault(death.worker_id, [])
        deaths.append(death)
        return len(deaths) > self._options.worker_retries

    def _give_up(self, seqs: list[int], worker: int) -> None:
        """Nothing comes for these tasks, and nothing is lost by it."""
        for seq in seqs:
            self._feeder.give_up(seq, worker, is_end=True)
        self._window.drop_held(seqs)
