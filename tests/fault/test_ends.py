"""How the sample that a worker is making ends, when a loop is left early (2.3)."""

from __future__ import annotations

import contextlib
import ctypes
import os
import platform
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import reader
from reader import ConfigError, ConfigTypeError, DataLoader, WorkerPool
from reader.engine.backends import pool as pools
from reader.processes import pool_registry
from tests.datasets import Writes, WritesStream, listen, tell
from tests.processes import Program, Wire, open_pid, wait_gone, wait_until

Start = Callable[..., Program]
AT, COUNT = Writes.at, Writes.count
FUTEX = 98 if platform.machine() == "aarch64" else 202  # numbers of the system call


class Swallows(Writes):
    """A sample that nothing interrupts."""

    def __getitem__(self, index: int) -> int:
        if index == AT:
            has_told = False
            while True:
                with contextlib.suppress(BaseException):
                    if not has_told:
                        has_told = True
                        tell(self.says, str(os.getpid()))
                    listen(self.hears)
        return index


class InC(Writes):
    """A sample in C code that holds the GIL."""

    def __getitem__(self, index: int) -> int:
        if index == AT:
            tell(self.says, str(os.getpid()))
            library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
            library.pthread_mutex_lock(mutex)
            library.pthread_mutex_lock(mutex)  # for ever; signals do not end it
        return index


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    found = tmp_path / "cache"
    found.mkdir()
    return found


def files(folder: Path) -> list[str]:
    """Return which files of sample AT exist: "lock", "part" and "npy"."""
    return sorted(path.suffix[1:] for path in folder.iterdir() if path.name.startswith(f"{AT}."))


def begun(dataset: Any, says: Wire, **options: Any) -> tuple[DataLoader, Any, int]:
    """An epoch whose only worker is at sample AT, and the pid of that."""
    loader = DataLoader(dataset, batch_size=4, num_workers=1, **options)
    batches = iter(loader)
    next(batches)
    return loader, batches, int(says.hear())


def leave(way: str, loader: DataLoader, batches: Any) -> None:
    if way == "iterator closed":
        batches.close()
    elif way == "loader closed soon":
        loader._engine._cache.close_soon()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("way", ["dropped", "iterator closed"])
def test_03_worker_finishes_its_sample_when_the_loop_is_left(
    folder: Path, says: Wire, gate: Wire, way: str, method: str
) -> None:
    loader, batches, pid = begun(
        Writes(str(folder), says.path, gate.path), says, start_method=method
    )
    worker = open_pid(pid)
    leave(way, loader, batches)
    del batches
    gate.say()
    wait_gone([worker])
    assert files(folder) == ["npy"]
    assert not (folder / f"{AT + 1}.npy").exists()  # the sample is finished, and not the batch


def test_03_break_does_not_wait_for_the_sample_and_the_next_epoch_begins_beside_it(
    folder: Path, says: Wire, gate: Wire
) -> None:
    loader = DataLoader(Writes(str(folder), says.path, gate.path), batch_size=4, num_workers=1)
    for _ in loader:
        says.hear()
        break
    batches = iter(loader)  # the sample of the first epoch waits for the test all along
    next(batches)
    says.hear()
    gate.say(2)
    assert len(list(batches)) == COUNT // 4 - 1
    loader.close()
    assert files(folder) == ["npy"]


def test_03_persistent_worker_finishes_its_sample_and_serves_the_next_epoch(
    folder: Path, says: Wire, gate: Wire
) -> None:
    loader, batches, pid = begun(
        Writes(str(folder), says.path, gate.path), says, persistent_workers=True
    )
    batches.close()
    gate.say(2)
    assert len(list(loader)) == COUNT // 4
    assert [status.pid for status in loader.workers()] == [pid]
    loader.close()
    assert files(folder) == ["npy"]


def test_03_sample_of_a_stream_is_finished_and_its_generator_closed(
    folder: Path, says: Wire, gate: Wire
) -> None:
    _, batches, pid = begun(WritesStream(str(folder), says.path, gate.path), says)
    worker = open_pid(pid)
    del batches
    gate.say()
    wait_gone([worker])
    assert files(folder) == ["npy"]
    assert (folder / "over").exists()
    assert not (folder / f"{AT + 1}.npy").exists()


