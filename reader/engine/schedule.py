"""The schedule: which task is next, which worker gets it, and which tasks are in flight.

Imports the channel's task format. `Schedule` is the protocol, which `map_tasks` and `stream_tasks`
implement; each has a Window, which alone counts the tasks in flight. All of it belongs to one
iterator and runs in the thread that iterates.
"""

from __future__ import annotations

import functools
import pickle
import weakref
from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Protocol

from reader._core.channel import TaskKind, decode_task
from reader._core.handover import Task
from reader._core.signals import is_interrupt
from reader.data.failure import as_user_error
from reader.policy import ErrorPolicy
from reader.workers.worker_state import EpochStart

if TYPE_CHECKING:
    from reader.engine.backends.backend import Death, TaskFeeder
    from reader.engine.supervisor import Supervisor

__all__ = ["MAX_LAG", "Schedule", "Window"]

MAX_LAG = 1 << 16  # tasks between the oldest and the newest, where they are delivered as they come


class Schedule(Protocol):
    """Draws tasks, names the worker of each, and says which may be sent again.

    Attributes:
        window: the tasks in flight.
    """

    window: Window

    def draw(self) -> Task | None:
        """Return the next task, the same one until `drawn`; None at the end.

        An interrupt may leave it anywhere: it is called again.
        """

    def drawn(self) -> None:
        """Count the task that `draw` returned as in flight. May be called once more for it."""

    def watch(self, loads: Callable[[], Counter[int]]) -> None:
        """Skip workers that have too many tasks; `loads` counts those of each."""

    @property
    def is_over(self) -> bool:
        """Whether all is delivered."""

    def draw_first(self) -> None:
        """Draw the first task now, so that a state can describe the order."""

    def number_of(self, seq: int | None) -> int:
        """Return the number of a batch in its epoch, for messages; None: of the next one."""

    def taking(self, wait: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next batch or Failure; `wait` waits for an answer of a worker."""

    def polling(self, poll: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next batch or Failure where it has come, as `poll` does."""

    def send(self) -> None:
        """Send what workers have room for now; called while a batch is waited for."""

    def refill(self) -> None:
        """Fill the window while a batch is out of the queue and not delivered yet."""

    def answered(self, item: Any) -> tuple[Task, Callable[[], Any] | None]:
        """Return the task of which an item is the answer, and what accepts the item.

        That is written in C; None: the feeder accepts it, and its task goes.
        """

    def retry(self, item: Any, supervisor: Supervisor) -> bool:
        """Have a failed task made again; False: the failure is raised."""

    def lose(self, death: Death, supervisor: Supervisor) -> None:
        """Give the tasks of a dead worker to other workers, or give them up."""


class Window:
    """Keeps as many tasks in flight as `size` says.

    Args:
        feeder: sends them.
        source: yields them.
        size: most tasks sent and not delivered; may be lowered while in use.
        first: the number of the first task.
        in_order: False: tasks are delivered as they are answered.
        passed: numbers of tasks that were delivered in an earlier run: drawn, and not sent.
        on_pass: called with each of those when it is drawn.
        errors: what is promised of what the source raises.
    """

    def __init__(
        self,
        feeder: TaskFeeder,
        source: Schedule,
        size: int,
        first: int = 0,
        in_order: bool = True,
        passed: Iterable[int] = (),
        on_pass: Callable[[Task], None] | None = None,
        errors: ErrorPolicy = ErrorPolicy(),  # noqa: B008
    ) -> None:
        self.size = size
        self._errors = errors
        self.leaving = -1  # the task whose answer is being delivered
        self._in_order = in_order
        self._passed = sorted(passed)
        self._on_pass = on_pass
        if not in_order:
            source.watch(functools.partial(_loads_of, weakref.ref(self)))
        self.dispatched = first
        self._feeder = feeder
        self._source = source
        self.tasks: dict[int, Task] = {}  # dispatched and not delivered
        self._held: deque[Task] = deque()  # no worker had room for them yet
        self._starts: deque[tuple[int, int, bytes]] = deque()  # (worker, kind, pickled EpochStart)
        self._drained = False  # the source has no more
        self._error: BaseException | None = None  # of the source, raised after the last batch

    @property
    def answered(self) -> int:
        """How many tasks have an answer that was accepted."""
        return self._feeder.accepted + self._passes

    @property
    def _passes(self) -> int:
        """How many tasks that were delivered before were drawn."""
        return bisect_left(self._passed, self.dispatched) if self._passed else 0

    @property
    def is_empty(self) -> bool:
        """Whether nothing is in flight."""
        return self._in_flight == 0

    @property
    def is_over(self) -> bool:
        """Whether the source has no more and all it had is delivered."""
        return self._drained and self.dispatched == self.answered

    @property
    def has_unsent(self) -> bool:
        """Whether something is still to be sent: no worker had room, or Ctrl-C came."""
        return bool(self._held or self._starts)

    @property
    def has_error(self) -> bool:
        """Whether the source raised something that the user has not got yet."""
        return self._error is not None

    @property
    def _in_flight(self) -> int:
        return self.dispatched - len(self._held) - self.answered

    @property
    def _lags(self) -> bool:
        """Whether the oldest task is MAX_LAG tasks behind the newest."""
        return self.dispatched - next(iter(self.tasks), self.dispatched) >= MAX_LAG

    def _loads(self) -> Counter[int]:
        """Return how many tasks each worker has, without the one that is being delivered."""
        return Counter(task.worker for seq, task in self.tasks.items() if seq != self.leaving)

    def task(self, seq: int) -> Task:
        """Return the task of a batch that is not delivered."""
        return self.tasks[seq]

    def task_keys(self, seq: int) -> list[Any]:
        """Return the dataset keys of a batch; [] if it has none, or was delivered."""
        task = self.tasks.get(seq)
        if task is None:
            return []
        if isinstance(task.payload, bytes):
            return decode_task(task.kind, task.payload)
        return task.payload if task.kind == TaskKind.TASK_KEYS else [task.payload]

    def accept(self, seq: int) -> Task:
        """Accept an answer and return its task; until then the feeder returns it again."""
        task = self.tasks[seq]
        self._feeder.accept()
        self.tasks.pop(seq, None)
        return task

    @property
    def error(self) -> BaseException | None:
        """What the source raised; the epoch ends with it."""
        return self._error

    def keep_error(self, error: BaseException) -> None:
        """Have the epoch end with an exception."""
        self._error = error

    def forget_error(self) -> None:
        """Drop what the source raised."""
        self._error = None

    def add_start(self, worker: int, start: EpochStart) -> None:
        """Have an EpochStart sent to a worker, before anything else."""
        self._starts.append((worker, TaskKind.TASK_EPOCH, pickle.dumps(start, 5)))
        if start.sends_state:
            self._starts.append((worker, TaskKind.TASK_ENTER, b""))

    def hold(self, tasks: Iterable[Task]) -> None:
        """Have tasks sent again, in the order of their numbers."""
        self._held = deque(sorted([*self._held, *tasks], key=_number))

    def hold_all(self) -> None:
        """Have all that was not answered sent again."""
        first = self.answered if self._in_order else 0
        tasks = (task for seq, task in self.tasks.items() if seq >= first)
        self._held = deque(sorted(tasks, key=_number))

    def drop_held(self, seqs: Iterable[int]) -> None:
        """Drop held tasks: something else stands in their places."""
        gone = set(seqs)
        self._held = deque(task for task in self._held if task.seq not in gone)

    def add(self, task: Task) -> int:
        """Note a task as dispatched, without sending it; returns its number."""
        seq = task.seq = self.dispatched if task.seq < 0 else task.seq
        self.tasks[seq] = task
        self.dispatched = seq + 1
        return seq

    def held_by(self, worker: int) -> list[int]:
        """Return the tasks of a worker for which it had no room yet."""
        return [task.seq for task in self._held if task.worker == worker]

    def send(self, task: Task) -> int:
        """Send a task ahead of all that are held, however full the window; returns its number.

        The caller holds Ctrl-C back.
        """
        seq = self.add(task)
        if not self._feeder.dispatch(seq, task.kind, task.payload, task.worker):
            self._held.appendleft(task)
        return seq

    def flush(self, size: int | None = None) -> bool:
        """Send what is held until `size` are in flight (None: however many).

        Returns whether more could be sent: False: no worker has room for the next.
        """
        while self._held and (size is None or self._in_flight < size):
            task = self._held[0]
            sends = self._feeder.sends
            try:
                if not self._feeder.dispatch(task.seq, task.kind, task.payload, task.worker):
                    return False
                self._held.popleft()
            except BaseException:  # Ctrl-C: what is held would be sent again
                if self._feeder.sends != sends and self._held and self._held[0] is task:
                    self._held.popleft()
                raise
        return True

    def send_starts(self) -> bool:
        """Send each EpochStart that is due. Returns whether tasks may follow them."""
        waiting: deque[tuple[int, int, bytes]] = deque()
        while self._starts:
            worker, kind, payload = self._starts[0]
            if not self._feeder.dispatch(0, kind, payload, worker):
                if worker not in self._feeder.ended_workers():
                    self._starts.extendleft(reversed(waiting))
                    return False
                # it has ended, and gets no task before it is replaced
                waiting.append((worker, kind, payload))
            self._starts.popleft()
        self._starts = waiting
        return True

    def fill(self, taken: int = 0) -> None:
        """Send tasks until the window is full, or no worker has room.

        `taken`: how many batches have left the queue and are not counted as delivered yet.
        What the user's sampler raises is kept until the batches before it are delivered; what the
        handler of a signal raises there, as for Ctrl-C, is raised at once.
        """
        size = self.size + taken
        if self._starts and not self.send_starts():
            return
        if self._held and not self.flush(size):
            return
        if self._drained:
            return
        feeder, source, passed = self._feeder, self._source, self._passed
        limit = feeder.accepted + size
        if passed:
            limit += self._passes
        while (seq := self.dispatched) < limit and (self._in_order or not self._lags):
            drawn: Task | None = None
            try:
                drawn = source.draw()
                if drawn is None:
                    self._drained = True
                    return
                if passed and seq in passed:
                    self._pass(drawn)
                    limit += 1
                    continue
                has_room = feeder.dispatch(seq, drawn.kind, drawn.payload, drawn.worker)
                if not has_room:
                    self._held.append(drawn)
                drawn.seq = seq
                self.tasks[seq] = drawn
                self.dispatched = seq + 1
                source.drawn()
                if not has_room:
                    return
            except BaseException as error:
                if is_interrupt(error):
                    self._recover(seq, drawn)
                    raise
                self._drained = True  # the sampler's: raised after the batches before it
                self._error = error if self._errors.passes(error) else as_user_error(error)
                return

    def _pass(self, task: Task) -> None:
        """Count a task that was delivered in an earlier run."""
        if task.seq < 0:
            task.seq = self.dispatched
        if self._on_pass is not None:
            self._on_pass(task)
        self.dispatched = task.seq + 1
        self._source.drawn()

    def _recover(self, seq: int, drawn: Task | None) -> None:
        """A signal came while task `seq` was drawn and sent: note how far it had come."""
        if self.dispatched > seq:
            self._source.drawn()
        elif drawn is not None and seq in self._passed:
            self._pass(drawn)
        elif drawn is not None:
            if self._feeder.sent <= seq and (not self._held or self._held[-1] is not drawn):
                self._held.append(drawn)
            self.add(drawn)
            self._source.drawn()


def _loads_of(window: weakref.ref[Window]) -> Counter[int]:
    found = window()
    return Counter() if found is None else found._loads()


def _number(task: Task) -> int:
    return task.seq
