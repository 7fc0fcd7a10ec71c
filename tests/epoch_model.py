"""An epoch over fakes, and a model of what its user must see, to test the epoch machine.

The fakes keep the protocols of `Backend` and `TaskFeeder` and have no process, thread or clock: a
test says when a worker answers, dies or hangs. The models know nothing of tasks and states. An
interrupt is a real SIGINT, at any place of the engine's own code at which Python handles signals.
"""

from __future__ import annotations

import contextlib
import dataclasses
import dis
import functools
import gc
import pickle
import re
import signal
import sys
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import reader
from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import WaitStats
from reader._core.epoch.iterator import EpochIterator
from reader._core.epoch.round_robin import RoundRobin
from reader._core.epoch.tasks import TaskState, TaskTable
from reader._core.wire.channel import TaskKind, decode_task
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.worker_reports import LostTasks
from reader.data.batch_sampler import BatchSampler
from reader.data.sampler import SequenceSampler
from reader.engine.backends.backend import Death
from reader.engine.epoch import Epoch
from reader.engine.epoch_options import EpochOptions
from reader.engine.failed_samples import EpochFailures
from reader.engine.map_source import MapSource
from reader.engine.progress import Progress
from reader.engine.stage import Stage
from reader.engine.stream_source import StreamSource
from reader.engine.supervisor import Supervisor
from reader.engine.task_source import TaskSource
from reader.engine.watchdog import Hung
from reader.engine.worker_cursors import WorkerCursor, WorkerCursors
from reader.errors import ReaderError
from reader.orders.order import open_order
from reader.orders.order_origin import Position
from reader.orders.reopened import reopened
from reader.orders.step_batches import step_batches_of
from reader.policy import DispatchPolicy
from reader.worker.bad_sample import BadKey, BadSample, own_keys
from reader.worker.loop import WorkerError
from reader.worker.worker_state import EpochStart, WorkerSnapshot

__all__ = ["Broken", "Interrupts", "MapModel", "Run", "SampleError", "Setting", "StreamModel"]

_TIMEOUT_S = 10.0


class SampleError(Exception):
    """A sample of (map: batch number, stream: worker, number of its batch) failed."""


class ConversionError(Exception):
    """The batch with this number cannot be converted."""


class Broken(Exception):
    """The sampler is broken."""


@dataclasses.dataclass(frozen=True)
class Setting:
    """The kind of loader that runs, and its dataset.

    Attributes:
        sizes: of a stream, how many batches each share has; None: the dataset is map-style.
        count: of a map-style dataset, how many batches there are.
        sampler: "built-in", "list", "generator", or "shards": steps of three, two or no shards.
        broken_at: the batch instead of which the generator raises; None: it does not.
        flights_limit: most tasks that a worker has.
        every: a worker sends its state with each batch whose number it divides; 0: never.
        starts: workers are sent an EpochStart; 2: and send the state that they begin with.
        keep: how many steps back a state can be saved.
    """

    workers: int = 2
    sizes: tuple[int, ...] | None = None
    count: int = 6
    in_order: bool = True
    places: int = 1
    window: int = 3
    sampler: str = "list"
    broken_at: int | None = None
    round_robin: bool = False
    flights_limit: int = 3
    retries: int = 1
    tolerates: bool = False
    every: int = 0
    starts: int = 0
    drops_last: bool = False
    keep: int = 0

    @property
    def is_stream(self) -> bool:
        return self.sizes is not None

    @property
    def places_of_steps(self) -> list[tuple[int, int]]:
        """Return each batch's step and the number of its step batches; 1 without groups."""
        if self.sampler != "shards":
            return [(number, 1) for number in range(self.count)]
        found: list[tuple[int, int]] = []
        step = 0
        while len(found) < self.count:
            parts = min((3, 1, 2)[step % 3], self.count - len(found))
            found += [(step, parts)] * parts
            step += 1
        return found


def keys_of(number: int) -> list[int]:
    """The dataset keys of a batch."""
    return [2 * number, 2 * number + 1]


# -- the fakes -----------------------------------------------------------------------------------


@dataclasses.dataclass
class Answer:
    """A batch as a worker sends it."""

    seq: int
    batch: Any
    attached: Any = None
    number: int = 0


@dataclasses.dataclass
class Sent:
    """A task that a worker has."""

    seq: int
    run: int
    kind: int
    payload: Any

    @property
    def is_batch(self) -> bool:
        return self.kind not in (TaskKind.TASK_EPOCH, TaskKind.TASK_ENTER)


class Worker:
    def __init__(self) -> None:
        self.tasks: deque[Sent] = deque()
        self.is_alive = True
        self.has_ended = False
        self.said_hello = False
        self.current_seq: int | None = None
        self.row = -1
        self.run = self.at = 0
        self.made = 0
        self.kept: dict[int, tuple[int, Any]] = {}
        self.ended_run = -1