@pytest.fixture
def endless(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample waits for ever: if it ends, it was interrupted."""
    monkeypatch.setattr(pools, "GRACE_S", 1e6)


@pytest.mark.usefixtures("endless")
@pytest.mark.parametrize("kind", [Writes, WritesStream])
def test_03_exception_that_leaves_the_loop_interrupts_the_sample(
    folder: Path, says: Wire, gate: Wire, capfd: pytest.CaptureFixture[str], kind: type[Writes]
) -> None:
    loader = DataLoader(kind(str(folder), says.path, gate.path), batch_size=4, num_workers=1)
    worker = None
    with pytest.raises(LookupError, match="mine"):
        for _ in enumerate(loader):
            worker = open_pid(int(says.hear()))
            raise LookupError("mine")
    wait_gone([worker])
    assert files(folder) == ["part"]  # cut off, and its `finally` has run
    assert (kind is WritesStream) == (folder / "over").exists()
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("endless")
def test_03_exception_that_ends_a_with_block_interrupts_the_sample(
    folder: Path, says: Wire, gate: Wire
) -> None:
    worker = None
    with (
        pytest.raises(LookupError),
        DataLoader(
            Writes(str(folder), says.path, gate.path), batch_size=4, num_workers=1
        ) as loader,
    ):
        batches = iter(loader)
        next(batches)
        worker = open_pid(int(says.hear()))
        raise LookupError
    wait_gone([worker])
    assert files(folder) == ["part"]


def test_03_sample_that_takes_longer_than_its_grace_is_interrupted(
    folder: Path,
    says: Wire,
    gate: Wire,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(pools, "GRACE_S", 0.05)
    _, batches, pid = begun(Writes(str(folder), says.path, gate.path), says)
    worker = open_pid(pid)
    del batches
    wait_gone([worker])
    assert files(folder) == ["part"]
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("kind", [Swallows, InC])
def test_03_sample_that_cannot_be_interrupted_is_killed(
    folder: Path, says: Wire, gate: Wire, kind: type[Writes]
) -> None:
    loader, batches, pid = begun(kind(str(folder), says.path, gate.path), says)
    worker = open_pid(pid)
    handle = batches.epoch.backend.handles[0]
    if kind is InC:  # a signal before that interrupts Python
        wait_until(lambda: Path(f"/proc/{pid}/syscall").read_text().startswith(f"{FUTEX} "))
    loader.close(grace=0)
    wait_gone([worker])
    assert handle.exitcode == -signal.SIGKILL


def test_03_close_waits_until_the_sample_is_finished(folder: Path, says: Wire, gate: Wire) -> None:
    loader, _, pid = begun(Writes(str(folder), says.path, gate.path), says)
    gate.say()
    loader.close()
    assert open_pid(pid) is None
    assert files(folder) == ["npy"]


@pytest.mark.usefixtures("endless")
def test_03_close_cuts_the_grace_of_workers_of_abandoned_loops(
    folder: Path, says: Wire, gate: Wire
) -> None:
    loader, batches, pid = begun(Writes(str(folder), says.path, gate.path), says)
    del batches
    loader.close(grace=0)
    assert open_pid(pid) is None
    assert files(folder) == ["part"]


@pytest.mark.parametrize("make", [lambda: DataLoader([1]), lambda: WorkerPool(1)])
def test_grace_must_be_a_time(make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=r"grace must be a number of seconds in \[0, 1e\+09\]"):
        make().close(grace=-1)
    with pytest.raises(ConfigTypeError, match="0 interrupts the samples that workers are at"):
        make().close(grace="5")


def test_03_loops_abandoned_one_after_the_other_keep_a_few_pools_at_most(
    folder: Path, says: Wire, gate: Wire, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pools, "GRACE_S", 0.3)
    loader = DataLoader(Writes(str(folder), says.path, gate.path), batch_size=4, num_workers=1)
    for _ in range(12):
        for _ in loader:
            says.hear()
            break
        closing = [pool for pool in pool_registry.snapshot() if pool.is_closing]
        assert len(closing) <= pool_registry._MOST_CLOSING + 1


# ---- workers that several loaders share ----------------------------------------------------------


@pytest.mark.parametrize("grace", [0, None])
def test_03_loader_that_leaves_a_pool_ends_its_sample_and_no_worker(
    folder: Path, says: Wire, gate: Wire, grace: float | None
) -> None:
    with WorkerPool(1) as pool:
        left = DataLoader(Writes(str(folder), says.path, gate.path), batch_size=4, pool=pool)
        other = DataLoader(list(range(12)), batch_size=4, pool=pool)
        beside = iter(other)
        first = next(beside).tolist()
        batches = iter(left)
        next(batches)
        says.hear()
        (pid,) = pool.pids
        if grace is None:
            gate.say()
        left.close(grace=grace)
        assert files(folder) == ["part" if grace == 0 else "npy"]
        assert first + [n for batch in beside for n in batch.tolist()] == list(range(12))
        assert pool.pids == [pid]
        del batches


def test_03_shared_worker_that_cannot_be_interrupted_is_replaced_for_the_other_loader(
    folder: Path, says: Wire, gate: Wire
) -> None:
    with WorkerPool(1) as pool:
        left = DataLoader(Swallows(str(folder), says.path, gate.path), batch_size=4, pool=pool)
        other = DataLoader(list(range(12)), batch_size=4, pool=pool)
        beside = iter(other)
        first = next(beside).tolist()
        batches = iter(left)
        next(batches)
        says.hear()
        left.close(grace=0)
        assert first + [n for batch in beside for n in batch.tolist()] == list(range(12))
        del batches


@pytest.mark.usefixtures("endless")
def test_03_closing_a_pool_without_grace_interrupts_the_samples_of_its_loaders(
    folder: Path, says: Wire, gate: Wire
) -> None:
    pool = WorkerPool(1)
    loader = DataLoader(Writes(str(folder), says.path, gate.path), batch_size=4, pool=pool)
    batches = iter(loader)
    next(batches)
    pid = int(says.hear())
    pool.close(grace=0)
    assert open_pid(pid) is None
    assert files(folder) == ["part"]
    del batches


# ---- threads -------------------------------------------------------------------------------------


def test_03_worker_thread_finishes_its_sample(folder: Path, says: Wire, gate: Wire) -> None:
    loader = DataLoader(
        Writes(str(folder), says.path, gate.path), batch_size=4, num_workers=1, worker_type="thread"
    )
    batches = iter(loader)
    next(batches)
    says.hear()
    loader.close(grace=0)  # nothing interrupts a thread
    assert files(folder) == ["lock", "part"]
    gate.say()
    wait_until(lambda: files(folder) == ["npy"])
    del batches


# ---- the end of the program, and Ctrl-C ----------------------------------------------------------

PROGRAM = """
    import os, signal, sys
    from reader import DataLoader
    from tests.datasets import Writes, listen

    METHOD, WAY, FOLDER, SAYS, HEARS, GO = sys.argv[1:]

    def main():
        loader = DataLoader(Writes(FOLDER, SAYS, HEARS), batch_size=4, num_workers=1,
                            start_method=METHOD)
        if WAY == "kept":
            global batches
            batches = iter(loader)
            next(batches)
            listen(GO)
            return
        for batch in loader:
            listen(GO)
            if WAY == "exit":
                sys.exit(3)
            if WAY == "break":
                break

    if __name__ == "__main__":
        main()
"""


@pytest.mark.parametrize(
    ("way", "method", "status"),
    [("exit", "fork", 3), ("break", "spawn", 0), ("kept", "forkserver", 0)],
)
def test_03_program_that_ends_interrupts_the_sample_and_says_nothing(
    program: Start,
    folder: Path,
    says: Wire,
    gate: Wire,
    make_wire: Callable[[], Wire],
    way: str,
    method: str,
    status: int,
) -> None:
    go = make_wire()
    trainer = program(PROGRAM, method, way, str(folder), says.path, gate.path, go.path)
    worker = open_pid(int(says.hear()))
    go.say()
    assert trainer.finish() == (status, "", "")
    wait_gone([worker])
    assert files(folder) == ["part"]


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_03_ctrl_c_interrupts_the_sample_and_runs_its_finally(
    program: Start, folder: Path, says: Wire, gate: Wire, method: str
) -> None:
    trainer = program(PROGRAM, method, "none", str(folder), says.path, gate.path, gate.path)
    worker = open_pid(int(says.hear()))
    trainer.interrupt(signal.SIGINT)
    status, out, err = trainer.finish()
    wait_gone([worker])
    assert (status, out) == (-signal.SIGINT, "")
    assert err.count("Traceback") == 1, err
    assert files(folder) == ["part"]


# ---- programs that workers start -----------------------------------------------------------------

CHILDREN = """
    import subprocess, sys, threading
    from reader import DataLoader, WorkerPool
    from tests.datasets import tell

    METHOD, KIND, WORKERS, SAYS = sys.argv[1:]

    class Runs:
        def __len__(self):
            return 8

        def __getitem__(self, index):
            if index >= int(WORKERS):  # what a worker is at when the first program has ended
                threading.Event().wait()
            with subprocess.Popen(["sleep", "1000"]) as child:
                try:
                    tell(SAYS, str(child.pid))
                    child.wait()
                finally:
                    child.kill()
            return index

    if __name__ == "__main__":
        if KIND == "shared":
            options = {"pool": WorkerPool(int(WORKERS), start_method=METHOD)}
        else:
            options = {"num_workers": int(WORKERS), "start_method": METHOD}
        for batch in DataLoader(Runs(), batch_size=1, **options):
            pass
"""


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [1, 2])  # two are forked by a template, where there is one
@pytest.mark.parametrize("kind", ["own", "shared"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_03_ctrl_c_ends_the_programs_that_workers_started(
    program: Start, says: Wire, method: str, kind: str, workers: int
) -> None:
    trainer = program(CHILDREN, method, kind, str(workers), says.path)
    children = [open_pid(int(says.hear())) for _ in range(workers)]
    trainer.interrupt(signal.SIGINT)
    wait_gone(children)
    status, out, err = trainer.finish()
    assert (status, out) == (-signal.SIGINT, "")
    assert err.count("Traceback") == 1, err


class Dispositions:
    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> tuple[bool, int]:
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        return signal.getsignal(signal.SIGINT) is signal.SIG_IGN, len(blocked)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_workers_ignore_ctrl_c_and_show_that_handler(method: str) -> None:
    with DataLoader(Dispositions(), batch_size=1, num_workers=2, start_method=method) as loader:
        found = [[bool(value[0]) for value in batch] for batch in loader]
    assert found == [[True, False]] * 2


def test_the_public_close_documents_its_grace() -> None:
    for each in (reader.DataLoader.close, reader.WorkerPool.close):
        assert "grace: seconds" in (each.__doc__ or "")
