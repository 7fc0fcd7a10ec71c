"""`loader.workers()` and the counts of `loader.stats()`: what each worker is doing."""

from __future__ import annotations

import itertools
import os
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from reader import DataLoader
from reader.engine.backends.backend import WorkerActivity, WorkerStatus
from tests.datasets import Rows, Stuck
from tests.processes import Wire, kill_and_wait, wait_until


def busy_of(loader: DataLoader) -> list[WorkerStatus]:
    return [each for each in loader.workers() if each.activity is WorkerActivity.BUSY]


def test_no_worker_is_shown_before_the_first_epoch_and_after_the_end() -> None:
    with DataLoader(Rows(8), batch_size=4, num_workers=2) as loader:
        assert loader.workers() == []
        iterator = iter(loader)
        assert [worker.worker_id for worker in loader.workers()] == [0, 1]
        list(iterator)
        assert loader.workers() == []


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_persistent_workers_are_idle_between_epochs(kind: str) -> None:
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "worker_type": kind}
    with DataLoader(Rows(8), batch_size=4, **options) as loader:
        list(loader)
        wait_until(
            lambda: [worker.activity for worker in loader.workers()] == 2 * [WorkerActivity.IDLE]
        )
        pids = {worker.pid for worker in loader.workers()}
        assert (os.getpid() in pids) == (kind == "thread")
        assert all(worker.batch is None for worker in loader.workers())


def test_stages_count_what_passed_through_the_reader_thread() -> None:
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True}
    with DataLoader(Rows(40), batch_size=4, **options) as loader:
        assert loader.stats()["stages"] is None
        list(loader)
        stages = loader.stats()["stages"]
        assert stages["received"] >= 10
        assert stages.keys() >= {"received", "reordered", "trimmed", "queued"}


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_counts_stay_when_the_workers_have_ended(kind: str) -> None:
    loader = DataLoader(Rows(40), batch_size=4, num_workers=2, worker_type=kind)
    assert (loader.stats()["stages"], loader.stats()["arena"]) == (None, None)
    for _ in loader:
        before = loader.stats()
        assert before["arena"]["is_open"]
    stats = loader.stats()
    assert stats["stages"]["received"] >= before["stages"]["received"] >= 9
    assert not stats["arena"]["is_open"]
    assert stats["arena"].keys() == before["arena"].keys()
    loader.close()
    assert loader.stats()["arena"] == stats["arena"]


@pytest.mark.parametrize("kind", ["process", "thread"])
def test_worker_that_is_stuck_is_seen_at_its_batch_and_sample(kind: str, tmp_path: Path) -> None:
    says, hears = Wire(tmp_path / "says"), Wire(tmp_path / "hears")
    dataset = Stuck(6, says.path, hears.path, count=16)
    with DataLoader(dataset, batch_size=4, num_workers=2, worker_type=kind) as loader:
        batches = iter(loader)
        pid = int(says.hear())
        # the other worker goes on until all its tasks are done
        wait_until(lambda: len(busy_of(loader)) == 1)
        (busy,) = busy_of(loader)
        assert (busy.pid, busy.batch, busy.sample) == (pid, 1, 2)
        assert busy.since_s >= 0
        hears.say()
        assert len(list(batches)) == 4
    says.close()
    hears.close()


def test_worker_that_died_is_seen_ended_until_another_takes_its_place() -> None:
    with DataLoader(Rows(8), batch_size=4, num_workers=2, persistent_workers=True) as loader:
        list(loader)
        pid = loader.workers()[1].pid
        assert pid is not None
        kill_and_wait(pid)
        assert loader.workers()[1].activity is WorkerActivity.ENDED
        assert len(list(loader)) == 2


def test_wait_is_counted_while_it_lasts(tmp_path: Path) -> None:
    says, hears = Wire(tmp_path / "says"), Wire(tmp_path / "hears")
    dataset = Stuck(0, says.path, hears.path, count=4)
    with DataLoader(dataset, batch_size=4, num_workers=1, worker_type="thread") as loader:
        batches = iter(loader)
        says.hear()
        assert loader.stats()["wait_s"] == 0.0
        consumer = threading.Thread(target=next, args=(batches,))
        consumer.start()
        wait_until(lambda: loader.stats()["last_wait_s"] > 0.0)
        first = loader.stats()["wait_s"]
        wait_until(lambda: loader.stats()["wait_s"] > first)
        hears.say()
        consumer.join()
    says.close()
    hears.close()


@pytest.mark.parametrize("ask", ["state_dict", "stats", "workers"])
def test_thread_that_asks_repeatedly_does_not_delay_the_loop(ask: str) -> None:
    """By itself it would keep the GIL for as long as Python allows: here, for ever."""
    with DataLoader(Rows(3000), batch_size=2, num_workers=2) as loader:
        batches = iter(loader)
        next(batches)
        is_over = threading.Event()

        def ask_again() -> None:
            while not is_over.is_set():
                getattr(loader, ask)()

        asker = threading.Thread(target=ask_again)
        before = sys.getswitchinterval()
        asker.start()
        try:
            sys.setswitchinterval(1000.0)
            assert len(list(itertools.islice(batches, 1000))) == 1000
        finally:
            sys.setswitchinterval(before)
            is_over.set()
            asker.join()
