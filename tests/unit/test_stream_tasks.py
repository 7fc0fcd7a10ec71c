"""Turns: the circle of workers, whatever the number of tasks that are out at once."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from reader.engine.cursor import StreamCursor, WorkerCursors
from reader.engine.stream_tasks import StreamTasks

from reader._core.wire.channel import TaskKind
from tests.streams import in_turn


def tasks_of(workers: int) -> StreamTasks:
    backend: Any = SimpleNamespace(workers=workers)
    window: Any = SimpleNamespace(in_order=True)
    return StreamTasks(window, backend, StreamCursor(0, {}, WorkerCursors(workers, 1)))


def draw(turns: StreamTasks) -> Any:
    """Return the next task as one in flight."""
    task = turns.draw()
    turns.drawn()
    return task


def play(sizes: list[int], windows: list[int]) -> list[tuple[int, int]]:
    """Deliver everything with so many tasks out at once; returns (worker, number of its batch)."""
    turns = tasks_of(len(sizes))
    left = list(sizes)
    out: deque[int] = deque()
    found: list[tuple[int, int]] = []
    for step in range(10_000):
        while len(out) < windows[step % len(windows)]:
            task = draw(turns)
            if task is None:
                break
            assert (task.kind, task.payload) == (TaskKind.TASK_NEXT, b"")
            out.append(task.worker)
        if not out:
            return found
        worker = out.popleft()
        if left[worker]:
            found.append((worker, sizes[worker] - left[worker]))
            left[worker] -= 1
        else:
            turns.end(worker)
            assert not turns.is_live(worker)
    raise AssertionError("the epoch does not end")


@given(
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    windows=st.lists(st.integers(1, 14), min_size=1, max_size=5),
)
def test_01_order_is_the_circle_of_the_workers_for_every_window(
    sizes: list[int], windows: list[int]
) -> None:
    wanted = in_turn([[(w, n) for n in range(size)] for w, size in enumerate(sizes)])
    assert play(sizes, windows) == wanted


def test_each_worker_is_drawn_in_turn_until_its_end_is_seen() -> None:
    turns = tasks_of(3)
    assert [draw(turns).worker for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    turns.end(1)
    turns.end(1)
    assert [turns.is_live(worker) for worker in range(3)] == [True, False, True]
    assert [draw(turns).worker for _ in range(4)] == [2, 0, 2, 0]
    turns.end(0)
    turns.end(2)
    assert draw(turns) is None
    assert draw(turns) is None


def test_task_is_the_same_until_it_is_counted_as_drawn() -> None:
    turns = tasks_of(2)
    assert [turns.draw().worker for _ in range(3)] == [0, 0, 0]  # type: ignore[union-attr]
    turns.drawn()
    turns.drawn()
    assert draw(turns).worker == 1


@pytest.mark.parametrize("drawn", range(7))
@pytest.mark.parametrize("ends", [0, 1, 2])
def test_end_of_any_worker_at_any_time_keeps_the_others_in_turn(drawn: int, ends: int) -> None:
    turns = tasks_of(3)
    before = [draw(turns).worker for _ in range(drawn)]
    turns.end(ends)
    after = [draw(turns).worker for _ in range(4)]
    others = [worker for worker in range(3) if worker != ends]
    seen = [worker for worker in before + after if worker != ends]
    assert seen == [others[n % 2] for n in range(len(seen))]