class FakeFeeder:
    """Keeps the protocol of TaskFeeder. Its `take` plays `script` before it stops waiting."""

    times = None
    paused_s = 0.0

    def __init__(self, setting: Setting, world: World) -> None:
        self.setting, self.world = setting, world
        self.workers = [Worker() for _ in range(setting.workers)]
        self.run = self.accepted = self.sent = self.sends = self.next_seq = 0
        self.any_order = self.has_notice = self.is_starving = False
        self.current: Any = None
        self.queue: deque[Any] = deque()
        self.waiting: dict[int, Any] = {}
        self.failures: dict[int, Failure] = {}  # of workers that nobody replaced
        self.unreported: dict[int, Failure] = {}  # in this run
        self.owing: set[int] = set()
        self.states: dict[int, Any] = {}
        self.script: list[Callable[[], None]] = []
        self.now_s = 0.0

    # what the trainer calls

    @property
    def queued(self) -> int:
        return len(self.queue)

    def begin_run(self, epoch: int, next_seq: int = 0, in_order: bool = True) -> None:
        self.current = None
        self.accepted = self.sent = self.next_seq = next_seq
        self.run += 1
        self.any_order = not in_order
        self.queue.clear()
        self.waiting.clear()
        self.owing.clear()
        self.states.clear()
        self.unreported = dict(self.failures)
        self.has_notice |= bool(self.unreported)

    def dispatch(self, seq: int, kind: int, payload: Any, worker: int = -1) -> bool:
        able = [
            each
            for number, each in enumerate(self.workers)
            if worker in (-1, number)
            and each.is_alive
            and len(each.tasks) < self.setting.flights_limit
        ]
        if not able:
            self.is_starving = True
            return False
        task = Sent(seq, self.run, kind, payload)
        if task.is_batch:
            taken = [each.seq for one in self.workers for each in one.tasks if self.is_own(each)]
            assert seq not in taken, f"task {seq} is sent though a worker has it"
            self.sent = max(self.sent, seq + 1)
        min(able, key=lambda each: len(each.tasks)).tasks.append(task)
        if kind == TaskKind.TASK_ENTER:
            self.owing.add(worker)
        self.sends += 1
        return True

    def is_own(self, task: Sent) -> bool:
        return task.is_batch and task.run == self.run

    def take(self, timeout: float | None = None) -> Any:
        if self.current is not None:
            return self.current
        while True:
            if self.has_notice:
                self.has_notice = False
                return None
            if self.queue:
                self.current = self.queue.popleft()
                return self.current
            if timeout == 0:
                return False
            if not self.script:
                assert timeout is not None, "this wait would last for ever"
                self.now_s += timeout + 1
                return False
            self.script.pop(0)()

    def accept(self) -> None:
        assert self.current is not None, "nothing was taken"
        self.current = None
        self.accepted += 1

    def drop_task(self, seq: int, worker: int, is_end: bool = False) -> None:
        kind = FailureKind.END if is_end else FailureKind.LOST
        self.enqueue(Failure(kind, seq, 0, worker))

    def ended_workers(self) -> list[int]:
        return [number for number, each in enumerate(self.workers) if each.has_ended]

    def failed_worker(self) -> Failure | None:
        return self.unreported.pop(min(self.unreported)) if self.unreported else None

    def detach(self, worker: int) -> LostTasks:
        gone, self.workers[worker] = self.workers[worker], Worker()
        self.workers[worker].is_alive = False
        self.owing.discard(worker)
        self.states.pop(worker, None)
        self.advance()
        seqs = [task.seq for task in gone.tasks if self.is_own(task)]
        current_seq = gone.current_seq if gone.current_seq in seqs else None
        return LostTasks(seqs, current_seq, gone.said_hello, gone.ended_run == self.run)

    @property
    def has_initial_states(self) -> bool:
        return not self.owing

    def initial_state(self, worker: int) -> Any:
        return self.states.pop(worker, None)

    def worker_progress(self, worker: int) -> tuple[Any, ...]:
        mine = [task.seq for task in self.workers[worker].tasks if self.is_own(task)]
        return 0, mine[0] if mine else None, 0, 1.0, self.workers[worker].said_hello

    def clock_s(self) -> float:
        return self.now_s

    def watch_pauses(self, tick_s: float) -> None:
        pass

    def is_busy(self) -> bool:
        busy = any(each.is_alive and each.tasks for each in self.workers)
        self.is_starving = self.is_starving or busy
        return busy

    def trim(self) -> None:
        pass

    # what happens

    def enqueue(self, record: Any) -> None:
        if self.any_order:
            self.queue.append(record)
        else:
            self.waiting[record.seq] = record
            self.advance()

    def advance(self) -> None:
        while not self.owing and not self.any_order and self.next_seq in self.waiting:
            self.queue.append(self.waiting.pop(self.next_seq))
            self.next_seq += 1

    def answer(self, number: int, fails: bool = False, is_short: bool = False) -> None:
        """A worker answers the oldest task that it has, if it has one."""
        worker = self.workers[number]
        if not worker.is_alive:
            return
        worker.said_hello = True
        while worker.tasks:
            task = worker.tasks.popleft()
            self.has_notice |= self.is_starving
            self.is_starving = False
            if task.run != self.run:
                return
            if worker.run != task.run:
                worker.run, worker.at, worker.made, worker.kept = task.run, 0, 0, {}
            if task.is_batch:
                record = self.record_of(number, worker, task, fails, is_short)
                if self.any_order or task.seq >= self.next_seq:
                    self.enqueue(record)
                return
            if task.kind == TaskKind.TASK_EPOCH:
                start: EpochStart = pickle.loads(task.payload)
                worker.at = 0 if start.cursor is None else place_of(pickle.loads(start.cursor))
            else:
                self.states[number] = self.snapshot(number, worker, task)
                self.owing.discard(number)
                self.advance()
                return

    def snapshot(self, number: int, worker: Worker, task: Sent, bad: Any = ()) -> Any:
        every = self.setting.every
        is_due = every > 0 and worker.made % every == 0
        if not is_due and not bad:
            return None
        at = worker.at if self.setting.is_stream else task.seq
        name = "iterator" if self.setting.is_stream else "dataset"
        states = pickle.dumps({name: {"at": at}}) if is_due else None
        return WorkerSnapshot(number, False, is_due, states, bad=tuple(bad))

    def record_of(
        self, number: int, worker: Worker, task: Sent, fails: bool, is_short: bool
    ) -> Any:
        sizes = self.setting.sizes
        worker.made += 1
        if sizes is None:
            if is_short:
                return full(task.seq, number)
            return self.map_record(number, worker, task, fails)
        if task.kind == TaskKind.TASK_AGAIN:
            asked = int.from_bytes(task.payload, "little")
            # KeyError: it was asked to keep no such samples
            at, snapshot = worker.kept[asked]
            if is_short:
                return full(task.seq, number)
            del worker.kept[asked]
        else:
            at = worker.at
            if at >= sizes[number]:  # one more than exist: a death took the place of a batch
                worker.ended_run = self.run
                return Failure(FailureKind.END, task.seq, 0, number)
            worker.at += 1
            snapshot = self.snapshot(number, worker, task)  # later the dataset has moved on
            if is_short:
                worker.kept[task.seq] = at, snapshot
                self.world.short.add(number)
                return full(task.seq, number)
        if fails:
            self.world.bad.add((number, at))
        if (number, at) in self.world.bad:
            error = SampleError(number, at)
            bad = (BadSample(at, 0, "SampleError", str(at), ""),) if self.setting.tolerates else ()
            carried = WorkerError(error, "", 0, 1, bad, self.setting.tolerates)
            return Failure(FailureKind.ERROR, task.seq, 0, number, carried)
        return Answer(task.seq, (number, at), snapshot)

    def map_record(self, number: int, worker: Worker, task: Sent, fails: bool) -> Any:
        keys = own_keys(decode_task(task.kind, task.payload))
        if fails:
            first = [key for key in keys if type(key) is not BadKey][:1]
            self.world.bad.update(first)
        known = [key.key for key in keys if type(key) is BadKey]
        bad = [key for key in keys if key in self.world.bad]
        if bad and not self.setting.tolerates:
            error = WorkerError(SampleError(bad[0] // 2), "", keys.index(bad[0]))
            return Failure(FailureKind.ERROR, task.seq, 0, number, error)
        noted = [BadSample(key, 0, "SampleError", str(key), "") for key in [*known, *bad]]
        left = [key for key in keys if type(key) is not BadKey and key not in bad]
        if not left:
            nothing = WorkerError(None, "", -1, 0, tuple(noted), True)
            return Failure(FailureKind.ERROR, task.seq, 0, number, nothing)
        return Answer(task.seq, tuple(left), self.snapshot(number, worker, task, noted))

    def end(self, number: int, is_busy: bool = True, row: int = -1, hangs: bool = False) -> None:
        """A worker dies: at its oldest task, or between two; a hung one is killed by us."""
        worker = self.workers[number]
        if not worker.is_alive:
            return
        mine = [task for task in worker.tasks if self.is_own(task)]
        if is_busy and mine:
            worker.said_hello = True
            worker.current_seq, worker.row = mine[0].seq, row
            if hangs and worker.current_seq in self.world.table:
                task = self.world.table[worker.current_seq]
                if task.hung is None:
                    task.note_hung(Hung(row, 1.0, 1.0, ""))
                    self.world.note_hung(task)
            self.world.note_death(number, mine[0], row)
        else:
            self.world.note_death(number, mine[0] if mine else None, -1, is_busy=False)
        worker.is_alive, worker.has_ended, self.has_notice = False, True, True

    def fail_start(self, number: int, ends: bool) -> None:
        """A worker without a batch reports that it cannot start; it ends, now or later."""
        worker = self.workers[number]
        if worker.said_hello or not worker.is_alive:
            return
        error = WorkerError(SampleError("start", number), "")
        failure = Failure(FailureKind.START, -1, 0, number, error)
        self.failures[number] = self.unreported[number] = failure
        worker.is_alive, worker.has_ended, self.has_notice = False, ends, True
        self.world.has_failed = True


def full(seq: int, worker: int) -> Failure:
    return Failure(FailureKind.FULL, seq, 0, worker, None, 100, 10, 100)


def place_of(cursor: dict[str, Any]) -> int:
    """How many batches of its share a worker skips."""
    state = cursor.get("state", cursor)
    drawn = sum(count * size for count, size in cursor.get("draws", []))
    if "iterator" in state:
        return int(state["iterator"]["at"]) + drawn
    return drawn + sum(count * size for count, size in cursor.get("before", []))


class FakeBackend:
    works_ahead = True
    takes_keys = False
    rng_lock = arena = None

    def __init__(self, setting: Setting, world: World) -> None:
        self.feeder = FakeFeeder(setting, world)
        self.num_workers = self.started = setting.workers
        self.window = setting.window
        self.is_open = self.is_usable = True
        self.starts_no_more = False

    def replace_ended(self) -> list[Death]:
        deaths, feeder = [], self.feeder
        for number in feeder.ended_workers():
            row = feeder.workers[number].row
            deaths.append(Death(number, 100 + number, -9, *feeder.detach(number), row=row))
        if self.starts_no_more:
            raise ReaderError("no process can be started")
        for death in deaths:
            feeder.workers[death.worker_id] = Worker()
            feeder.failures.pop(death.worker_id, None)
        return deaths

    def name_of(self, worker: int) -> str:
        return f"worker {worker}"

    def open_error(self, payload: WorkerError) -> WorkerError:
        return payload

    def add_watch(self, watch: Any) -> Callable[[], list[Any]]:
        return list

    def statuses(self) -> list[Any]:
        return []

    def close_soon(self, grace_s: float | None = None) -> None:
        self.is_open = self.is_usable = False


class FakeLoan:
    def __init__(self, backend: FakeBackend) -> None:
        self.backend = backend
        self.is_out = True

    def release(self) -> None:
        if self.is_out and self.backend.is_usable:
            self.backend.feeder.begin_run(0)
            self.backend.feeder.has_notice = True
        self.is_out = False


class Batches:
    """A batch sampler that cannot be opened at a position, and may break."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.setting.count):
            if number == self.setting.broken_at:
                raise Broken
            yield keys_of(number)


def batch_sampler_of(setting: Setting) -> Any:
    if setting.sampler == "built-in":
        return BatchSampler(SequenceSampler(range(2 * setting.count)), 2, False)
    if setting.sampler == "generator":
        return Batches(setting)
    if setting.sampler == "list":
        return [keys_of(number) for number in range(setting.count)]
    steps: list[list[Any]] = []
    for number, (step, parts) in enumerate(setting.places_of_steps):
        if parts == 1:
            steps.append(keys_of(number))
        elif step == len(steps):
            steps.append([keys_of(number)])
        else:
            steps[-1].append(keys_of(number))
    return step_batches_of(steps)


# -- interrupts ----------------------------------------------------------------------------------

_INTERRUPTED = (
    str(Path(reader.__file__).parent / "engine"),
    str(Path(reader.__file__).parent / "orders"),
)


class Interrupts:
    """Sends SIGINT at the n-th place from now where Python would handle a signal."""

    def __init__(self) -> None:
        self.left = 0
        self.places = 0  # counted in all

    def __enter__(self) -> None:
        self.before = sys.gettrace()
        if self.left:
            sys.settrace(self._enter_frame)

    def __exit__(self, *_: object) -> None:
        if sys.gettrace() is not self.before:
            sys.settrace(self.before)

    def _enter_frame(self, frame: Any, event: str, _: Any) -> Any:
        code = frame.f_code
        if event != "call" or not self.left:
            return None
        is_own = code.co_name == "__iter__" and code.co_filename == __file__
        if not is_own and not code.co_filename.startswith(_INTERRUPTED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._enter_place

    def _enter_place(self, frame: Any, event: str, _: Any) -> Any:
        if event == "opcode" and self.left and frame.f_lasti in _places(frame.f_code):
            self.left -= 1
            self.places += 1
            if not self.left:
                signal.raise_signal(signal.SIGINT)
        return self._enter_place


@functools.cache
def _places(code: Any) -> frozenset[int]:
    """The offsets in code before which signals are handled: after calls, and at loops."""
    found, is_next = set(), False
    for each in dis.get_instructions(code):
        if is_next:
            found.add(each.offset)
        is_next = each.opname.startswith("CALL") or each.opname == "RESUME"
        if each.opname.startswith("JUMP_BACKWARD"):
            found.add(each.offset)
    return frozenset(found)


# -- one run over the fakes ----------------------------------------------------------------------


class World:
    """The shared facts of all runs of one example: failing samples, and events of workers."""

    table: TaskTable

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.bad: set[Any] = set()
        self.unconvertible: set[int] = set()
        self.killed_at: set[int] = set()  # keys of a map-style dataset
        self.deaths: Counter[Any] = Counter()
        self.hung: set[Any] = set()
        self.short: set[int] = (
            set()
        )  # workers of a stream that keep samples without memory for them
        self.has_failed = False  # a worker failed to start, in this run
        self.idle_deaths = 0

    def note_death(self, number: int, task: Sent | None, row: int, is_busy: bool = True) -> None:
        if not is_busy:
            self.idle_deaths += 1
        if self.setting.is_stream:
            self.deaths[number] += 1
        elif task is not None and is_busy:
            self.deaths[task.seq] += 1
            self.killed_at.update(
                keys_of(task.seq) if row < 0 else keys_of(task.seq)[row : row + 1]
            )
            # with a BadKey, or after OneByOne, rows may be others
            self.killed_at.update(keys_of(task.seq))

    def note_hung(self, task: Any) -> None:
        self.hung.add(task.worker if self.setting.is_stream else task.number)


class Owner:
    """Keeps reports of failed samples, as FailedSamples does."""

    def __init__(self) -> None:
        self.told: list[Any] = []

    def add(self, sample: Any) -> None:
        self.told.append((sample.batch, sample.index))


class Run:
    """The iterator over one epoch, as Engine opens it, and its parts."""

    def __init__(self, world: World, backend: FakeBackend | None, state: Any = None) -> None:
        setting = world.setting
        self.setting, self.world = setting, world
        self.backend = FakeBackend(setting, world) if backend is None else backend
        at = Position(0, 0) if state is None else Position(state["batches"], state["samples"])
        self.table = table = world.table = self._table(state)
        self.owner = Owner()
        failures = None
        if setting.tolerates:
            config: Any = SimpleNamespace(error_budget=10**6, batch_size=1, on_error="skip")
            failures = EpochFailures(self.owner, config, 0, 0, None)  # type: ignore[arg-type]
        is_fixed = setting.sampler != "shards" or setting.is_stream
        self.progress = progress = Progress(
            0, {}, table, at, None, failures,
            step_size=setting.places if is_fixed else None,
            steps=None if state is None else state["steps"],
            keep=setting.keep,
        )  # fmt: skip
        workers = progress.worker_cursors
        start_of = None
        if setting.starts or (state is not None and workers is not None):
            sends = setting.starts == 2 and setting.in_order and workers is not None
            if sends and workers is not None:
                workers.expect_initial_states()

            def start_of(worker: int) -> EpochStart:
                is_awaited = sends and worker in progress.worker_cursors.awaited  # type: ignore[union-attr]
                return EpochStart([], 0, progress.to_start(worker), is_awaited)

        options = EpochOptions(
            0, _TIMEOUT_S, True, start_of=start_of, tolerates=setting.tolerates, hung_s=1.0,
        )  # fmt: skip
        stage = Stage(
            [self.convert] * setting.places, setting.drops_last,
            has_step_batches=setting.sampler == "shards",
        )  # fmt: skip
        loan: Any = FakeLoan(self.backend)
        self.loan = loan
        feeder: Any = self.backend.feeder
        self.feeder: FakeFeeder = feeder
        feeder.begin_run(0, table.drawn, setting.in_order)
        table.resize(setting.window)
        turns = None
        if setting.round_robin and not setting.is_stream:
            turns = RoundRobin(setting.workers, 0, setting.flights_limit)
            if not setting.in_order:
                turns.watch(table.loads)
        source = self._source(state, at, turns)
        dispatcher = Dispatcher(table, feeder, source, turns)
        stats = WaitStats()
        supervisor = Supervisor(loan, dispatcher, source, progress, options, stats)
        self.epoch = Epoch(loan, dispatcher, source, supervisor, stage, progress, options)
        self.iterator = EpochIterator(
            self.epoch, dispatcher, stage.converter(0), stats, self.epoch.is_usual, False
        )
        if start_of is not None:
            for worker in range(setting.workers):
                dispatcher.add_start(worker, start_of(worker))
        self.fill = dispatcher.fill

    def _table(self, state: Any) -> TaskTable:
        setting = self.setting
        workers = None
        if setting.is_stream or setting.every:
            workers = WorkerCursors(setting.workers, 1)
            if state is not None:
                cursors = [WorkerCursor.from_json(each) for each in state["workers"]]
                workers.take(cursors, state["last_worker"])
                workers.count_before(state["batches"] if setting.is_stream else 0)
        if setting.is_stream and workers is not None:
            return TaskTable(
                1, 0, setting.in_order, True, last_worker=workers.last, worker_cursors=workers
            )
        first = 0 if state is None else state["batches"]
        beyond = () if state is None else state["beyond"]
        return TaskTable(1, first, setting.in_order, False, beyond, worker_cursors=workers)

    def _source(self, state: Any, at: Position, turns: RoundRobin | None) -> TaskSource:
        if self.setting.is_stream:
            return StreamSource(self.table, self.setting.workers, self.setting.retries)
        sampler = batch_sampler_of(self.setting)
        opened = functools.partial(open_order, sampler, every=0)
        order, batches = opened(None if state is None else state["order"], at)
        reopen = functools.partial(reopened, opened, 0, {}, None, sampler)
        dataset = range(2 * self.setting.count)
        policy = DispatchPolicy()
        return MapSource(
            self.table, order, batches, dataset, True, policy, turns, self.progress, reopen,
            retries=self.setting.retries,
        )  # fmt: skip

    def convert(self, item: Answer) -> Any:
        """Make the user's batch."""
        if item.seq in self.world.unconvertible:
            raise ConversionError(item.seq)
        return item.batch

    def save(self, steps: int | None = None) -> dict[str, Any]:
        """Return the state as JSON holds it; `steps`: that behind so many."""
        if not self.progress.is_known:
            self.epoch.draw_first()
        self.progress.count()
        progress = self.progress
        at = progress.reached() if steps is None else progress.behind(steps)
        done, batches, mark, beyond, workers, _ = at
        state: dict[str, Any] = {
            "steps": done, "batches": batches, "samples": None, "order": None, "beyond": [],
            **({"workers": None} if workers is None else workers.to_json()),
        }  # fmt: skip
        if progress.origin is not None:
            state["beyond"] = beyond
            state["samples"] = progress.origin.samples(batches)
            state["order"] = progress.origin.state(batches, mark)
        return state

    def check_waits(self) -> None:
        """Check that a wait has something to wait for."""
        feeder = self.feeder
        assert not feeder.queue, "an answer is there, and was not taken"
        busy = [each for each in feeder.workers if each.is_alive and each.tasks]
        assert busy, f"nothing is under way, and the epoch waits: {self.table.those(*TaskState)}"

    def check_empty(self, may_be_beyond: bool) -> None:
        """Check that nothing is left of the epoch."""
        self.progress.count()
        left = self.table.those(*TaskState)
        if may_be_beyond:
            left = [task for task in left if task.state != TaskState.EARLY]
        assert not left, f"left in the table: {left}"
        assert not self.loan.is_out


# -- what the user must see ----------------------------------------------------------------------


class MapModel:
    """Each batch once, or an exception in its place; in order if that is promised."""

    def __init__(self, world: World) -> None:
        self.world, self.setting = world, world.setting
        self.seen: set[int] = set()
        self.raised: set[int] = set()  # those of `seen` in whose place an exception was raised
        self.dropped: set[int] = set()  # shards of steps of which one failed
        broken = self.setting.broken_at if self.setting.sampler == "generator" else None
        self.is_cut = False  # an exception has ended the epoch
        self.total = self.setting.count if broken is None else min(broken, self.setting.count)

    def is_nothing(self, number: int) -> bool:
        """Whether skipping a batch is invisible: all its samples failed, or its step did."""
        gone = self.world.bad | self.world.killed_at
        if number in self.dropped:
            return True
        is_error = self.setting.places_of_steps[number][1] > 1  # of the whole step
        return self.setting.tolerates and not is_error and gone.issuperset(keys_of(number))

    def unseen(self, before: int) -> list[int]:
        return [n for n in range(before) if n not in self.seen and not self.is_nothing(n)]

    def batch(self, value: Any) -> None:
        """The user got a batch, or those of a group."""
        setting, is_shards = self.setting, self.setting.sampler == "shards"
        is_group = isinstance(value, list)
        batches = value if is_group else [value]
        numbers = [keys[0] // 2 for keys in batches]
        for number, keys in zip(numbers, batches, strict=True):
            missing = set(keys_of(number)) - set(keys)
            assert set(keys) <= set(keys_of(number)), keys
            gone = self.world.bad | self.world.killed_at if setting.tolerates else set()
            assert missing <= gone, f"batch {number} has lost {missing}"
            assert number not in self.seen, f"batch {number} came twice"
            assert number not in self.world.unconvertible
            if setting.in_order:
                assert not self.unseen(number), f"{number} came before {self.unseen(number)}"
            self.seen.add(number)
        if is_shards:
            step, parts = setting.places_of_steps[numbers[0]]
            assert is_group == (parts > 1)
            mine = [n for n, each in enumerate(setting.places_of_steps) if each[0] == step]
            assert numbers == mine, f"step {step} came as {numbers}"
        elif is_group and len(batches) < setting.places:
            assert not setting.drops_last
            assert self.is_cut or self.is_over, "a group is short, and not the last"

    def error(self, error: BaseException) -> None:
        """An exception was raised in the place of a batch."""
        setting, world = self.setting, self.world
        if isinstance(error, (SampleError, ConversionError)):
            number = error.args[0]
            if isinstance(error, SampleError):
                assert not setting.tolerates
                assert world.bad & set(keys_of(number))
            else:
                assert number in world.unconvertible
        elif isinstance(error, reader.WorkerDied):
            number = error.batch
            assert world.deaths[number] > setting.retries, f"{number} was not tried again"
        else:
            found = re.search(r"batch (\d+) of epoch", str(error))
            is_shard = found is None and "all samples of a batch failed" in repr(error)
            assert found or is_shard, repr(error)
            number = -1 if found is None else int(found[1])
            if "hung" in str(error):
                assert number in world.hung
            if is_shard:
                gone = world.bad | world.killed_at
                number = min(n for n in self.unseen(self.total) if gone.issuperset(keys_of(n)))
        if setting.sampler == "shards":
            self._step_error(number)
            return
        assert number not in self.seen, f"batch {number} came twice: {error!r}"
        if setting.in_order:
            assert len(self.unseen(number)) < setting.places, (number, self.unseen(number))
        self.seen.add(number)
        self.raised.add(number)

    def _step_error(self, number: int) -> None:
        step, _ = self.setting.places_of_steps[number]
        mine = [n for n, each in enumerate(self.setting.places_of_steps) if each[0] == step]
        assert not self.unseen(mine[0]), f"step {step} came before {self.unseen(mine[0])}"
        assert not self.seen & set(mine), f"step {step} came twice"
        self.seen.update(mine)
        self.raised.update(mine)
        self.dropped.update(mine)

    def end(self) -> None:
        """The epoch is over, and the user got all its batches."""
        left = self.unseen(self.total)
        most = self.setting.places - 1 if self.setting.drops_last else 0
        assert len(left) <= most, f"never came: {left}"

    @property
    def is_over(self) -> bool:
        return not self.unseen(self.total)

    def check_state(self, state: dict[str, Any]) -> None:
        """Check that a state counts exactly the delivered batches."""
        batches, beyond = state["batches"], state["beyond"]
        delivered = self.seen - self.dropped
        told = {*range(batches), *beyond}
        more = {n for n in told - self.seen if not self.is_nothing(n)}
        left = self.unseen(self.total)
        if self.setting.drops_last and len(left) < self.setting.places:
            more.difference_update(left)  # a short last group: the next step is the end
        assert not more, f"the state has {sorted(more)}, which never came"
        less = {n for n in delivered - told if not self.is_nothing(n)}
        if self.setting.in_order:
            assert not beyond, f"in order, and beyond is {beyond}"
            # an exception comes before the batches of a group that it interrupts: it will again
            first = min(self.unseen(self.setting.count), default=self.setting.count)
            less = {n for n in less if n not in self.raised or n < first}
        assert not less, f"the state lacks {sorted(less)}"

    def load(self, state: dict[str, Any]) -> MapModel:
        """Return the model of a run that resumes the state."""
        made = MapModel(self.world)
        made.seen = {*range(state["batches"]), *state["beyond"]}
        made.dropped = set(self.dropped)
        steps = self.setting.places_of_steps
        cut = state["batches"]
        if 0 < cut < len(steps) and steps[cut - 1][0] == steps[cut][0]:
            assert cut in self.dropped, f"a state within step {steps[cut][0]}"
            made.seen.update(n for n, each in enumerate(steps) if each[0] == steps[cut][0])
        made.dropped &= {
            n for n in made.dropped if steps[n][0] <= steps[max(cut - 1, 0)][0]
        } & made.seen
        return made


class StreamModel:
    """Each batch of each share once, in round robin; losses are reported."""

    def __init__(self, world: World) -> None:
        self.world, self.setting = world, world.setting
        self.sizes = world.setting.sizes or ()
        self.at = [0] * len(self.sizes)
        self.last = len(self.sizes) - 1
        self.dead: set[int] = set()
        self.trail: list[tuple[int, int]] = []  # what came, in its order
        self.pending: list[tuple[int, int]] = []  # before an exception, and not delivered yet
        self.started = list(self.at)
        self.is_cut = False  # an exception has ended the epoch

    def is_nothing(self, worker: int, at: int) -> bool:
        return self.setting.tolerates and (worker, at) in self.world.bad

    def pass_nothing(self, worker: int) -> None:
        while self.at[worker] < self.sizes[worker] and self.is_nothing(worker, self.at[worker]):
            self.at[worker] += 1

    def is_exhausted(self, worker: int) -> bool:
        return self.at[worker] >= self.sizes[worker]

    def _next(self, worker: int, at: int) -> None:
        """Advance to a batch: first past the invisible ones."""
        if not self.setting.in_order:
            while self.at[worker] < at and self.is_nothing(worker, self.at[worker]):
                self.at[worker] += 1
            self._take(worker, at)
            return
        count = len(self.sizes)
        for _ in range(10_000):
            turn = (self.last + 1) % count
            if turn == worker and (at == self.at[turn] or turn in self.dead):
                self._take(worker, at)
                self.last = turn
                return
            if turn in self.dead or self.is_exhausted(turn):
                pass
            elif self.is_nothing(turn, self.at[turn]):
                self.at[turn] += 1
            else:
                found = f"worker {turn}'s batch {self.at[turn]} comes before {worker}'s {at}"
                raise AssertionError(found)
            self.last = turn
        raise AssertionError("the circle has no end")

    def _take(self, worker: int, at: int) -> None:
        is_next = at >= self.at[worker] if worker in self.dead else at == self.at[worker]
        assert is_next, f"worker {worker}'s batch {at} came, not {self.at[worker]}"
        self.at[worker] = at + 1
        self.trail.append((worker, at))

    def batch(self, value: Any) -> None:
        batches = value if isinstance(value, list) else [value]
        for worker, at in batches:
            assert (worker, at) not in self.world.bad
            if self.pending:
                assert self.pending.pop(0) == (worker, at)
            else:
                self._next(worker, at)
        if isinstance(value, list) and len(batches) < self.setting.places:
            assert not self.setting.drops_last
            assert self.is_cut or self.is_over, "a group is short, and not the last"

    def error(self, error: BaseException) -> None:
        if isinstance(error, SampleError):
            worker, at = error.args
            assert (worker, at) in self.world.bad
            assert not self.setting.tolerates
            before = len(self.trail)
            self._before(worker, at)
            self.pending += self.trail[before:-1]
            assert len(self.pending) < self.setting.places
            return
        if isinstance(error, reader.ArenaFull):
            return  # the next call starts over
        if isinstance(error, reader.WorkerDied):
            worker = int(error.worker_id)
        else:
            found = re.search(r"Its worker (\d+)", str(error))
            assert found, repr(error)
            worker = int(found[1])
            assert worker in self.world.hung
        assert self.world.deaths[worker], f"worker {worker} did not die"
        # a batch whose samples died with its worker is reported in its own place
        is_once = worker not in self.dead or worker in self.world.short
        assert is_once, f"the death of worker {worker} is told twice"
        self.dead.add(worker)

    def _before(self, worker: int, at: int) -> None:
        """Advance to a batch that may arrive before others of its group."""
        while True:
            copied = list(self.at), self.last, list(self.trail)
            try:
                self._next(worker, at)
                return
            except AssertionError:
                self.at, self.last, self.trail = copied
                count = len(self.sizes)
                turns = [(self.last + 1 + step) % count for step in range(count)]
                for turn in turns:
                    if turn not in self.dead:
                        self.pass_nothing(turn)
                live = [t for t in turns if t not in self.dead and not self.is_exhausted(t)]
                if len(self.trail) > sum(self.sizes) or not live:
                    raise
                self._next(live[0], self.at[live[0]])

    def end(self) -> None:
        assert len(self.pending) < self.setting.places
        assert not self.pending or self.setting.drops_last
        left = self._left()
        most = self.setting.places - 1 if self.setting.drops_last else 0
        assert sum(left.values()) <= most, f"never came, by worker: {left}"

    def _left(self) -> dict[int, int]:
        left = {}
        for worker, size in enumerate(self.sizes):
            rest = [at for at in range(self.at[worker], size) if not self.is_nothing(worker, at)]
            if rest and worker not in self.dead:
                left[worker] = len(rest)
        return left

    @property
    def is_over(self) -> bool:
        return not self._left()

    def counted(self) -> list[int]:
        """Return, for each worker, how many batches must be counted."""
        found, pending = list(self.started), list(self.pending)
        for worker, at in self.trail:
            if pending and (worker, at) == pending[0]:
                break
            found[worker] = at + 1
        return found

    def check_state(self, state: dict[str, Any]) -> None:
        for worker, (least, saved) in enumerate(zip(self.counted(), state["workers"], strict=True)):
            place = place_of(saved)
            if worker in self.dead:
                # an exception that came before batches of its group does not count yet
                is_counted = saved["ended"] or self.setting.places > 1
                assert is_counted, f"worker {worker} is dead, and a resumed run would ask it"
                continue
            most = least
            while most < self.sizes[worker] and self.is_nothing(worker, most):
                most += 1
            assert least <= place <= most, f"worker {worker} is at {place}, not {least}..{most}"
            assert not saved["ended"] or place >= self.sizes[worker]
        setting = self.setting
        if setting.in_order and not setting.tolerates and setting.places == 1:
            assert self._turn_after(state["last_worker"]) == self._turn_after(self.last)

    def _turn_after(self, last: int) -> int | None:
        """Whose turn is next, of those that have more."""
        count = len(self.sizes)
        turns = [(last + 1 + step) % count for step in range(count)]
        live = [turn for turn in turns if turn not in self.dead and not self.is_exhausted(turn)]
        return live[0] if live else None

    def load(self, state: dict[str, Any]) -> StreamModel:
        made = StreamModel(self.world)
        for worker, saved in enumerate(state["workers"]):
            made.at[worker] = self.sizes[worker] if saved["ended"] else place_of(saved)
        made.started = [place_of(saved) for saved in state["workers"]]
        made.last = state["last_worker"]
        # nobody asks for the rest of their shares
        made.dead = {worker for worker in self.dead if state["workers"][worker]["ended"]}
        return made


def collect() -> None:
    """Drop what exceptions keep."""
    with contextlib.suppress(KeyboardInterrupt):
        gc.collect()
