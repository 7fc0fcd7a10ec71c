"""A worker that writes where it must not is replaced; the trainer neither crashes nor hangs."""

from __future__ import annotations

import ctypes
import logging
import os
import random
import struct
from typing import Any

import numpy as np
import pytest

import reader
from reader._core.wire.channel import TaskKind
from reader.errors import WorkerDied
from tests.fuzz.scribbler import Scribbler
from tests.wire import Wire, wire

WRITING = 2  # RD_WRITING, the state of a slot: see layout.h
PROMISED = 4096 + 432  # offset of the word in the first heap's page: see layout.h


class Overwrites:
    """Its worker damages the record of the slot that it writes, once."""

    def __init__(self, done: int) -> None:
        self.done = done

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == 9 and not os.pread(self.done, 1, 0):
            os.pwrite(self.done, b"1", 0)
            _overwrite_slots()
        return np.full(3, index)


def _overwrite_slots() -> None:
    at = Scribbler(random.Random(0), "slots")
    for heap in range(at.heaps):
        table = at.base + at.areas + heap * at.area + at.task_ring + at.result_ring
        ctypes.memset(table, 0x5A, 4096)


def test_damage_is_logged_once_and_every_batch_comes(caplog: pytest.LogCaptureFixture) -> None:
    done = os.memfd_create("done")
    with (
        caplog.at_level(logging.WARNING, "reader"),
        reader.DataLoader(
            Overwrites(done), batch_size=4, num_workers=2, worker_retries=3
        ) as loader,
    ):
        found = [int(value) for batch in loader for value in batch[:, 0]]
    os.close(done)
    assert found == list(range(40))
    told = [
        record.message
        for record in caplog.records
        if "a check of the shared memory" in record.message
    ]
    assert len(told) == 1, caplog.text
    assert "All workers are replaced, and their batches are made again" in told[0]


class _OverwritesBeginnings:
    """Its worker overwrites where a slot begins, before the batch in it is whole."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            at = Scribbler(random.Random(0), "slots")
            slots = at.base + at.areas + at.task_ring + at.result_ring
            for place in range(slots, slots + 12 * 64, 64):
                state, _, start = struct.unpack("<IIQ", ctypes.string_at(place, 16))
                if state == WRITING:
                    ctypes.memset(at.base + start, 0, 24)
        return np.full(3, index)


def test_batch_whose_field_table_is_overwritten_while_it_is_made_is_right_or_made_again() -> None:
    with reader.DataLoader(
        _OverwritesBeginnings(), batch_size=4, num_workers=1, worker_retries=3
    ) as loader:
        found = [batch.tolist() for batch in loader]
    assert found == [[[row] * 3 for row in range(first, first + 4)] for first in range(0, 40, 4)]


def test_error_of_a_worker_ended_for_damage_says_so() -> None:
    error = WorkerDied(pid=1, exitcode=-9, worker_id=0, batch=3, damage="a result has no slot")
    assert "a check of their shared memory failed: a result has no slot" in str(error)
    assert "The usual cause is native code under the dataset" in str(error)
    assert error.damage == "a result has no slot"


def _damaged(road: Wire) -> str:
    found = road.feeder.examine([])
    assert found is not None
    return found.check


def test_result_of_a_task_that_was_not_sent_is_damage() -> None:
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        road.channel.write(np.zeros(3))
        road.channel.write(np.zeros(3))
        assert road.feeder.take(1) is None
        assert _damaged(road) == "a result answers no task"
        assert road.feeder.ended_workers() == [0]


def test_promise_beyond_the_limit_is_damage_and_no_lack_of_memory() -> None:
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        assert road.arena.stats()["promised_bytes"] == 0
        os.pwrite(road.arena.fd, b"\xff" * 8, PROMISED)
        counts = road.arena.stats()
        assert counts["promised_bytes"] == counts["limit_bytes"]
        road.channel.send_full(4096, 0, 0, "prefetch_factor")
        assert road.feeder.take(1) is None
        assert "promised is more than there may be" in _damaged(road)
        assert road.feeder.detach_all()[0].seqs == [0]
