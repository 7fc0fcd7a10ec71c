"""Tasks and answers as values: a worker's rings in two arenas, and pickles between them."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import time
from typing import Any

import numpy as np

from reader._core.memory.arena import Arena
from reader._core.wire.channel import TaskKind, WorkerChannel, encode_task
from reader._core.wire.failure import FailureKind
from reader._core.wire.feeder import Feeder
from reader._core.wire.relay import TaskRelay
from reader._core.wire.wake_words import WakeWords
from reader.cluster.release import release
from reader.cluster.remote_worker import RemoteWorker
from reader.cluster.sent_config import SentConfig
from reader.processes.remote_config import pickle_remote
from reader.processes.template import memory_file
from reader.worker.loop import WorkerConfig
from reader.worker.worker_state import EpochStart


class Samples:
    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        if index == 50:
            raise ValueError("bad")
        return {"x": np.full((3, 4), index, np.float32), "name": str(index)}


def work_apart(config: Any, pipe: Any) -> None:
    """Be the worker's machine: its own process, because a worker seeds the process it runs in."""
    worker = RemoteWorker(release(), config, 0, 8)
    pipe.send(worker.start())
    while (tasks := pipe.recv()) is not None:
        pipe.send(worker.work(tasks))


class Road:
    """A feeder, and a worker in another process, to which only pickled values go."""

    def __init__(self, dataset: Any, limit: int | None = None) -> None:
        config = WorkerConfig(
            dataset=dataset,
            collate_fn=None,
            worker_init_fn=None,
            num_workers=1,
            seed=None,
            base_seed=0,
        )
        fork = multiprocessing.get_context("fork")
        self.worker, there_pipe = fork.Pipe()
        sent = SentConfig("", pickle_remote(config).data, [], [])
        self.process = fork.Process(target=work_apart, args=(sent, there_pipe))
        self.process.start()
        there_pipe.close()
        self.arena = Arena.create(1, 8, limit)
        self.feeder = Feeder(self.arena, 1, 8, 8)
        self.feeder.start()
        self.feeder.attach(0)
        self.feeder.begin_run(0)
        there = Arena.attach(os.dup(self.arena.fd))
        self.relay = TaskRelay(WorkerChannel(there, 0, self.feeder.bell, 9))
        self.schemas: dict[Any, bytes] = {}
        _, _, answers = self.worker.recv()
        self._land(answers)

    def _land(self, answers: Any) -> None:
        for sent in answers:
            key = sent.worker, sent.answer.schema
            for number, schema in sent.schemas.items():
                self.schemas[sent.worker, number] = schema
            if sent.answer.schema and not self.relay.knows(key):
                self.relay.keep(key, self.schemas[key])
            self.relay.land(sent.answer, sent.data, key)

    def take(self) -> list[Any]:
        """Take the tasks that wait."""
        tasks = []
        while (task := self.relay.next_task()) is not None:
            tasks.append(tuple(task))
        return tasks

    def work(self, tasks: list[Any]) -> None:
        """Have the worker do tasks, and land its answers."""
        self.worker.send(tasks)
        self._land(self.worker.recv()[1])

    def item(self) -> Any:
        found = self.feeder.take(10)
        self.feeder.accept()
        return found

    def close(self) -> None:
        self.worker.send(None)
        self.process.join()
        self.worker.close()
        self.arena.stop()
        self.feeder.close()
        self.arena.close()
        self.arena.release()
        del self.arena, self.feeder, self.relay, self.worker


def send(road: Road, seq: int, keys: Any) -> None:
    kind, payload = encode_task(keys, True)
    assert road.feeder.dispatch(seq, kind, payload, 0)


def test_batches_arrive_as_they_were_stacked() -> None:
    with contextlib.closing(Road(Samples())) as road:
        for seq in range(3):
            send(road, seq, [4 * seq, 4 * seq + 1])
        road.work(road.take())
        for seq in range(3):
            batch = road.item()
            (rows,) = batch.numpy_fields()
            assert rows.shape == (2, 3, 4)
            assert rows[:, 0, 0].tolist() == [4 * seq, 4 * seq + 1]
            assert batch.objects == [[str(4 * seq), str(4 * seq + 1)]]
            rows[:] = 0  # it is the trainer's own


