"""The feeder's reports of workers and of missing batches: named, and counted."""

from __future__ import annotations

import os

import numpy as np

from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from tests.wire import wire


def test_kind_of_a_failure_is_a_member_that_equals_its_text() -> None:
    with wire() as road:
        road.feeder.drop_task(0, 0)
        item = road.feeder.take(5)
        assert isinstance(item, Failure)
        assert item.kind is FailureKind.LOST
        assert item.kind == "lost"
        assert f"{item.kind}" == str(item.kind) == "lost"
        road.feeder.accept()


def test_full_arena_is_reported_with_its_bytes_and_the_option_that_helps() -> None:
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        road.channel.send_full(30, 20, 10, "memory")
        item = road.feeder.take(5)
        road.feeder.accept()
        assert isinstance(item, Failure)
        assert item.kind is FailureKind.FULL
        assert (item.need_bytes, item.have_bytes, item.limit_bytes) == (30, 20, 10)
        assert item.knob == "memory"


def test_progress_and_loss_of_a_worker_have_named_fields() -> None:
    with wire() as road:
        idle = road.feeder.worker_progress(0)
        assert (idle.pid, idle.seq, idle.row, idle.seconds) == (os.getpid(), None, -1, 0.0)
        for seq in (0, 1):
            assert road.feeder.dispatch(seq, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        assert road.feeder.worker_progress(0).seq == 0
        assert road.feeder.stats()["in_flight"] == 2
        lost = road.feeder.detach(0)
        assert lost == ([0, 1], 0, False, False)
        assert (lost.seqs, lost.current_seq) == ([0, 1], 0)
        assert (lost.said_hello, lost.is_used_up) == (False, False)
        assert road.feeder.stats()["in_flight"] == 0


def test_counts_say_how_many_were_sent_made_and_received() -> None:
    with wire() as road:
        for value in range(3):
            road.write(np.full(4, value))
        stats = road.feeder.stats()
        assert (stats["dispatched"], stats["received"], stats["queued"]) == (3, 3, 0)
        counts = road.feeder.worker_counts(0)
        assert counts.batches == 3
        assert 0 < counts.busy_s < 5
