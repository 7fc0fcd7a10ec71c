"""The line to one remote worker: its calls in flight, and their landing.

Imports the channels and relays. A line belongs to the lander. When its actor has ended, the lander
closes the line's pipe: to the trainer the worker has died.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import pickle
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol, TypeVar

from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader._core.wire.relay import Arrival, RelayedTask, TaskRelay
from reader.available_memory import available_bytes
from reader.cluster.actors import Actor
from reader.cluster.node_clock import NodeClock
from reader.cluster.pace import CALLS, FACTOR, Pace
from reader.cluster.remote_worker import CallTimes, Place, Sent
from reader.cluster.reply import Reply
from reader.cluster.watches import Watch, Watches
from reader.errors import ReaderError, printable
from reader.log import log as _log
from reader.worker.loop import carried

__all__ = [
    "Capacity",
    "Ended",
    "InFlight",
    "LaunchRequest",
    "Line",
    "NotStarted",
    "Started",
    "has_time",
    "lender",
]

_SPARE = 3  # hot slots, besides those of batches in flight
_NO_ACTOR = "error raised in its creation task"  # Ray's words; the error would come each time
_SAID = 1000  # characters of Ray's message


@dataclasses.dataclass(frozen=True)
class LaunchRequest:
    """Start a remote worker.

    `worker_id`: its number; `keep_slots`: see WorkerChannel; `in_flight`: its most tasks;
    `is_paced`: whether its Pace decides how many it has.
    """

    worker_id: int
    keep_slots: int
    in_flight: int
    is_paced: bool = False


class Started(NamedTuple):
    """Tells the trainer of a worker that runs: its process and machine."""

    worker_id: int
    pid: int
    host: str


class Capacity(NamedTuple):
    """Tells the trainer how many workers fit into the cluster, existing ones included."""

    num_workers: int


class InFlight(NamedTuple):
    """Tells the trainer how many tasks keep all workers busy, within the limit on bytes."""

    tasks: int


class Ended(NamedTuple):
    """Tells the trainer of a worker that ended: its process there, and why.

    `is_told`: whether that is logged already: it was at no batch of this program.
    """

    pid: int
    cause: str
    is_told: bool = False


class NotStarted(Exception):
    """An actor ended before it reported that it runs."""


@dataclasses.dataclass
class _Call:
    """`maker`: the line whose actor does the tasks; `is_alone`: whether no watch looks at it."""

    reply: Reply
    tasks: list[RelayedTask]
    maker: Line
    is_alone: bool


class _Loaded(Protocol):
    load: int


_L = TypeVar("_L", bound=_Loaded)


def has_time(load: int) -> bool:
    """Whether an actor with `load` calls in flight may get one more."""
    return load < CALLS


def lender(started: Iterable[_L]) -> _L | None:
    """Return the least busy line that may do another line's tasks; None: there is none.

    Otherwise the first actor that starts would get the tasks of all, one after another.
    """
    found = min(started, key=lambda line: line.load, default=None)
    return found if found is not None and has_time(found.load) else None


class Line:
    """Tasks to one remote worker, and answers from it.

    Args:
        order: the trainer's message.
        fds: of the arena, the bell, and the pipe that is closed when the worker has ended.
        makes_stale, is_shared: see TaskRelay.
        schemas: of the batches of all workers, by worker and number.
        suspects: tasks at which a worker may have died, by run and number; of all workers.
        clocks: of the nodes.
        wake: called in Ray's thread when a result has come.

    Attributes:
        actor: None before `start`.
        calls: calls without a result so far, the oldest first.
        place: the worker's machine and process, once it has started.
        watch: looks at the worker; None: no watch does.
        load: how many calls its actor has, of all lines.
        pace: its Pace.
        is_told: whether its start was reported to the trainer.
        gone: why its actor does no more tasks, as another line has seen; None: it does.
    """

    def __init__(
        self,
        order: LaunchRequest,
        fds: list[int],
        makes_stale: bool,
        is_shared: bool,
        schemas: dict[tuple[str, int], bytes],
        suspects: set[tuple[int, int]],
        clocks: dict[str, NodeClock],
        wake: Callable[[], None],
    ) -> None:
        arena, self._bell, self._pipe = fds
        self.order = order
        self.worker = order.worker_id
        self.begun = time.monotonic()
        self.calls: deque[_Call] = deque()
        self.load = 0
        self.actor: Actor | None = None
        self._starting: Reply | None = None
        self.is_ended = False
        self.is_started = self.is_told = False
        self.gone: BaseException | None = None
        slots = min(order.keep_slots, FACTOR + _SPARE) if order.is_paced else order.keep_slots
        self.channel = WorkerChannel(
            Arena.attach(arena), order.worker_id, self._bell, slots, available_bytes
        )
        self._is_shared = is_shared
        self._relay = TaskRelay(self.channel, makes_stale, is_shared)
        self._schemas = schemas
        self._suspects = suspects
        self._clocks = clocks
        self._is_sounding = False
        self._ended_ns = 0  # end of the last call, by the clock of its node
        self._wake = wake
        self._epoch: RelayedTask | None = None  # not known to its own actor yet
        self.place = Place("a node that did not take it", 0)
        self.watch: Watch | None = None
        self._at_since_ns = 0  # when it last began a call, as far as known
        self.pace = Pace(is_shared)
        self._wanted = FACTOR

    def start(self, actor: Actor) -> None:
        """Ask the actor to report that it runs."""
        self.actor, self._starting = actor, Reply(actor.start, self._wake)

    def tell_start(self, tell: Callable[[Started], bool]) -> None:
        """Report once that the worker runs; `tell` returns False if the pipe is full."""
        self.is_told = self.is_told or tell(self.started)

    def begin_call(self) -> None:
        """Count a call to this line's actor, of any line."""
        self.load += 1

    def end_call(self) -> None:
        """Count the end of a call to this line's actor."""
        self.load -= 1

    @property
    def clock(self) -> NodeClock:
        """The clock of the worker's node."""
        return self._clocks.setdefault(self.place.node, NodeClock())

    def sound(self) -> None:
        """Measure the node's clock, by a call that waits for no other and brings no batch."""
        self._is_sounding = True

    @property
    def started(self) -> Started:
        """The message that it runs."""
        return Started(self.worker, self.place.pid, self.place.host)

    @property
    def in_flight_nbytes(self) -> int:
        """How many bytes the batches in flight take, as far as known."""
        return self.pace.nbytes * sum(len(call.tasks) for call in self.calls)

    def wanted(self, most_nbytes: int) -> int:
        """Return how many tasks it should have, whose batches may take `most_nbytes` together."""
        found = min(self.pace.factor(most_nbytes), self.order.in_flight // 2)
        if found != self._wanted:
            self._wanted = found
            self.channel.keep_hot(found + _SPARE)
        return found

    @property
    def is_full(self) -> bool:
        """Whether enough tasks are in flight."""
        is_sounding = self._is_sounding and bool(self.calls)
        return is_sounding or len(self.calls) >= self.pace.calls

    @property
    def busy_s(self) -> float:
        """How long the worker may have worked on the calls in flight."""
        if not self.calls:
            return 0.0
        since_ns = max(self._at_since_ns, self.calls[0].reply.sent_ns)
        return (time.monotonic_ns() - since_ns) * 1e-9

    @property
    def is_held_back(self) -> bool:
        """Whether it has waiting tasks, and time for them."""
        return self.is_started and not self.is_full and bool(self.channel.has_work)

    def count_bounded(self, ns: int) -> None:
        """Count time in which it was held back because enough bytes were in flight."""
        self._relay.count_bounded(ns)

    def have_watched(self, watches: Watches) -> None:
        """Have the worker looked at from now on."""
        self.watch = watches.watch(self.worker, self.place)

    def see(self, found: tuple[int, int, int, float] | None) -> None:
        """Note the worker's current batch; see `progress_of`."""
        if found is not None:
            self._relay.note(*found)

    def send(self, maker: Line) -> bool:
        """Send waiting tasks to a line's actor; False: there are none, or enough are in flight."""
        if self.is_full or maker.actor is None:
            return False
        if self._is_sounding and maker is self:
            self._is_sounding = False
            self._call(self, [], [])
        most = 1 if self._suspects else self.pace.most
        tasks: list[RelayedTask] = []
        while len(tasks) < most:
            task = self._relay.next_task()
            if task is None:
                break
            if task.kind == TaskKind.TASK_EPOCH:
                self._epoch = task
                continue
            tasks.append(task)
        if not tasks:
            return False
        if self._suspects:  # tasks of an epoch that the loop left are not sent again
            run = tasks[-1].run
            self._suspects.difference_update([each for each in self._suspects if each[0] != run])
        sent = [tuple(task) for task in tasks]
        if self._epoch is not None:
            sent.insert(0, tuple(self._epoch))
            if maker is self:
                self._epoch = None
        self._call(maker, sent, tasks)
        return True

    def _call(self, maker: Line, sent: list[tuple[Any, ...]], tasks: list[RelayedTask]) -> None:
        if maker.actor is None:
            return
        reply = Reply(functools.partial(maker.actor.work, sent), self._wake)
        is_alone = maker.watch is not None and maker.watch.is_refused
        self.calls.append(_Call(reply, tasks, maker, is_alone))
        maker.begin_call()

    def land(self) -> None:
        """Land the results that have come. Passes on Ray's exceptions if the actor is gone.

        Raises:
            NotStarted: the actor was gone before it started.
        """
        if self.gone is not None:
            raise self.gone
        if self._starting is not None and self._starting.has_come:
            starting, self._starting = self._starting, None
            if (error := starting.error) is None:
                self._begin(starting, *starting.result())
            elif _NO_ACTOR in str(error) or isinstance(error, ReaderError):
                why = str(error).strip().rpartition("\n")[2]
                self.fail(
                    ReaderError(
                        f"a node of the cluster cannot make a worker: {why}. Have the same"
                        " Python and lodreader, and what the dataset needs, on all nodes, or name"
                        " them in runtime_env"
                    )
                )
            else:
                raise NotStarted(f"{type(error).__name__}: {error}")
        while self.calls and self.calls[0].reply.has_come:
            call = self.calls[0]
            if (gone := call.reply.error) is not None:
                call.maker.gone = gone  # if it is another line's it may have no call of its own
                raise gone
            times, answers = call.reply.result()
            self.calls.popleft()
            call.maker.end_call()
            self._at_since_ns = time.monotonic_ns()
            arrival = self._learn(call, times)
            for sent in answers:
                self._take(sent, arrival)
                arrival = arrival._replace(others_ns=0)
            self._suspects.difference_update((task.run, task.seq) for task in call.tasks)

    def _learn(self, call: _Call, times: CallTimes) -> Arrival:
        """Learn from the times of a call; returns how its answers came."""
        clock, reply = call.maker.clock, call.reply
        clock.note(reply.sent_ns, times.begun_ns, times.ended_ns, reply.came_ns)
        ahead_ns = clock.ahead_ns
        free_ns = max(reply.sent_ns + ahead_ns, call.maker._ended_ns)
        others_ns = min(times.others_ns, max(0, times.begun_ns - free_ns))
        if call.tasks:
            took_ns = times.ended_ns - times.begun_ns
            lag_ns = reply.came_ns + ahead_ns - free_ns - took_ns
            self.pace.note(len(call.tasks), took_ns * 1e-9, lag_ns * 1e-9)
        call.maker._ended_ns = times.ended_ns
        call.maker._relay.count(  # of the worker that did it; a negative time would end this line
            max(0, times.computed_ns),
            max(0, times.runnable_ns),
            max(0, times.stored_ns),
            clock.error_ns,
        )
        return Arrival(reply.came_ns, ahead_ns, others_ns)

    def _begin(self, reply: Reply, times: CallTimes, place: Place, answers: list[Sent]) -> None:
        self.is_started = True
        self.place = place
        self.clock.note(reply.sent_ns, times.begun_ns, times.ended_ns, reply.came_ns)
        arrival = Arrival(reply.came_ns, self.clock.ahead_ns, 0)
        for sent in answers:
            self._take(sent, arrival)

    def _take(self, sent: Sent, arrival: Arrival) -> None:
        key = sent.worker, sent.answer.schema
        for number, schema in sent.schemas.items():
            self._schemas[sent.worker, number] = schema
        if sent.answer.schema and not self._relay.knows(key):
            self._relay.keep(key, self._schemas[key])
        self._relay.land(sent.answer, sent.data, key, arrival)
        if sent.data is not None:
            self.pace.note_nbytes(len(sent.data))

    def fail(self, error: BaseException) -> None:
        """Report that the worker cannot start."""
        self.channel.fail(carried(error))  # the pipe stays open: closed, it would report a death
        self.is_ended = True
        self._drop_calls()

    def close(self, error: BaseException | None) -> None:
        """Release the worker, which has ended, and report why to the trainer."""
        self.is_ended = True
        with contextlib.suppress(OSError):
            if error is not None:
                ended = self._ended(error)
                if ended.is_told:
                    words = "shared worker %d ended (%s). Its batches are made again"
                    _log.warning(words, self.worker, printable(str(ended.cause)))
                os.write(self._pipe, pickle.dumps(ended))
        self._drop_calls()
        os.close(self._pipe)
        os.close(self._bell)

    def _drop_calls(self) -> None:
        """Drop all calls in flight."""
        for call in self.calls:
            call.maker.end_call()
        self.calls.clear()

    def _ended(self, error: BaseException) -> Ended:
        """Describe a death, and suspect the tasks that were in flight."""
        words = " ".join(str(error).split()).partition(" Some common causes")[0][:_SAID]
        cause = f"pid {self.place.pid} on {self.place.host}. {type(error).__name__}: {words}"
        is_known = False  # the task at which it died
        # an actor that never ran had no task: those in flight were lent to others a call that
        # measured the clock has no task
        is_new = isinstance(error, NotStarted)
        calls = () if is_new else tuple(call for call in self.calls if call.tasks)
        if calls:
            watch, tasks = calls[0].maker.watch, calls[0].tasks
            if watch is not None and watch.is_attached:
                found = watch.last()
                is_known = found is not None and self._relay.note(*found)
            else:
                is_known = len(tasks) == 1 and (not self._is_shared or calls[0].is_alone)
                if is_known:
                    self._relay.note(tasks[0].seq, tasks[0].run, -1, 0.0)
        if not is_known:
            self._relay.note_idle()  # it may have died at any of many tasks
        self._suspects.update((task.run, task.seq) for call in calls for task in call.tasks)
        return Ended(self.place.pid, cause, self._is_shared and not is_known)