def test_worker_is_busy_while_its_process_here_waits_for_more() -> None:
    fd = memory_file("words", bytes(WakeWords.nbytes(1)))
    words = WakeWords(fd, 1)
    os.close(fd)
    with contextlib.closing(Road(Samples())) as road:
        send(road, 0, [0, 1])
        tasks = road.take()
        words.wake(0)
        words.wait(0, [road.relay.channel], is_idle=False)
        assert road.feeder.worker_progress(0).seq == 0
        assert road.feeder.worker_progress(0).seconds > 0
        road.work(tasks)
        assert road.feeder.worker_progress(0).seq is None
        road.item()


def test_errors_and_batches_without_a_slot_arrive_in_their_places() -> None:
    with contextlib.closing(Road(Samples())) as road:
        send(road, 0, [49, 50])
        send(road, 1, [51])
        road.work(road.take())
        failure = road.item()
        assert (failure.kind, failure.seq) == (FailureKind.ERROR, 0)
        assert "ValueError: bad" in pickle.loads(failure.payload).traceback
        assert road.item().numpy_fields()[0][0, 0, 0] == 51


def test_answers_come_in_the_order_of_tasks() -> None:
    with contextlib.closing(Road(Samples())) as road:
        send(road, 0, [1])
        send(road, 1, [2])
        first = road.take()
        road.feeder.trim()
        start = pickle.dumps(EpochStart([], 7))
        assert road.feeder.dispatch(0, int(TaskKind.TASK_EPOCH), start, 0)
        send(road, 2, [3])
        second = road.take()
        assert [task[3] for task in second] == [TaskKind.TASK_EPOCH, TaskKind.TASK_INDICES]
        road.work(first)
        road.work(second)
        assert [road.item().numpy_fields()[0][0, 0, 0] for _ in range(3)] == [1, 2, 3]
        assert road.feeder.stats()["in_flight"] == 0


def test_tasks_of_an_abandoned_epoch_are_answered_and_not_sent() -> None:
    with contextlib.closing(Road(Samples())) as road:
        send(road, 0, [1])
        send(road, 1, [2])
        first = road.take()[:1]
        road.feeder.begin_run(1)
        send(road, 0, [5])
        second = road.take()
        assert len(second) == 1
        road.work(first)
        road.work(first)  # the second one of the abandoned ones, which was taken
        road.work(second)
        assert road.item().numpy_fields()[0][0, 0, 0] == 5


class Large:
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> np.ndarray:
        return np.full(1 << 20, index, np.uint8)


def test_batch_without_space_in_the_arena_is_reported() -> None:
    road = Road(Large(), limit=3 << 20)
    try:
        for seq in range(3):
            send(road, seq, [seq])
        road.work(road.take())
        held = [road.item(), road.item()]
        failure = road.item()
        assert failure.kind is FailureKind.FULL
        assert failure.need_bytes > 1 << 20
        assert [int(batch.numpy_fields()[0][0, 0]) for batch in held] == [0, 1]
        del held
    finally:
        road.close()


def test_no_bytes_no_rows_and_empty_arrays_arrive() -> None:
    class Empty:
        def __len__(self) -> int:
            return 4

        def __getitem__(self, index: int) -> Any:
            return np.empty((0, 3)), np.empty(0, np.uint8), None

    road = Road(Empty())
    try:
        send(road, 0, [0, 1])
        road.work(road.take())
        batch = road.item()
        assert [field.shape for field in batch.numpy_fields()] == [(2, 0, 3), (2, 0)]
        del batch
    finally:
        road.close()


def spin(core: int, seconds: float) -> None:
    os.sched_setaffinity(0, {core})
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pass


def work_on_a_core_that_another_has(config: Any, core: int, pipe: Any) -> None:
    worker = RemoteWorker(release(), config, 0, 8)
    worker.start()
    spin(core, 0.5)  # so does Ray, or the worker of another program
    pipe.send(worker.work([])[0].runnable_ns)
    worker.close()


def test_time_without_a_core_is_counted_within_calls_alone() -> None:
    config = WorkerConfig(
        dataset=Samples(),
        collate_fn=None,
        worker_init_fn=None,
        num_workers=1,
        seed=None,
        base_seed=0,
    )
    sent = SentConfig("", pickle_remote(config).data, [], [])
    fork, core = multiprocessing.get_context("fork"), min(os.sched_getaffinity(0))
    here, there = fork.Pipe()
    crowd = [fork.Process(target=spin, args=(core, 2.0)) for _ in range(3)]
    worker = fork.Process(target=work_on_a_core_that_another_has, args=(sent, core, there))
    for each in (*crowd, worker):
        each.start()
    there.close()
    assert here.recv() < 0.1e9
    for each in (*crowd, worker):
        each.join()
    here.close()
