"""Systems that refuse a call of a loader: it works without, or names the call to allow (2.8)."""

from __future__ import annotations

import errno
import subprocess
import sys
from collections.abc import Callable

import pytest

from tests.processes import ROOT, Program

KINDS = """
    import sys
    from reader import DataLoader
    from tests.datasets import Rows, check_rows
    from tests.sandbox import forbid

    KINDS = {
        "0": {"num_workers": 0},
        "thread": {"num_workers": 2, "worker_type": "thread"},
        "fork": {"num_workers": 2, "start_method": "fork"},
        "spawn": {"num_workers": 1, "start_method": "spawn"},
        "template": {"num_workers": 2, "start_method": "spawn"},
    }

    def run():
        for kind, options in KINDS.items():
            try:
                print(kind, len(list(DataLoader(Rows(8), batch_size=2, **options))), flush=True)
            except Exception as error:
                print(kind, f"{type(error).__name__}: {error}", flush=True)

    if __name__ == "__main__":
        if len(sys.argv) > 1:
            forbid(int(sys.argv[1]), *sys.argv[2:])
        run()
"""
ALL = ["0 4", "thread 4", "fork 4", "spawn 4", "template 4"]


@pytest.fixture(scope="module", autouse=True)
def _needs_filters() -> None:
    program = "from tests.sandbox import forbid; forbid(1, 'kill')"
    if subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True).returncode:
        pytest.skip("this system takes no seccomp filter")


@pytest.mark.alone
def test_08_every_kind_of_worker_works_without_proc(program: Callable[..., Program]) -> None:
    mounts = ("unshare", "-m")
    if subprocess.run([*mounts, "true"], capture_output=True).returncode:
        pytest.skip("this system gives a program no mount namespace of its own")
    shell = 'mount -t tmpfs none /proc && exec "$@"'
    trainer = program(KINDS, wrapper=(*mounts, "sh", "-c", shell, "sh"))
    status, out, err = trainer.finish()
    assert (status, out.splitlines(), err) == (0, ALL, "")


@pytest.mark.sampled(3)
@pytest.mark.parametrize("call", ["seal", "pidfd_send_signal"])
@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS])
def test_08_works_without_sealing_and_signals_to_pidfds(
    program: Callable[..., Program], call: str, number: int
) -> None:
    status, out, err = program(KINDS, str(number), call).finish()
    assert (status, out.splitlines(), err) == (0, ALL, "")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("call", ["memfd_create", "eventfd2", "pidfd_open"])
@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EPERM, "seccomp profile"),
        (errno.EACCES, "seccomp profile"),
        (errno.ENOSYS, "Linux 5.9"),
        (errno.EMFILE, "ulimit -n"),
        (errno.ENFILE, "fs.file-max"),
    ],
)
def test_08_a_refused_call_is_named_with_the_limit_behind_it(
    program: Callable[..., Program], call: str, number: int, remedy: str
) -> None:
    status, out, err = program(KINDS, str(number), call).finish()
    assert (status, err) == (0, "")
    lines = out.splitlines()
    assert len(lines) == len(ALL)
    for line, works in zip(lines, ALL):
        if line == works:
            # without workers a loader asks the system for memory alone
            assert line == "0 4" or (call == "pidfd_open" and line == "thread 4"), line
        else:
            assert "ReaderError: " in line, line
            assert remedy in line
            assert "ulimit -u" not in line


STUCK = """
    import logging, os, sys, time
    from reader import DataLoader
    from tests.datasets import Calls
    from tests.sandbox import forbid

    def sample(index):
        if index:
            open(sys.argv[1], "w").close()
            time.sleep(1000)
        return index

    if __name__ == "__main__":
        logging.basicConfig(format="%(message)s")
        forbid(1, *sys.argv[2].split(","))
        loader = DataLoader(Calls(sample, 4), batch_size=1, num_workers=1, prefetch_factor=2)
        batches = iter(loader)
        next(batches)
        while not os.path.exists(sys.argv[1]):
            time.sleep(0.01)
        (worker,) = loader.workers()
        before = time.monotonic()
        loader.close(grace=0)
        assert time.monotonic() - before < 5
        try:
            os.kill(worker.pid, 0)
            print("runs", worker.pid)
        except ProcessLookupError:
            print("ended", worker.pid)
        except PermissionError:
            print("runs", worker.pid)
"""


def test_08_a_busy_worker_is_ended_where_signals_to_pidfds_are_refused(
    program: Callable[..., Program], tmp_path: object
) -> None:
    status, out, err = program(STUCK, f"{tmp_path}/busy", "pidfd_send_signal").finish()
    assert (status, out.split()[0], err) == (0, "ended", "")


def test_08_a_worker_that_no_signal_reaches_is_named_and_the_program_ends(
    program: Callable[..., Program], tmp_path: object
) -> None:
    status, out, err = program(STUCK, f"{tmp_path}/busy", "pidfd_send_signal,kill").finish()
    assert (status, out.split()[0]) == (0, "runs")
    assert f"worker processes [{out.split()[1]}] still run" in err
    assert "allow pidfd_send_signal or kill" in err
    assert "Traceback" not in err


DAMAGING = """
    import ctypes, logging, os, sys, time
    from reader import DataLoader
    from tests.datasets import Calls
    from tests.sandbox import forbid
    from tests.fuzz.scribbler import arena_at

    def sample(index):
        if index == 5 and not os.path.exists(sys.argv[1]):
            open(sys.argv[1], "w").close()
            ctypes.memset(arena_at()[0], 90, 8)
            time.sleep(1)
        return index

    if __name__ == "__main__":
        logging.basicConfig(format="%(message)s")
        forbid(1, *sys.argv[2].split(","))
        options = {"num_workers": 2, "worker_retries": 2, "start_method": "fork"}
        with DataLoader(Calls(sample, 12), batch_size=1, **options) as loader:
            print([int(batch[0]) for batch in loader])
"""


@pytest.mark.parametrize("calls", ["pidfd_send_signal", "pidfd_send_signal,kill"])
def test_08_workers_of_a_damaged_arena_are_replaced_where_signals_are_refused(
    program: Callable[..., Program], tmp_path: object, calls: str
) -> None:
    status, out, err = program(DAMAGING, f"{tmp_path}/damaged", calls).finish()
    assert (status, out.strip()) == (0, str(list(range(12)))), err
    assert "the header of the arena is not as the trainer wrote it" in err
