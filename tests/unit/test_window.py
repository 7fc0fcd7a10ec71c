"""The window by itself: what Ctrl-C leaves behind at each of its places."""

from __future__ import annotations

import contextlib
from collections import Counter
from typing import Any

import pytest
from reader._core.steps.handover import Task
from reader._core.steps.round_robin import RoundRobin
from reader._core.steps.window import Window

from reader._core.collate.indices import IndexBatches, Indices


class Feeder:
    """Counts as the engine does; raises Ctrl-C where a test wants it, before or after it acts."""

    def __init__(self, interrupt_at: int, is_after: bool) -> None:
        self.sent = self.sends = self.accepted = 0
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
        self.sent = max(self.sent, seq + 1)
        self.sends += 1
        if is_now:
            raise KeyboardInterrupt
        return True

    def accept(self) -> None:
        self.accepted += 1


class Source:
    def __init__(self, interrupt_at: int = 0) -> None:
        self.interrupt_at = interrupt_at
        self.count = 0
        self.task: Task | None = None

    def draw(self) -> Any:
        if self.count + 1 == self.interrupt_at:
            self.interrupt_at = 0
            raise KeyboardInterrupt
        if self.task is None and self.count < 6:
            self.task = Task(0, b"%d" % self.count)
        return self.task

    def drawn(self) -> None:
        if self.task is not None:
            self.count = self.task.seq + 1
            self.task = None


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(1, 7))
def test_01_each_task_is_sent_once_though_sending_was_interrupted(at: int, is_after: bool) -> None:
    feeder: Any = Feeder(at, is_after)
    window, source = Window(feeder, 3), Source()
    interrupts = 0
    for _ in range(20):
        try:
            window.fill(source)
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if window.is_over:
            break
        window.accept(window.answered)
    assert interrupts == 1
    assert feeder.got == [(n, b"%d" % n) for n in range(6)]
    assert (window.dispatched, window.answered) == (6, 6)


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(4, 7))
def test_01_each_held_task_is_sent_once_though_sending_was_interrupted(
    at: int, is_after: bool
) -> None:
    feeder: Any = Feeder(at, is_after)
    window, source = Window(feeder, 3), Source()
    window.fill(source)
    window.hold(window.task(seq) for seq in (2, 0, 1))  # a worker died that had them
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            window.fill(source)
    assert feeder.calls >= at
    assert feeder.got[3:] == [(n, b"%d" % n) for n in range(3)]


def test_interrupted_turns_go_on() -> None:
    feeder: Any = Feeder(0, False)
    window, source = Window(feeder, 10), Source(interrupt_at=3)
    with pytest.raises(KeyboardInterrupt):
        window.fill(source)
    window.fill(source)
    assert feeder.got == [(n, b"%d" % n) for n in range(6)]


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("at", range(2, 7))
def test_01_drawn_indices_are_sent_once_though_sending_was_interrupted(
    at: int, is_after: bool
) -> None:
    feeder: Any = Feeder(at, is_after)
    window, source = Window(feeder, 3), Source()
    window.draw_from(IndexBatches(None, range(12), 2, False), 12, RoundRobin(2), [])
    interrupts = 0
    while not window.is_over:
        try:
            window.fill(source)
        except KeyboardInterrupt:
            interrupts += 1
            continue
        if window.answered < window.dispatched:
            window.accept(window.answered)
    assert interrupts == 1
    drawn = [Indices(payload).tolist() for seq, payload in feeder.got if seq < 6]
    assert drawn == [[n, n + 1] for n in range(0, 12, 2)]


def test_batch_with_an_index_outside_is_left_to_the_source() -> None:
    feeder: Any = Feeder(0, False)
    window, source = Window(feeder, 3), Source()
    odd: list[Indices] = []
    turns = RoundRobin(3)
    window.draw_from(IndexBatches(None, range(12), 2, False), 3, turns, odd)
    window.fill(source)
    assert [found.tolist() for found in odd] == [[2, 3]]
    assert feeder.got[1:] == [(1, b"0"), (2, b"2")]  # of the source
    assert Indices(feeder.got[0][1]).tolist() == [0, 1]
    assert turns.turn == 1  # the source sees to its own


def test_turns_skip_workers_that_have_enough() -> None:
    turns = RoundRobin(3, 1, 2)
    assert turns.next_worker() == 1
    loads = Counter({1: 2, 2: 1})
    turns.watch(lambda: loads)
    assert turns.next_worker() == 2
    turns.pass_on(2)
    assert (turns.turn, turns.next_worker()) == (0, 0)
    loads.update({0: 4, 1: 1, 2: 1})
    assert turns.next_worker() == 2  # all have enough: the one that has least
