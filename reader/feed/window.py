"""The window: which tasks are in flight, which wait, and when to draw more.

Imports the channel's task format and the feeder. It is the one owner of these counts; it belongs to
one iterator and runs in the thread that iterates. Sequence numbers count tasks.
"""

from __future__ import annotations

import pickle
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol

from reader._core.channel import TaskKind, decode_task
from reader._core.feeder import Feeder
from reader.data.failure import as_user_error
from reader.errors import SamplerError
from reader.feed.dispatcher import Task

__all__ = ["MAX_LAG", "Source", "Window"]

MAX_LAG = 1 << 16  # tasks between the oldest and the newest, where they are delivered as they come


class Source(Protocol):
    """What tasks come from: a Dispatcher, or Turns."""

    is_resumable: bool  # whether it can go on after an exception within `draw`

    def draw(self) -> Task | None:
        """Return the next task, or None at the end."""

    def watch(self, loads: Callable[[], Counter[int]]) -> None:
        """Send tasks to workers with room to spare; `loads` tells how many each has."""


class Window:
    """Keeps as many tasks in flight as `size` says.

    Args:
        feeder: sends them.
        source: yields them.
        size: most tasks sent and not delivered; may be lowered while in use.
        epoch: for messages.
        first: the number of the first task.
        in_order: False, tasks are delivered as they are answered.
        passed: numbers of tasks that were delivered before; they are drawn, and not sent.
    """

    def __init__(
        self,
        feeder: Feeder,
        source: Source,
        size: int,
        epoch: int,
        first: int = 0,
        in_order: bool = True,
        passed: Iterable[int] = (),
    ) -> None:
        self.size = size
        self.leaving = -1  # the task whose answer is being delivered
        self._in_order = in_order
        self._passed = set(passed)
        self._passes = 0  # how many of them were drawn
        if not in_order:
            source.watch(self._loads)
        self.dispatched = first
        self._feeder = feeder
        self._source = source
        self._epoch = epoch
        self._tasks: dict[int, Task] = {}  # all that are dispatched and not delivered
        self._held: deque[tuple[int, Task]] = deque()  # those that no worker could take yet
        self._calls: deque[tuple[int, bytes]] = deque()  # (worker, what its dataset is told)
        self._drained = False  # the source has no more
        self._trouble: BaseException | None = None  # of the source, raised after the last batch

    @property
    def delivered(self) -> int:
        """How many tasks were answered and their answers taken; the feeder counts."""
        return self._feeder.accepted + self._passes

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return self._in_flight == 0

    @property
    def is_over(self) -> bool:
        """Whether the source has no more and all it had is delivered."""
        return self._drained and self.dispatched == self.delivered

    @property
    def has_unsent(self) -> bool:
        """Whether something waits to be sent: nobody could take it, or Ctrl-C came."""
        return bool(self._held or self._calls)

    @property
    def has_trouble(self) -> bool:
        """Whether the source raised, which is still to be told."""
        return self._trouble is not None

    @property
    def _in_flight(self) -> int:
        return self.dispatched - len(self._held) - self.delivered

    def done(self) -> tuple[int, list[int]]:
        """How many tasks are delivered without a gap, and the numbers of those beyond it."""
        first = min(self._tasks, default=self.dispatched)
        beyond = [seq for seq in range(first, self.dispatched) if seq not in self._tasks]
        return first, [*beyond, *sorted(self._passed)]

    @property
    def _lags(self) -> bool:
        """Whether the oldest task is further behind than is kept account of."""
        return not self._in_order and self.dispatched - next(iter(self._tasks), 0) >= MAX_LAG

    def _loads(self) -> Counter[int]:
        """How many tasks each worker has that are not delivered, nor about to be."""
        return Counter(task[2] for seq, task in self._tasks.items() if seq != self.leaving)

    def task(self, seq: int) -> Task:
        """The task of a batch that is not delivered."""
        return self._tasks[seq]

    def task_keys(self, seq: int) -> list[Any]:
        """The dataset keys of a batch; [] where it has none, or was delivered."""
        if seq not in self._tasks:
            return []
        kind, payload, _ = self._tasks[seq]
        return decode_task(kind, payload)

    def accept(self, seq: int) -> Task:
        """Count what was taken as delivered; until then the feeder gives it again."""
        task = self._tasks[seq]
        self._feeder.accept()
        self._tasks.pop(seq, None)
        return task

    def raise_trouble(self) -> None:
        """Raise what the source raised, once."""
        trouble, self._trouble = self._trouble, None
        try:
            if trouble is not None:
                raise trouble
        finally:
            del trouble  # a local of a frame in its traceback would keep it, and all the frames

    def keep_trouble(self, trouble: BaseException) -> None:
        """Have something raised by `raise_trouble`."""
        self._trouble = trouble

    def forget_trouble(self) -> None:
        """Nobody is to be told of what the source raised."""
        self._trouble = None

    def tell(self, worker: int, told: Any) -> None:
        """Have a worker told of the epoch before anything else is sent."""
        self._calls.append((worker, pickle.dumps(told, 5)))

    def hold(self, tasks: Iterable[tuple[int, Task]]) -> None:
        """Have tasks sent again, in the order of their numbers."""
        self._held = deque(sorted([*self._held, *tasks], key=_number))

    def hold_all(self) -> None:
        """Have all that was not delivered sent again."""
        first = self.delivered if self._in_order else 0
        tasks = (item for item in self._tasks.items() if item[0] >= first)
        self._held = deque(sorted(tasks, key=_number))

    def drop_held(self, seqs: Iterable[int]) -> None:
        """Send some of the held tasks never: they get an answer in another way."""
        gone = set(seqs)
        self._held = deque(item for item in self._held if item[0] not in gone)

    def add(self, task: Task) -> int:
        """Note a task as dispatched, without sending it; returns its number."""
        seq = self.dispatched
        self._tasks[seq] = task
        self.dispatched += 1
        return seq

    def held_by(self, worker: int) -> list[int]:
        """The tasks of a worker that it could not take yet."""
        return [seq for seq, task in self._held if task[2] == worker]

    def send(self, task: Task) -> int:
        """Send a task ahead of all that are held, however full the window; returns its number.

        Ctrl-C is the caller's to hold back.
        """
        seq = self.add(task)
        if not self._feeder.dispatch(seq, *task):
            self._held.appendleft((seq, task))
        return seq

    def flush(self, size: int | None = None) -> bool:
        """Send what is held until `size` are in flight (None: however many).

        Returns whether more could be sent: False when nobody can take the next.
        """
        while self._held and (size is None or self._in_flight < size):
            seq, task = self._held[0]
            sends = self._feeder.sends
            try:
                if not self._feeder.dispatch(seq, *task):
                    return False
                self._held.popleft()
            except BaseException:  # Ctrl-C: what was sent is held no more, or it would go twice
                if self._feeder.sends != sends and self._held and self._held[0][0] == seq:
                    self._held.popleft()
                raise
        return True

    def _call(self) -> bool:
        """Send what datasets are told. Whether tasks may follow: not before a worker's call."""
        waiting: deque[tuple[int, bytes]] = deque()
        while self._calls:
            worker, payload = self._calls[0]
            if not self._feeder.dispatch(0, TaskKind.TASK_EPOCH, payload, worker):
                if worker not in self._feeder.ended_workers():
                    self._calls.extendleft(reversed(waiting))
                    return False
                waiting.append((worker, payload))  # no task goes to it either before it is replaced
            self._calls.popleft()
        self._calls = waiting
        return True

    def fill(self, taken: int = 0) -> None:
        """Send tasks until the window is full, or nobody can take one.

        `taken`: how many batches have left the queue and are not counted as delivered yet.
        Ctrl-C in the user's sampler passes; whatever else it raises is kept for the end.
        """
        size = self.size + taken
        if self._calls and not self._call():
            return
        if self._held and not self.flush(size):
            return
        while not self._drained and self.dispatched - self.delivered < size and not self._lags:
            seq = self.dispatched
            drawn: Task | None = None
            try:
                drawn = self._source.draw()
                if drawn is None:
                    self._drained = True
                    return
                if seq in self._passed:
                    self._pass(seq)
                    continue
                if not self._feeder.dispatch(seq, *drawn):
                    self._held.append((seq, drawn))
                    self.add(drawn)
                    return
                self.add(drawn)
            except KeyboardInterrupt as error:
                self._recover(seq, drawn, error)
                raise
            except BaseException as error:  # the sampler's: told after the batches before it
                self._drained = True
                self._trouble = as_user_error(error)
                return

    def _pass(self, seq: int) -> None:
        """A task was drawn that was delivered before."""
        self._passes += 1
        self.dispatched += 1
        self._passed.discard(seq)

    def _recover(self, seq: int, drawn: Task | None, error: KeyboardInterrupt) -> None:
        """Ctrl-C came while task `seq` was drawn and sent: nothing of it is forgotten."""
        if self.dispatched > seq:
            return  # it was all done
        if drawn is not None and seq in self._passed:
            self._pass(seq)
        elif drawn is not None:
            if self._feeder.sent <= seq and (not self._held or self._held[-1][0] != seq):
                self._held.append((seq, drawn))
            self.add(drawn)
        elif not self._source.is_resumable:
            self._drained = True
            self._trouble = SamplerError(
                f"the sampler was interrupted while it made batch {seq} of epoch {self._epoch} and"
                " cannot go on; iterate over the loader again"
            )
            self._trouble.__cause__ = error


def _number(item: tuple[int, Task]) -> int:
    return item[0]
