"""Promised memory: bytes granted to a worker and not written yet count for the others (2.8).

The hook below says always the same, as a system does that counts pages when they are written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from reader import ArenaFull
from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind, WorkerChannel, encode_task
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.feeder import Feeder

MIB = 1 << 20
LEFT = 100 * MIB
GRANT = 2 * LEFT // 8  # at most: what two workers may use before they ask again


class Pair:
    """Two workers in one arena; this process plays both."""

    def __init__(self) -> None:
        self.left = LEFT
        self.asked = 0
        self.short: list[int] = []  # the system's first answer
        self.arena = Arena.create(2, 8)
        self.feeder = Feeder(self.arena, 2, 8, 8)
        self.first, self.second = (
            WorkerChannel(self.arena, worker, self.feeder.bell, 4, self.available)
            for worker in range(2)
        )
        for worker in range(2):
            self.feeder.attach(worker)
        self.feeder.begin_run(0)
        self._sent = 0

    def available(self) -> int:
        self.asked += 1
        return self.short.pop() if self.short else self.left

    def stack(self, nbytes: int, during: Callable[[int], Any] = lambda row: None) -> None:
        """Let the first worker make a batch of 4 samples; call `during` before each."""
        self.ask(0)
        try:
            self.first.stack(Samples(nbytes // 4, during), [0, 1, 2, 3], [0, 1, 2, 3])
        except Exception:
            self.first.send_error(b"")
            raise

    def write(self, nbytes: int) -> None:
        """Let the second worker send a ready-made batch."""
        self.second.write(np.ones(nbytes, np.uint8))

    def ask(self, worker: int) -> Any:
        """Send a worker a task, as the trainer does."""
        self.send(worker)
        return (self.first, self.second)[worker].next_task()

    def send(self, worker: int) -> None:
        kind, payload = encode_task([0], True)
        assert self.feeder.dispatch(self._sent, kind, payload, worker)
        self._sent += 1

    def take(self) -> Any:
        """Return the next batch or Failure."""
        item = self.feeder.take(5)
        self.feeder.accept()
        return item

    @property
    def promised(self) -> int:
        return self.arena.stats()["promised_bytes"]

    @property
    def owned(self) -> int:
        return self.arena.stats()["owned_bytes"]

    def close(self) -> None:
        self.arena.stop()
        self.feeder.close()
        self.arena.close()
        self.arena.release()


class Samples:
    def __init__(self, nbytes: int, during: Callable[[int], Any]) -> None:
        self.sample = np.ones(nbytes, np.uint8)
        self.during = during

    def __getitem__(self, row: int) -> Any:
        self.during(row)
        return self.sample


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.close()


def test_08_memory_promised_to_one_worker_is_not_promised_to_another(pair: Pair) -> None:
    refused: list[ArenaFull] = []

    def meanwhile(row: int) -> None:
        if row == 2:
            with pytest.raises(ArenaFull, match="memory cgroup") as info:
                pair.write(48 * MIB)
            refused.append(info.value)

    pair.stack(64 * MIB, meanwhile)
    (error,) = refused
    assert error.need_bytes > 48 * MIB
    assert LEFT - 64 * MIB - GRANT <= error.have_bytes <= LEFT - 64 * MIB
    pair.write(48 * MIB)  # the first has written all of its own, so the system counts that
    assert pair.promised <= GRANT


@pytest.mark.parametrize("at", [0, 1, 3])
def test_08_a_failed_batch_releases_its_unwritten_bytes(pair: Pair, at: int) -> None:
    def fail(row: int) -> None:
        if row == at:
            raise ValueError("damaged")

    for _ in range(3):
        with pytest.raises(ValueError, match="damaged"):
            pair.stack(64 * MIB, fail)
        assert pair.owned <= MIB
        assert pair.promised <= GRANT
    pair.write(64 * MIB)


def test_08_a_replaced_worker_leaves_no_promise_behind(pair: Pair) -> None:
    def end(row: int) -> None:
        if row == 2:
            assert pair.promised >= 64 * MIB
            # as if the first had died here: another takes over its slots
            pair.first = WorkerChannel(pair.arena, 0, pair.feeder.bell, 4, pair.available)
            assert pair.promised == 0
            assert pair.owned <= MIB
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pair.stack(64 * MIB, end)


def test_08_pages_of_a_slot_that_no_batch_wrote_count_when_one_does(pair: Pair) -> None:
    # space for objects follows the largest ones: the rest of it is unwritten
    def named(size: int) -> list[Any]:
        return [(np.ones(MIB, np.uint8), "x" * size), (np.ones(MIB, np.uint8), "y")]

    pair.ask(0)
    pair.first.stack(named(32 * MIB), [0, 1], [0, 1])
    owned = pair.owned
    pair.ask(0)
    pair.first.stack(named(1), [0, 1], [0, 1])
    assert pair.owned - owned < 3 * MIB
    assert pair.promised <= GRANT + 40 * MIB


def test_08_small_batches_ask_the_system_rarely(pair: Pair) -> None:
    pair.left = 1 << 36
    for _ in range(12):
        pair.write(MIB // 4)
    assert pair.asked == 1


def test_08_with_short_memory_a_task_waits_before_its_samples_take_memory(pair: Pair) -> None:
    pair.stack(64 * MIB)  # a sample takes 16 MiB, and two workers want to keep ten such batches
    pair.ask(1)  # the second is busy from here on
    pair.short = [8 * MIB]
    pair.send(0)
    assert pair.ask(0) is not None  # the second of its tasks
    pair.write(1)
    _, _, full = pair.take(), pair.take(), pair.take()
    assert isinstance(full, Failure)
    assert full.kind is FailureKind.FULL
    assert full.knob == "memory"
    assert full.need_bytes >= 16 * MIB
    assert full.have_bytes <= 8 * MIB


def test_08_a_lone_worker_fetches_however_short_memory_is(pair: Pair) -> None:
    pair.stack(64 * MIB)
    pair.left = 0
    assert pair.ask(0) == (TaskKind.TASK_INDICES, [0])
    assert pair.promised >= 16 * MIB
    with pytest.raises(ArenaFull):
        pair.first.write(np.ones(80 * MIB, np.uint8))


def test_08_an_owner_takes_its_first_mebibyte_without_asking(pair: Pair) -> None:
    sent = 1 << 16
    for _ in range(3):
        pair.ask(1)
        pair.write(sent)
        pair.take()
    assert pair.asked == 0
    for _ in range(3):
        pair.ask(1)
        pair.write(sent + (1 << 20))
        pair.take()
    assert pair.asked
