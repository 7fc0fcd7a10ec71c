"""The ledger sees each kind of thing a test can leave behind, and nothing else.

Imports the ledger alone. Every leak made here is undone here.
"""

from __future__ import annotations

import mmap
import multiprocessing
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.ledger import Ledger, settle

# Dies with its last standard input, so that a failing test here leaves nothing either.
WAITER = "import sys; sys.stdin.read()"


def test_an_even_ledger_has_no_excess() -> None:
    assert settle(Ledger.take(), grace_s=0) == []


def test_a_descriptor_left_open_is_reported_with_its_target() -> None:
    before = Ledger.take()
    read, write = os.pipe()
    left = settle(before, grace_s=0)
    os.close(read)
    os.close(write)
    assert [line.split(":")[0] for line in left] == [
        f"descriptor {read} -> pipe",
        f"descriptor {write} -> pipe",
    ]


def test_a_memory_file_is_reported_by_descriptor_and_by_mapping() -> None:
    before = Ledger.take()
    memory = os.memfd_create("reader-test")
    os.ftruncate(memory, mmap.PAGESIZE)
    mapped = mmap.mmap(memory, mmap.PAGESIZE)
    mapped[0] = 1
    both = settle(before, grace_s=0)
    os.close(memory)
    mapping = [line for line in settle(before, grace_s=0) if line.startswith("mapping")]
    mapped.close()
    assert any(f"descriptor {memory} -> /memfd:reader-test" in line for line in both)
    assert len(mapping) == 1
    assert "/memfd:reader-test" in mapping[0]


def test_a_thread_is_reported_by_name() -> None:
    before = Ledger.take()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="left over")
    thread.start()
    left = settle(before, grace_s=0)
    stop.set()
    thread.join()
    assert len(left) == 1
    assert left[0].startswith("thread left over")


def test_an_object_that_ends_within_the_grace_is_no_leak() -> None:
    before = Ledger.take()
    threading.Timer(0.05, lambda: None).start()
    assert settle(before) == []


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_a_worker_is_reported_and_the_servers_of_multiprocessing_are_not(method: str) -> None:
    before = Ledger.take()
    context = multiprocessing.get_context(method)
    stop = context.Event()
    process = context.Process(target=stop.wait)
    process.start()
    pid = process.pid
    left = [line for line in settle(before, grace_s=0) if line.startswith("process")]
    stop.set()
    process.join()
    process.close()
    assert len(left) == 1
    assert left[0].startswith(f"process {pid} (")


def test_a_zombie_that_python_would_wait_for_is_reported() -> None:
    before = Ledger.take()
    with subprocess.Popen([sys.executable, "-c", "pass"]) as child:
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        left = settle(before, grace_s=0)
    assert any(f"process {child.pid} " in line and "state Z" in line for line in left)


def test_an_orphan_is_reported_while_it_lives_and_reaped_when_it_has_ended() -> None:
    before = Ledger.take()
    make_orphan = (
        "import subprocess, sys\n"
        f"child = subprocess.Popen([sys.executable, '-c', {WAITER!r}], stdin=0)\n"
        "print(child.pid)\n"
        "child.returncode = 0  # nobody waits for it: no warning about that"
    )
    with subprocess.Popen(
        [sys.executable, "-c", make_orphan], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        orphan = int(parent.stdout.readline())
        os.waitid(os.P_PID, parent.pid, os.WEXITED | os.WNOWAIT)
        left = settle(before, grace_s=0)
    assert any(line.startswith(f"process {orphan} ") for line in left)
    assert settle(before) == []


def test_the_cores_own_count_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    before = Ledger.take()

    class Arena:
        @staticmethod
        def ledger() -> dict[str, int]:
            return {"arenas": before.arenas + 1, "held_slots": before.held_slots + 2}

    monkeypatch.setitem(sys.modules, "reader._core.memory.arena", Arena)
    left = settle(before, grace_s=0)
    assert [line.split(":")[0] for line in left] == ["arenas", "held slots"]


def test_a_leaking_test_fails_and_a_failed_one_is_not_blamed_twice(tmp_path: Path) -> None:
    (tmp_path / "test_made_up.py").write_text(
        "import os\n"
        "def test_leaks(): os.pipe()\n"
        "def test_is_even(): pass\n"
        "def test_fails(seed):\n    os.pipe()\n    assert seed < 0\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-c", os.devnull]
    run = subprocess.run(
        [*command, "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 2 passed, 1 error" in run.stdout, run.stdout + run.stderr
    assert "left behind:\n  descriptor" in run.stdout.replace("E       ", "").replace("E   ", "")
    assert "READER_TEST_SEED=0" in run.stdout
