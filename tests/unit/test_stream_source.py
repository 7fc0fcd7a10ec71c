"""Turns: round robin over the workers, for any number of tasks in flight."""

from __future__ import annotations

from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.tasks import Task, TaskState, TaskTable
from reader._core.wire.channel import TaskKind
from reader.engine.backends.backend import Death
from reader.engine.stream_source import StreamSource
from reader.engine.task_source import Loss
from reader.engine.worker_cursors import WorkerCursors
from tests.streams import in_turn
from tests.wire import TakingFeeder


def source_of(workers: int) -> tuple[TaskTable, StreamSource]:
    cursors = WorkerCursors(workers, 1)
    table = TaskTable(1, 0, True, True, last_worker=cursors.last, worker_cursors=cursors)
    return table, StreamSource(table, workers)


def draw(source: StreamSource) -> Task | None:
    """Return the next task, ready to be sent."""
    task = source.draw()
    if task is not None:
        assert (task.state, task.kind, task.payload) == (TaskState.HELD, TaskKind.TASK_NEXT, b"")
    return task


def workers_of(source: StreamSource, count: int) -> list[int]:
    return [task.worker for _ in range(count) if (task := draw(source)) is not None]


def play(sizes: list[int], windows: list[int]) -> list[tuple[int, int]]:
    """Deliver everything with so many tasks in flight; returns (worker, number of its batch)."""
    _, source = source_of(len(sizes))
    left = list(sizes)
    out: deque[int] = deque()
    found: list[tuple[int, int]] = []
    for step in range(10_000):
        while len(out) < windows[step % len(windows)]:
            task = draw(source)
            if task is None:
                break
            out.append(task.worker)
        if not out:
            return found
        worker = out.popleft()
        if left[worker]:
            found.append((worker, sizes[worker] - left[worker]))
            left[worker] -= 1
        else:
            source.note_share_end(worker)
            assert not source.is_live(worker)
    raise AssertionError("the epoch does not end")


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    windows=st.lists(st.integers(1, 14), min_size=1, max_size=5),
)
def test_01_order_is_round_robin_for_any_number_in_flight(
    sizes: list[int], windows: list[int]
) -> None:
    wanted = in_turn([[(w, n) for n in range(size)] for w, size in enumerate(sizes)])
    assert play(sizes, windows) == wanted


def test_each_worker_is_drawn_in_turn_until_its_end_is_seen() -> None:
    _, source = source_of(3)
    assert workers_of(source, 7) == [0, 1, 2, 0, 1, 2, 0]
    source.note_share_end(1)
    source.note_share_end(1)
    assert [source.is_live(worker) for worker in range(3)] == [True, False, True]
    assert workers_of(source, 4) == [2, 0, 2, 0]
    source.note_share_end(0)
    source.note_share_end(2)
    assert draw(source) is None
    assert draw(source) is None


def test_death_of_a_worker_without_a_task_is_reported_in_its_turn() -> None:
    table, source = source_of(3)
    dispatcher = Dispatcher(table, TakingFeeder(), source)
    assert workers_of(source, 3) == [0, 1, 2]
    table.resize(3)
    dispatcher.send_held()
    dispatcher.hand(table.arrive(1))
    found = source.lost(Death(1, 100, -9, [], None, True, False))
    assert [(task.number, task.worker, loss) for task, loss in found] == [(4, 1, Loss.RAISED)]
    assert table[3].worker == 0  # its turn was before, and it has a task now
    assert workers_of(source, 2) == [2, 0]


@pytest.mark.parametrize("drawn", range(7))
@pytest.mark.parametrize("ends", [0, 1, 2])
def test_end_of_any_worker_at_any_time_keeps_the_others_in_turn(drawn: int, ends: int) -> None:
    _, source = source_of(3)
    before = workers_of(source, drawn)
    source.note_share_end(ends)
    seen = [worker for worker in before + workers_of(source, 4) if worker != ends]
    others = [worker for worker in range(3) if worker != ends]
    assert seen == [others[n % 2] for n in range(len(seen))]
