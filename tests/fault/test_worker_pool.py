"""Workers that several loaders share, and that die: nothing is lost in any of the loaders."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import signal
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, LoadTimeout, ReaderError, WorkerDied, WorkerPool
from reader.engine.backends.shared_processes import SharedProcesses
from reader.processes import shared_process
from tests.datasets import (
    Augmented,
    Killer,
    PidRows,
    Rows,
    Stuck,
    check_rows,
    digest_of,
    listen,
    tell,
)
from tests.fault.test_records import Overwrites
from tests.processes import Program, Wire, open_pid, wait_gone


def whole(batches: list[Any], count: int, batch_size: int) -> None:
    assert len(batches) == -(-count // batch_size)
    for n, batch in enumerate(batches):
        check_rows(batch, range(n * batch_size, min(count, (n + 1) * batch_size)))


def kill_one(pid: int) -> None:
    """Kill a worker, unless it has already ended unnoticed."""
    pidfd = open_pid(pid)
    if pidfd is not None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        wait_gone([pidfd])


@pytest.mark.parametrize("start_method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_01_kills_cost_no_batch_of_any_loader(start_method: Any) -> None:
    chance = random.Random(7)
    with WorkerPool(2, start_method=start_method) as pool:
        loaders = [DataLoader(Rows(400), batch_size=4, pool=pool) for _ in range(3)]
        for _ in range(3):
            found: list[list[Any]] = [[], [], []]
            batches = [iter(loader) for loader in loaders]
            left = [0, 1, 2]
            while left:
                which = chance.choice(left)
                batch = next(batches[which], None)
                if batch is None:
                    left.remove(which)
                else:
                    found[which].append(batch)
                if chance.random() < 0.03:
                    kill_one(chance.choice(pool.pids))
            for each in found:
                whole(each, 400, 4)


def test_06_batches_are_the_same_after_deaths(tmp_path: Path) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 5, "shuffle": True}
    want = digest_of(DataLoader(Augmented(), num_workers=2, **options))
    with WorkerPool(2) as pool:
        dataset = Augmented(once=str(tmp_path / "once"), kill_at=17)
        loaders = [DataLoader(each, pool=pool, **options) for each in (dataset, Augmented())]
        both = list(zip(*loaders))
    assert [digest_of([pair[k] for pair in both]) for k in range(2)] == [want, want]


def test_04_death_is_reported_by_the_loader_of_its_batch(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    caplog.set_level(logging.WARNING, "reader")
    with WorkerPool(2) as pool:
        killer = Killer({9}, once=str(tmp_path / "once"))
        loaders = [DataLoader(each, batch_size=4, pool=pool) for each in (killer, Rows(64))]
        for n, (left, right) in enumerate(zip(*loaders)):
            check_rows(left, range(4 * n, 4 * n + 4))
            check_rows(right, range(4 * n, 4 * n + 4))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1
    assert "SIGKILL" in told[0]


def test_04_loader_whose_batch_kills_each_worker_fails_alone() -> None:
    with WorkerPool(2) as pool:
        bad = DataLoader(Killer({5}, count=16), batch_size=4, pool=pool)
        good = DataLoader(Rows(64), batch_size=4, pool=pool)
        others = iter(good)
        found = [next(others)]
        batches = iter(bad)
        check_rows(next(batches), range(4))
        with pytest.raises(WorkerDied, match="batch 1"):
            next(batches)
        rest = list(batches)
        assert len(rest) == 2
        whole([*found, *others], 64, 4)


def test_04_hung_sample_costs_its_own_loader_that_sample(gate: Wire, says: Wire) -> None:
    with WorkerPool(1) as pool:
        stuck = Stuck(5, says.path, gate.path, count=16)
        bad = DataLoader(
            stuck, batch_size=4, pool=pool, hang_after=0.5, on_error="replace", error_budget=1
        )
        good = DataLoader(PidRows(64), batch_size=4, pool=pool)
        others, batches = iter(good), iter(bad)
        found = [next(others)]
        assert len(list(batches)) == 4
        assert [error.index for error in bad.errors] == [5]
        whole([*found, *others], 64, 4)


@pytest.mark.parametrize("takes", [0, 1])
def test_04_hung_sample_ends_while_another_loader_is_waited_for(
    gate: Wire, says: Wire, takes: int
) -> None:
    """The loop waits for `good`, whose workers are held up by `bad`: nobody waits for `bad`."""
    with WorkerPool(1) as pool:
        stuck = Stuck(5, says.path, gate.path, count=16)
        bad = DataLoader(
            stuck, batch_size=4, pool=pool, hang_after=0.5, on_error="replace", error_budget=1
        )
        good = DataLoader(PidRows(64), batch_size=4, pool=pool, warn_after=None)
        batches = iter(bad)
        found = [next(batches) for _ in range(takes)]
        whole(list(good), 64, 4)
        assert len([*found, *batches]) == 4
        assert [error.index for error in bad.errors] == [5]


def test_09_worker_that_is_busy_for_a_loader_that_is_closed_is_interrupted_and_goes_on(
    says: Wire, gate: Wire
) -> None:
    with WorkerPool(1) as pool:
        stuck = DataLoader(Stuck(0, says.path, gate.path), batch_size=4, pool=pool)
        good = DataLoader(PidRows(64), batch_size=4, pool=pool)
        others = iter(good)
        found = [next(others)]
        batches = iter(stuck)
        pid = int(says.hear())
        stuck.close(grace=0)
        whole([*found, *others], 64, 4)
        del batches
        assert pool.pids == [pid]


class Hangs(Rows):
    """Rows; whoever does `what` writes its pid to one FIFO and blocks on another."""

    def __init__(self, what: str, says: str, hears: str) -> None:
        super().__init__(8)
        self.what = what
        self.says = says
        self.hears = hears
        self.trainer = os.getpid()

    def hang(self, what: str) -> None:
        if what == self.what and os.getpid() != self.trainer:
            tell(self.says, str(os.getpid()))
            listen(self.hears)

    def init(self, _: int) -> None:
        self.hang("init")

    def set_epoch(self, _: int) -> None:
        self.hang("epoch")

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.hang("unpickle")

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        self.hang("sample")
        return super().__getitem__(index)


@pytest.mark.parametrize("what", ["init", "epoch", "unpickle", "sample"])
def test_09_worker_that_hangs_in_any_code_of_a_loader_is_interrupted_with_it(
    what: str, says: Wire, gate: Wire
) -> None:
    with WorkerPool(1) as pool:
        good = DataLoader(PidRows(64), batch_size=4, pool=pool)
        others = iter(good)
        found = [next(others)]
        hangs = Hangs(what, says.path, gate.path)
        stuck = DataLoader(hangs, batch_size=4, pool=pool, worker_init_fn=hangs.init)
        batches = iter(stuck)
        says.hear()
        del batches  # no loader takes them any more
        stuck.close(grace=0)
        whole([*found, *others], 64, 4)


def test_damage_of_shared_memory_costs_no_batch_of_any_loader() -> None:
    done = os.memfd_create("done")
    with WorkerPool(2) as pool:
        options: dict[str, Any] = {"batch_size": 4, "pool": pool, "worker_retries": 3}
        loaders = [DataLoader(each, **options) for each in (Overwrites(done), Rows(40))]
        both = list(zip(*loaders))
        whole([right for _, right in both], 40, 4)
        found = [int(value) for left, _ in both for value in left[:, 0]]
        whole(list(loaders[1]), 40, 4)
    os.close(done)
    assert found == list(range(40))


def test_timeout_is_raised_while_the_worker_is_busy_for_another_loader(
    says: Wire, gate: Wire
) -> None:
    with WorkerPool(1) as pool:
        stuck = DataLoader(Stuck(0, says.path, gate.path, count=8), batch_size=4, pool=pool)
        good = DataLoader(Rows(8), batch_size=4, pool=pool, timeout=0.3)
        held = iter(stuck)
        says.hear()
        others = iter(good)
        with pytest.raises(LoadTimeout):
            next(others)
        gate.say()
        whole(list(others), 8, 4)
        whole(list(held), 8, 4)


def test_loaders_share_a_pool_from_their_own_threads() -> None:
    with WorkerPool(2) as pool:
        loaders = [DataLoader(Rows(400), batch_size=4, pool=pool) for _ in range(4)]
        found: dict[int, list[Any]] = {}

        def run(k: int) -> None:
            found[k] = [batch for _ in range(3) for batch in list(loaders[k])]

        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for _ in range(3):
            for pid in pool.pids:
                kill_one(pid)
        for thread in threads:
            thread.join()
    for k in range(4):
        for n in range(3):
            whole(found[k][100 * n : 100 * n + 100], 400, 4)


def test_loader_that_begins_while_another_thread_closes_the_pool_has_workers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened = SharedProcesses.open

    def open_and_close(self: SharedProcesses, *args: Any) -> None:
        opened(self, *args)
        closer = threading.Thread(target=pool.close)
        closer.start()
        closer.join()

    with WorkerPool(2) as pool:
        loader = DataLoader(PidRows(16), batch_size=4, pool=pool)
        monkeypatch.setattr(SharedProcesses, "open", open_and_close)
        whole(list(loader), 16, 4)
        assert len(pool.pids) == 2


def test_04_worker_that_does_not_accept_new_loaders_is_named(
    monkeypatch: pytest.MonkeyPatch, says: Wire, gate: Wire
) -> None:
    monkeypatch.setattr(shared_process, "_PATIENCE_S", 0.1)
    with WorkerPool(1) as pool:
        slow = DataLoader(Stuck(0, says.path, gate.path, count=8), batch_size=4, pool=pool)
        loaders = [DataLoader(Rows(8), batch_size=4, pool=pool) for _ in range(3)]
        held = iter(slow)
        says.hear()
        with pytest.raises(ReaderError, match="worker 0 of a WorkerPool has been at a batch for"):
            for n in range(3000):
                next_one = iter(loaders[n % 3])
                loaders[n % 3].close()
        gate.say()
        whole(list(held), 8, 4)
        for loader in loaders:
            whole(list(loader), 8, 4)
        del next_one


def test_forked_trainer_has_workers_of_its_own() -> None:
    with WorkerPool(2) as pool:
        loader = DataLoader(PidRows(16), batch_size=4, pool=pool)
        list(loader)
        before = set(pool.pids)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:  # pragma: no cover  it leaves at once
            code = 1
            try:
                pids = {int(pid) for batch in loader for pid in batch[2]}
                while pids < set(pool.pids):  # one of them may make all batches of an epoch
                    pids |= {int(pid) for batch in loader for pid in batch[2]}
                code = 0 if pids == set(pool.pids) and not pids & before else 2
                pool.close()
            finally:
                os._exit(code)
        os.close(read)
        os.close(write)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        whole(list(loader), 16, 4)
        assert set(pool.pids) == before


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGKILL, None])
def test_08_a_program_that_ends_leaves_nothing(
    signum: int | None, program: Callable[..., Program]
) -> None:
    text = """
    import sys
    from reader import DataLoader, WorkerPool
    from tests.datasets import Rows

    pool = WorkerPool(2)
    loaders = [DataLoader(Rows(4000), batch_size=4, pool=pool) for _ in range(2)]
    batches = [iter(loader) for loader in loaders]
    print(*[len(next(each)) for each in batches], *pool.pids, flush=True)
    if sys.argv[1] == "waits":
        while True:
            for each in batches:
                next(each, None)
    """
    running = program(text, "waits" if signum else "ends")
    pidfds = [open_pid(int(pid)) for pid in running.line().split()[2:]]
    if signum:
        running.process.send_signal(signum)
    code = running.finish()[0]
    wait_gone(pidfds)
    assert code == (-signum if signum else 0)
