"""The window by itself: what Ctrl-C leaves behind at each of its places."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from reader._core.handover import Task
from reader.engine.schedule import Window


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
    window = Window(feeder, Source(), 3)
    interrupts = 0
    for _ in range(20):
        try:
            window.fill()
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
    window = Window(feeder, Source(), 3)
    window.fill()
    window.hold(window.task(seq) for seq in (2, 0, 1))  # a worker died that had them
    for _ in range(2):
        with contextlib.suppress(KeyboardInterrupt):
            window.fill()
    assert feeder.calls >= at
    assert feeder.got[3:] == [(n, b"%d" % n) for n in range(3)]


def test_interrupted_turns_go_on() -> None:
    feeder: Any = Feeder(0, False)
    window = Window(feeder, Source(interrupt_at=3), 10)
    with pytest.raises(KeyboardInterrupt):
        window.fill()
    window.fill()
    assert feeder.got == [(n, b"%d" % n) for n in range(6)]
