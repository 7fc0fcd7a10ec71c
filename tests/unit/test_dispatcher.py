"""The table of tasks and the dispatcher by themselves, after Ctrl-C at each place."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest

from reader._core.collate.indices import IndexBatches, Indices
from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.round_robin import RoundRobin
from reader._core.epoch.tasks import Task, TaskState, TaskTable
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from reader.errors import InternalError


class Feeder:
    """Counts as the engine does; raises Ctrl-C on request, before or after it acts."""

    def __init__(self, interrupt_at: int, is_after: bool) -> None:
        self.sends = self.accepted = 0
        self.got: list[tuple[int, Any]] = []
        self.calls = 0
        self.interrupt_at = interrupt_at
        self.is_after = is_after

    def dispatch(self, seq: int, kind: int, payload: bytes, worker: int) -> bool:
        self.calls += 1
        is_now = self.calls == self.interrupt_at
        if is_now and not self.is_after:
            raise KeyboardInterrupt
        self.got.append((seq, payload))
        self.sends += 1
        if is_now:
            raise KeyboardInterrupt
        return True

    def accept(self) -> None:
        self.accepted += 1


class Source:
    """Six tasks; Ctrl-C comes once before one of them is drawn, or before it is encoded."""

    batches: Any = None

    def __init__(self, table: TaskTable, interrupt_at: int = 0, is_late: bool = False) -> None:
        self.table = table
        self.interrupt_at = interrupt_at
        self.is_late = is_late

    def check(self, number: int, is_late: bool) -> None:
        if number + 1 == self.interrupt_at and is_late == self.is_late:
            self.interrupt_at = 0
            raise KeyboardInterrupt

    def draw(self) -> Task | None:
        self.check(self.table.drawn, False)
        if self.table.drawn == 6:
            return None
        return self.table.draw(0, b"")

    def encode(self, task: Task) -> int | None:
        self.check(task.number, True)
        count = None if self.batches is None else 12
        self.table.ready(task, TaskKind.TASK_INDICES, b"%d" % task.number)
        return count


def over(feeder: Feeder, size: int = 3, **options: Any) -> tuple[TaskTable, Dispatcher, Source]:
    table = TaskTable(size)
    source: Any = Source(table, **options)
    return table, Dispatcher(table, feeder, source), source


def answer(table: TaskTable, dispatcher: Dispatcher) -> None:
    """Answer the oldest task, and hand it over."""
    dispatcher.hand(table.arrive(table.next_number))


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_01_each_task_is_sent_once_despite_an_interrupt(at: int, is_after: bool) -> None:
    feeder = Feeder(at, is_after)
    table, dispatcher, _ = over(feeder)
    interrupts = 0
    for _ in range(20):
        try:
            dispatcher.fill()
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if table.is_over:
            break
        answer(table, dispatcher)
    assert interrupts == 1
    assert feeder.got == [(n, b"%d" % n) for n in range(6)]
    assert (table.drawn, table.delivered, len(table)) == (6, 6, 0)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(4, 7))
def test_01_each_task_made_again_is_sent_once_despite_an_interrupt(at: int, is_after: bool) -> None:
    feeder = Feeder(at, is_after)
    table, dispatcher, _ = over(feeder)
    dispatcher.fill()
    table.make_again(table[number] for number in (2, 0, 1))  # a worker that had them died
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            dispatcher.fill()
    assert feeder.calls >= at
    assert feeder.got[3:] == [(n, b"%d" % n) for n in range(3)]


@pytest.mark.parametrize("is_late", [False, True])
def test_drawing_goes_on_where_it_was_interrupted(is_late: bool) -> None:
    feeder = Feeder(0, False)
    table, dispatcher, _ = over(feeder, 10, interrupt_at=3, is_late=is_late)
    with pytest.raises(KeyboardInterrupt):
        dispatcher.fill()
    assert len(table.those(TaskState.DRAWN)) == is_late
    dispatcher.fill()
    assert feeder.got == [(n, b"%d" % n) for n in range(6)]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(2, 7))
def test_01_batches_of_built_in_samplers_are_sent_once_despite_an_interrupt(
    at: int, is_after: bool
) -> None:
    feeder = Feeder(at, is_after)
    table, dispatcher, source = over(feeder)
    source.batches = IndexBatches(None, range(2, 12), 2, False)  # behind the source's own first
    interrupts = 0
    while not table.is_over:
        try:
            dispatcher.fill()
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if table.is_awaiting:
            answer(table, dispatcher)
    assert interrupts == 1
    assert feeder.got[0] == (0, b"0")
    drawn = [Indices(payload).tolist() for seq, payload in feeder.got[1:]]
    assert drawn == [[n, n + 1] for n in range(2, 12, 2)]


def test_batch_with_an_index_outside_is_refused_by_the_source() -> None:
    feeder = Feeder(0, False)
    _, dispatcher, source = over(feeder)
    source.batches = IndexBatches(None, range(10, 16), 2, False)  # 12 samples
    dispatcher.fill()
    assert [number for number, _ in feeder.got] == [0, 1, 2]
    assert Indices(feeder.got[1][1]).tolist() == [10, 11]
    assert feeder.got[2] == (2, b"2")  # of the source


def test_turns_skip_workers_with_full_rings() -> None:
    turns = RoundRobin(3, 1, 2)
    assert turns.next_worker() == 1
    loads = Counter({1: 2, 2: 1})
    turns.watch(lambda: loads)
    assert turns.next_worker() == 2
    turns.pass_on(2)
    assert (turns.turn, turns.next_worker()) == (0, 0)
    loads.update({0: 4, 1: 1, 2: 1})
    assert turns.next_worker() == 2  # all rings are full: the worker with the fewest tasks


FIELDS = sorted({name for name in vars(Task) if not name.startswith(("_", "note_", "replace_"))})


@pytest.mark.parametrize("name", FIELDS)
def test_no_field_of_a_task_can_be_set_from_outside(name: str) -> None:
    with pytest.raises(AttributeError, match="not writable"):
        setattr(Task(TaskKind.TASK_KEYS, []), name, None)


def test_answer_can_be_replaced_only_while_it_is_set_aside() -> None:
    table, dispatcher, _ = over(Feeder(0, False))
    dispatcher.fill()
    task = table.arrive(0)
    with pytest.raises(InternalError, match="has no answer that is set aside"):
        table.replace_answer(task, None)
    full = Failure(FailureKind.FULL, 0, 3, 1, None, 100, 10, 50, "max_bytes")
    dispatcher.set_aside(task, full)
    table.replace_answer(task, full.as_kind(FailureKind.LOST))
    assert (task.value.kind, task.value.seq, task.value.epoch, task.value.worker) == (
        "lost",
        0,
        3,
        1,
    )
    assert full.kind == "full"


def test_deaths_stand_against_the_keys_at_which_workers_died() -> None:
    task = Task(TaskKind.TASK_KEYS, b"old")
    task.note_deaths(["first", "second"])
    task.replace_keys(TaskKind.TASK_KEY, b"one by one", keeps_deaths=True)
    assert (task.payload, task.deaths) == (b"one by one", ("first", "second"))
    task.replace_keys(TaskKind.TASK_KEY, b"without the bad one")
    assert (task.payload, task.deaths) == (b"without the bad one", ())


def test_tries_without_memory_are_counted_and_start_over_after_the_most() -> None:
    task = Task(TaskKind.TASK_KEYS, b"")
    assert [task.note_no_memory(2) for _ in range(5)] == [1, 2, 0, 1, 2]
    assert [task.note_no_memory() for _ in range(2)] == [3, 4]
