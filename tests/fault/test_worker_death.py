"""Workers that die: nothing is lost, or the loss is reported (DESIGN 2.1, 2.3, 2.4)."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, LoadTimeout, WorkerDied
from tests.datasets import (
    At,
    Augmented,
    HugeOnce,
    Killer,
    PidRows,
    Rows,
    Stuck,
    check_rows,
    digest_of,
)
from tests.processes import BOUND_S, Wire, kill_and_wait, patiently, wait_until


def whole(batches: list[Any], count: int, batch_size: int) -> None:
    assert len(batches) == -(-count // batch_size)
    for n, batch in enumerate(batches):
        check_rows(batch, range(n * batch_size, min(count, (n + 1) * batch_size)))


@pytest.mark.parametrize("workers", [1, 2])
def test_01_worker_killed_while_idle_costs_no_batch(workers: int) -> None:
    with DataLoader(
        PidRows(32), batch_size=4, num_workers=workers, persistent_workers=True
    ) as loader:
        for _ in range(3):
            batches = list(loader)
            whole(batches, 32, 4)
            for pid in {int(batch[2][0]) for batch in batches}:
                kill_and_wait(pid)
        whole(list(loader), 32, 4)


@pytest.mark.parametrize("start_method", ["fork", "spawn", "forkserver"])
def test_01_batch_of_a_worker_killed_while_fetching_is_made_by_another(
    start_method: str, says: Wire, gate: Wire, tmp_path: Path
) -> None:
    dataset = Stuck(9, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=2, start_method=start_method) as loader:
        batches = iter(loader)
        found = [next(batches)]
        kill_and_wait(int(says.hear()))
        found += batches
    whole(found, 64, 4)


def test_01_worker_killed_while_it_copies_into_a_slot_costs_no_batch(
    says: Wire, tmp_path: Path
) -> None:
    nbytes = 96 << 20
    dataset = HugeOnce(3, says.path, str(tmp_path / "once"), nbytes)
    with DataLoader(dataset, batch_size=2, num_workers=1, prefetch_factor=1) as loader:
        killer = threading.Thread(target=lambda: kill_and_wait(int(says.hear())))
        killer.start()
        count = 0
        for batch in loader:
            assert batch.shape == (2, nbytes)
            assert batch[:, ::4096].all()
            assert batch[:, -1].all()
            count += 1
            del batch
        killer.join()
        assert count == 4


def test_01_every_batch_arrives_though_each_worker_dies_again_and_again(tmp_path: Path) -> None:
    dataset = Killer(set(range(0, 64, 4)), once=str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=2, worker_retries=1) as loader:
        whole(list(loader), 64, 4)


def test_01_all_workers_killed_at_once_while_the_trainer_is_busy_costs_no_batch() -> None:
    with DataLoader(PidRows(64), batch_size=4, num_workers=3, worker_retries=5) as loader:
        batches = iter(loader)
        found = [next(batches)]
        pids = [worker.pid for worker in loader.workers()]
        assert len(pids) == 3
        for pid in pids:
            kill_and_wait(pid)
        found += batches
    whole(found, 64, 4)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_01_poison_sample_is_reported_in_its_place_and_the_rest_arrives(
    workers: int, retries: int
) -> None:
    got: list[Any] = []
    died: list[WorkerDied] = []
    with DataLoader(
        Killer({13}, count=32),
        batch_size=4,
        num_workers=workers,
        worker_retries=retries,
        persistent_workers=True,
    ) as loader:
        for epoch in range(2):
            batches = iter(loader)
            for n in range(8):
                if n != 3:
                    check_rows(next(batches), range(4 * n, 4 * n + 4))
                    continue
                with pytest.raises(WorkerDied, match=rf"batch 3 of epoch {epoch}.*SIGKILL") as info:
                    got.append(next(batches))
                died.append(info.value)
            with pytest.raises(StopIteration):
                next(batches)
    assert not got
    for epoch, error in enumerate(died):
        assert error.signal_name == "SIGKILL"
        assert error.exitcode == -signal.SIGKILL
        assert error.pid
        assert error.pid != os.getpid()
        assert error.batch == 3
        assert error.epoch == epoch
        assert error.indices == [12, 13, 14, 15]
        assert error.worker_id in range(workers)
        assert "12, 13, 14, 15" in str(error)


def test_01_two_poison_samples_are_both_reported_and_nothing_else_is_lost() -> None:
    seen: list[int | None] = []
    with DataLoader(Killer({0, 63}), batch_size=4, num_workers=2, worker_retries=0) as loader:
        batches = iter(loader)
        for n in range(16):
            try:
                check_rows(next(batches), range(4 * n, 4 * n + 4))
            except WorkerDied as error:
                seen.append(error.batch)
    assert seen == [0, 15]


def test_worker_that_ends_itself_is_reported_with_its_exit_code() -> None:
    dataset = Killer({5}, exitcode=37, count=8)
    with DataLoader(dataset, batch_size=4, num_workers=1, worker_retries=0) as loader:
        batches = iter(loader)
        check_rows(next(batches), range(4))
        with pytest.raises(WorkerDied, match="exit code 37") as info:
            next(batches)
    assert info.value.exitcode == 37
    assert info.value.signal_name is None


@pytest.mark.parametrize("signum", [signal.SIGSEGV, signal.SIGABRT, signal.SIGBUS, signal.SIGTERM])
def test_signal_that_ended_a_worker_is_named(signum: signal.Signals) -> None:
    dataset = Killer({1}, signum=signum, count=4)
    with (
        DataLoader(dataset, batch_size=4, num_workers=1, worker_retries=0) as loader,
        pytest.raises(WorkerDied, match=signum.name) as info,
    ):
        list(loader)
    assert info.value.signal_name == signum.name


def test_dead_worker_is_logged_and_not_printed(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with caplog.at_level(logging.WARNING, "reader"):
        dataset = Killer({5}, once=str(tmp_path / "once"), count=8)
        with DataLoader(dataset, batch_size=4, num_workers=2) as loader:
            whole(list(loader), 8, 4)
    assert "SIGKILL" in caplog.text
    out, err = capfd.readouterr()
    assert (out, err) == ("", "")


def test_06_batches_are_the_same_after_a_worker_was_killed(tmp_path: Path) -> None:
    with DataLoader(Augmented(), batch_size=4, num_workers=2, seed=7, shuffle=True) as loader:
        wanted = digest_of(list(loader)), digest_of(list(loader))
    for kill_at in (0, 17, 39):
        dataset = Augmented(once=str(tmp_path / f"once{kill_at}"), kill_at=kill_at)
        with DataLoader(dataset, batch_size=4, num_workers=2, seed=7, shuffle=True) as loader:
            assert (digest_of(list(loader)), digest_of(list(loader))) == wanted
        assert os.path.exists(tmp_path / f"once{kill_at}")


def test_02_batches_of_a_killed_worker_stay_what_they_are() -> None:
    with DataLoader(PidRows(64), batch_size=4, num_workers=2, persistent_workers=True) as loader:
        batches = iter(loader)
        kept = [next(batches) for _ in range(3)]
        for pid in {int(batch[2][0]) for batch in kept}:
            kill_and_wait(pid)
        kept += batches
        kept_next = list(loader)
    whole(kept, 64, 4)
    whole(kept_next, 64, 4)


def test_slots_half_written_by_killed_workers_are_used_again(tmp_path: Path) -> None:
    with DataLoader(
        Killer({0, 9, 18, 27}, once=str(tmp_path / "once"), count=32),
        batch_size=4,
        num_workers=1,
        persistent_workers=True,
    ) as loader:
        for batch in loader:
            del batch
        for batch in loader:
            del batch
        assert loader.stats()["arena"]["writing_slots"] == 0
        assert loader.stats()["arena"]["held_slots"] == 0


def test_03_worker_killed_between_a_break_and_the_next_epoch() -> None:
    with DataLoader(PidRows(64), batch_size=4, num_workers=2, persistent_workers=True) as loader:
        for batch in loader:
            pid = int(batch[2][0])
            break
        kill_and_wait(pid)
        whole(list(loader), 64, 4)


def test_04_stopped_worker_is_named_by_the_timeout_and_close_ends_it() -> None:
    loader = DataLoader(PidRows(64), batch_size=4, num_workers=1, prefetch_factor=1, timeout=0.2)
    batches = iter(loader)
    pid = int(patiently(batches)[2][0])
    os.kill(pid, signal.SIGSTOP)
    try:
        with pytest.raises(LoadTimeout, match=f"pid {pid}"):
            for _ in range(64):
                next(batches)
    finally:
        loader.close()
    assert not os.path.exists(f"/proc/{pid}")


@pytest.mark.parametrize("action", ["ignore_term", "sleep_in_c"])
def test_03_close_kills_a_worker_that_ignores_signals(
    action: str, says: Wire, tmp_path: Path
) -> None:
    loader = DataLoader(
        At(5, {"ignore_term": IgnoreTerm, "sleep_in_c": SleepInC}[action](says.path)),
        batch_size=4,
        num_workers=1,
    )
    batches = iter(loader)
    check_rows(next(batches), range(4))
    pid = int(says.hear())
    loader.close()
    assert not os.path.exists(f"/proc/{pid}")


class IgnoreTerm:
    def __init__(self, says: str) -> None:
        self.says = says

    def __call__(self, _: int) -> None:
        from tests.datasets import tell

        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        tell(self.says, str(os.getpid()))
        threading.Event().wait()


class SleepInC(IgnoreTerm):
    def __call__(self, _: int) -> None:
        import ctypes

        from tests.datasets import tell

        tell(self.says, str(os.getpid()))
        ctypes.PyDLL(None).sleep(1000)


def test_worker_that_can_never_start_is_reported_and_does_not_loop() -> None:
    with (
        DataLoader(
            Rows(8), batch_size=4, num_workers=2, worker_init_fn=EndAtStart(), worker_retries=0
        ) as loader,
        pytest.raises(WorkerDied, match="exit code 9"),
    ):
        list(loader)


class EndAtStart:
    def __call__(self, worker_id: int) -> None:
        os._exit(9)


def test_one_worker_that_cannot_start_does_not_stop_the_others() -> None:
    with DataLoader(Rows(64), batch_size=4, num_workers=2, worker_init_fn=EndOne()) as loader:
        try:
            whole(list(loader), 64, 4)
        except WorkerDied as error:
            assert error.worker_id == 1  # noqa: PT017


class EndOne:
    def __call__(self, worker_id: int) -> None:
        if worker_id == 1:
            os._exit(9)


def test_worker_reaped_by_the_user_is_replaced() -> None:
    with DataLoader(PidRows(32), batch_size=4, num_workers=1, persistent_workers=True) as loader:
        pid = int(next(iter(loader))[2][0])
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        whole(list(loader), 32, 4)


def test_worker_with_a_child_of_its_own_ends_and_takes_it_along(tmp_path: Path) -> None:
    with DataLoader(ChildRows(16), batch_size=4, num_workers=2) as loader:
        whole(list(loader), 16, 4)


class ChildRows(Rows):
    """Runs a subprocess and forks for each sample."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        assert subprocess.run(["/bin/true"], check=True, timeout=BOUND_S).returncode == 0
        pid = os.fork()
        if pid == 0:
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
        return super().__getitem__(index)


def test_a_death_is_handled_after_ready_batches(says: Wire, gate: Wire, tmp_path: Path) -> None:
    dataset = Stuck(12, says.path, gate.path, str(tmp_path / "once"))
    with DataLoader(dataset, batch_size=4, num_workers=2, worker_retries=1) as loader:
        batches: Any = iter(loader)
        pid = int(says.hear())  # in batch 3, and those before it are made
        wait_until(lambda: loader.stats()["queued"] >= 3)
        kill_and_wait(pid)
        threading.Event().wait(0.1)  # the reader thread has seen it
        # a copy issued ahead asks for the next batch, and meets the notice
        assert batches.epoch._supervisor.poll() is None
        for n in range(16):
            check_rows(next(batches), range(4 * n, 4 * n + 4))
