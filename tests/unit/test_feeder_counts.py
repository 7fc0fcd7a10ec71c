"""What a feeder says of batches that were sent, when nobody moved them into the queue yet."""

from __future__ import annotations

import os

import numpy as np

from reader._core.channel import TaskKind
from tests.wire import wire


def test_a_batch_that_a_worker_sent_counts_as_queued_though_no_thread_moved_it() -> None:
    with wire() as road:  # its feeder has no reader thread
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        road.channel.write(np.arange(3))
        assert road.feeder.stats()["queued"] == 0
        assert road.feeder.queued == 1
        assert road.feeder.stats()["queued"] == 1
        assert road.feeder.take(0).restore().tolist() == [0, 1, 2]
        road.feeder.accept()
        assert road.feeder.queued == 0


def test_a_batch_that_a_worker_sent_is_taken_at_once_without_the_reader_thread() -> None:
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        assert road.feeder.take(0) is False
        road.channel.write(np.arange(3))
        assert road.feeder.take(0).restore().tolist() == [0, 1, 2]
        road.feeder.accept()


def test_asking_in_a_forked_process_moves_nothing_of_the_trainers() -> None:
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_NEXT, b"")
        assert road.channel.next_task() is not None
        road.channel.write(np.arange(3))
        child = os.fork()
        if child == 0:
            os._exit(7 if road.feeder.queued == 0 else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert road.feeder.queued == 1
        assert road.feeder.take(0).restore().tolist() == [0, 1, 2]
        road.feeder.accept()
