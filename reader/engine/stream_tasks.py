"""The schedule of an iterable dataset: round robin over the workers that are not exhausted.

Imports the channel's task kinds and the window. A schedule belongs to one iterator and runs in the
thread that iterates. What a worker drew from the user's generator cannot be drawn again: a batch
for which there was no memory is asked for again, and the death of a worker ends its share.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable
from typing import Any

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.interpreter.signals import interrupt_after
from reader._core.steps.handover import Task
from reader._core.steps.window import Window
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import FailureKind
from reader.engine.backends.backend import Backend, Death
from reader.engine.cursor import StreamCursor
from reader.engine.schedule import Remedies

__all__ = ["StreamTasks"]


class StreamTasks:
    """Draws "the next batch" for one worker after the other; see `Schedule`.

    The order of the batches is round robin over the workers, from 0; a worker whose copy of the
    dataset is exhausted is skipped from then on. So every run has the same order, whatever the
    timing.

    Args:
        window: the tasks in flight.
        backend: makes the batches.
        cursor: of the epoch: who is exhausted, and whose turn was last.
    """

    def __init__(self, window: Window, backend: Backend, cursor: StreamCursor) -> None:
        self._window = window
        self._cursor = cursor
        workers, last = backend.workers, cursor.workers.last
        ended = [worker for worker, each in enumerate(cursor.workers.all) if each.is_ended]
        self._early: deque[tuple[Any, Task]] = deque()  # accepted before their turn
        self._asked_seq = -1  # the task that asked again for a batch last
        self._tries = 0  # how often it was asked for again
        self._first_deaths: dict[int, list[Death]] = {}  # deaths before the first answer, by worker
        self._dead: dict[int, list[Death]] = {}  # deaths that ended a worker's share
        gone = set(ended)
        self._live = [worker for worker in range(workers) if worker not in gone]
        # place in `_live` of the worker whose turn it is
        self._at = next((at for at, worker in enumerate(self._live) if worker > last), 0)
        self._sent = [0] * workers  # tasks of this epoch, by worker
        # for `drawn`: the next place in `_live`, the task's worker, and how many tasks it has then
        self._next: tuple[int, int, int] | None = None
        # as they come: skip workers that have more tasks than another one
        self._loads = None if window.in_order else window.loads

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self) -> Task | None:
        """Return the next task, or None when every worker has come to its end."""
        if not self._live:
            return None
        at = self._at
        if self._loads is not None:
            loads = self._loads()
            fewest = min(loads[worker] for worker in self._live)
            while loads[self._live[at]] > fewest:
                at = (at + 1) % len(self._live)
        worker = self._live[at]
        self._next = ((at + 1) % len(self._live), worker, self._sent[worker] + 1)
        return Task(TaskKind.TASK_NEXT, b"", worker)

    def drawn(self) -> None:
        """Count the task that `draw` returned as in flight. May be called once more for it."""
        if self._next is not None:
            self._at, worker, sent = self._next
            self._sent[worker] = sent
            self._next = None

    def end(self, worker: int) -> None:
        """Skip a worker from now on."""
        self._next = None
        if worker not in self._live:
            return
        place = self._live.index(worker)
        del self._live[place]
        if place < self._at:
            self._at -= 1
        if self._at == len(self._live):
            self._at = 0

    def is_live(self, worker: int) -> bool:
        """Whether the worker is not exhausted."""
        return worker in self._live

    def has_answered(self, worker: int, lost: int) -> bool:
        """Whether a worker answered any task of this epoch; `lost` of them are unanswered."""
        return self._sent[worker] > lost

    def draw_first(self) -> None:
        """Do nothing: the workers' cursors describe the order."""

    # -- answers ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether all is delivered."""
        return not self._early and self._asked is None and self._window.is_over

    def number_of(self, seq: int | None) -> int:  # noqa: ARG002
        """Return the number of the next batch in its epoch, for messages."""
        self._cursor.count_handed()
        return self._cursor.batches

    def taking(self, wait: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next answer."""
        return functools.partial(self._take, wait)

    def polling(self, poll: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next answer where it has come, and none was asked for again."""
        return lambda: None if self._early or self._asked is not None else poll()

    def _take(self, wait: Callable[[], Any]) -> Any:
        """Return the next answer: a batch that was asked for again comes before all others."""
        if self._asked_seq < 0 and not self._early:
            return wait()
        while self._asked is not None:
            self.send()  # batches set aside below leave room in the window
            found = wait()
            if found.seq == self._asked:
                return found
            self._set_aside(found)
        return self._early[0][0] if self._early else wait()

    def send(self) -> None:
        """Send what workers have room for now; called while a batch is waited for."""
        if self._asked is None:
            self._window.fill(self)
        else:
            self._window.flush()

    def refill(self) -> None:
        """Fill the window while a batch is out of the queue and not delivered yet."""
        if not self._early:
            self._window.fill(self, 1)

    def answered_task(self, item: Any) -> tuple[Task, Callable[[], Any] | None]:
        """Return the task of which an item is the answer, and what accepts the item."""
        if self._early and self._asked is None and self._early[0][0] is item:
            return self._early[0][1], self._early.popleft
        return self._window.tasks[item.seq], None

    @property
    def _asked(self) -> int | None:
        """The task that asks again for the next batch."""
        return self._asked_seq if self._asked_seq in self._window.tasks else None

    def retry(self, item: Any, remedies: Remedies) -> bool:
        """Ask again for a batch without memory; False: the failure is raised."""
        if item.kind is not FailureKind.FULL:
            return False
        if item.worker in self._dead:  # it died since, and the batch's samples with it
            item.kind = FailureKind.LOST
            remedies.deaths[item.seq] = self._dead[item.worker]
            return False
        self._ask_again(item, remedies)
        return True

    def _ask_again(self, item: Any, remedies: Remedies) -> None:
        """A worker had no memory for a batch, and keeps its samples: ask for it before all others.

        The first time the request is sent as soon as the worker has room; the second time when no
        other batch takes up memory. The third time ArenaFull is raised; the next call starts over.
        """
        with interrupt_after():
            task, step = self.answered_task(item)
            if step is None:
                self._window.accept(item.seq)
            else:
                step()
            is_new = task.kind != TaskKind.TASK_AGAIN
            self._tries = 1 if is_new else self._tries + 1
            self._early.appendleft((item, task))  # the wait below may be interrupted
        if self._tries > 2:
            self._tries = 0
            raise remedies.error_of(item, [], self.number_of(None))
        remedies.halve()
        while self._tries == 2 and not self._window.is_empty:
            self._set_aside(remedies.wait())
        remedies.trim()
        if self._tries == 2:
            remedies.await_idle()  # the other workers give their spare slots back
        number = item.seq.to_bytes(8, "little") if is_new else task.payload
        if task.worker in self._dead:
            return  # it died just now
        with interrupt_after():
            self._early.popleft()
            self._asked_seq = self._window.send(Task(TaskKind.TASK_AGAIN, number, task.worker))

    def _set_aside(self, item: Any) -> None:
        """Accept what came before its turn, as a copy outside of the arena."""
        with interrupt_after():
            task = self._window.accept(item.seq)
            if type(item) is LoDTensorArray:
                item = item.private_copy()
            self._early.append((item, task))

    # -- deaths ----------------------------------------------------------------------------------

    def lose(self, death: Death, remedies: Remedies) -> None:
        """A worker died: another one begins its share anew, or the share is over."""
        worker, window = death.worker_id, self._window
        # the batch that was asked for again comes before all others
        open_ = sorted(
            {*death.lost, *window.held_by(worker)}, key=lambda seq: (seq != self._asked_seq, seq)
        )
        nexts = sum(window.task(seq).kind == TaskKind.TASK_NEXT for seq in open_)
        if death.is_used_up or not self.is_live(worker):
            self.end(worker)  # exhausted, or its end is on the way: a new worker would begin anew
            self._dead.setdefault(worker, [death])
            if self._asked_seq in open_:
                self._raise_death(open_, worker, remedies)
            else:
                self._give_up(open_, worker, remedies)
        elif not self.has_answered(worker, nexts) and not self._is_hopeless(death, open_, remedies):
            # nothing of its share was delivered: the new worker begins it anew
            window.hold(window.task(seq) for seq in death.lost)
        else:
            self.end(worker)
            if not open_:
                open_ = [window.add(Task(TaskKind.TASK_NEXT, b"", worker))]
            deaths = self._first_deaths.pop(worker, [])
            self._dead[worker] = deaths if death in deaths else [*deaths, death]
            self._raise_death(open_, worker, remedies)

    def _raise_death(self, seqs: list[int], worker: int, remedies: Remedies) -> None:
        """Have the death of a worker raised in the place of its first task, and end the others."""
        remedies.deaths[seqs[0]] = self._dead[worker]
        remedies.give_up(seqs[0], worker)
        self._give_up(seqs[1:], worker, remedies)
        self._window.drop_held(seqs)

    def _is_hopeless(self, death: Death, seqs: list[int], remedies: Remedies) -> bool:
        """Whether workers died at the beginning of this share too often."""
        if not seqs or death.busy is None:
            return False
        deaths = self._first_deaths.setdefault(death.worker_id, [])
        deaths.append(death)
        return len(deaths) > remedies.worker_retries

    def _give_up(self, seqs: list[int], worker: int, remedies: Remedies) -> None:
        """End tasks that get no batch; no batch is lost by that."""
        for seq in seqs:
            remedies.give_up(seq, worker, is_end=True)
        self._window.drop_held(seqs)
