"""`python -m reader top`: loaders of a program that runs, seen from outside."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader.__main__ import main
from reader._core.memory.arena_view import ArenaHeader, header_of, heap_of, noted_place
from reader.observe.running import programs_with_loaders, watch_loaders
from reader.observe.top import show_top, table_of

ROOT = Path(__file__).parents[2]


class Numbers:
    def __init__(self, gate: Any = None) -> None:
        self.gate = gate

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        if self.gate is not None and index >= 32:
            os.read(self.gate, 1)
        return np.full(4, index, np.float32)


PROGRAM = """
import sys
import reader
from tests.contract.test_top import Numbers

if __name__ == "__main__":
    with reader.DataLoader(Numbers(), batch_size=4, num_workers=2) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        print("three", flush=True)
        sys.stdin.read()
"""


@pytest.fixture
def program(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """A program that has taken three batches, and holds the others."""
    (tmp_path / "train.py").write_text(PROGRAM)
    running = subprocess.Popen(
        [sys.executable, str(tmp_path / "train.py")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert running.stdout is not None
    assert running.stdout.readline() == "three\n"
    yield running
    running.communicate("")
    assert running.returncode == 0


def test_a_program_is_found_and_its_workers_are_not(program: subprocess.Popen[str]) -> None:
    found = programs_with_loaders()
    assert program.pid in found
    (view,) = watch_loaders([program.pid], 0.1)
    children = Path(f"/proc/{program.pid}/task/{program.pid}/children").read_text().split()
    assert len(children) >= 2
    assert not {int(child) for child in children} & set(found)
    assert view.pid == program.pid
    assert view.workers == 2
    assert 3 <= view.batches <= 7
    assert view.waits == 0.0
    assert view.owned_bytes > 0
    assert view.worker_bytes > 0
    assert "train.py" in view.command


def test_scripts_get_json_and_people_a_table(
    program: subprocess.Popen[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["top", str(program.pid), "--once", "--json", "--seconds", "0.1"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert row["workers"] == 2
    assert main(["top", str(program.pid), "--once", "--seconds", "0.1"]) == 0
    head, line = capsys.readouterr().out.splitlines()
    assert head.split()[:2] == ["pid", "batches"]
    assert line.split()[0] == str(program.pid)


def test_a_waiting_consumer_and_a_slow_worker_are_shown() -> None:
    gate, opener = os.pipe()
    try:
        with reader.DataLoader(
            Numbers(gate), batch_size=4, num_workers=2, start_method="fork"
        ) as loader:
            batches = iter(loader)
            taken = [next(batches) for _ in range(8)]
            taker = threading.Thread(target=lambda: taken.append(next(batches)))
            taker.start()
            for _ in range(200):  # until it waits
                (view,) = watch_loaders([os.getpid()], 0.05)
                if view.waits == 1.0 and view.busy == 2.0:
                    break
            assert (view.waits, view.busy, view.batches) == (1.0, 2.0, 8)
            assert view.longest_s > 0
            os.write(opener, b"x" * 64)
            taker.join()
            assert len(taken) == 9
    finally:
        os.close(gate)
        os.close(opener)


def test_a_closed_loader_is_no_longer_shown() -> None:
    with reader.DataLoader(Numbers(), batch_size=4, num_workers=1) as loader:
        assert len(list(loader)) == 16
    assert watch_loaders([os.getpid()], 0.05) == []
    out = io.StringIO()
    assert show_top(os.getpid(), 0.05, True, False, out) == 1
    assert out.getvalue() == f"{table_of([])}\n"
    assert "no loader with worker processes was seen" in out.getvalue()


def test_a_program_that_does_not_run_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", str(2**22 + 1)]) == 2
    assert f"no program with the number {2**22 + 1} runs" in capsys.readouterr().err


def test_files_of_another_user_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Any) -> Any:
        raise PermissionError

    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(PermissionError, match="program 5 is another user's"):
        watch_loaders([5], 0.05)


@pytest.mark.parametrize("seconds", ["0", "-1", "nan", "4000"])
def test_seconds_out_of_range_are_refused(seconds: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["top", "--once", "--seconds", seconds]) == 2
    assert "--seconds must be from 0.05 to 3600" in capsys.readouterr().err


def test_other_files_than_arenas_are_skipped() -> None:
    assert header_of(b"") is None
    assert header_of(bytes(4096)) is None
    assert heap_of(bytes(64), b"", 1) is None
    assert noted_place(ArenaHeader(1, 2, 4096, 0, 0, False, False), bytes(4096), 0) is None
    view = heap_of(bytes(4096), bytes(500), 1)
    assert view is not None
    assert (view.pid, view.batches, view.made_ns) == (0, 0, 0)
