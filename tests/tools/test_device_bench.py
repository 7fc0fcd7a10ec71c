"""The bench of devices and `make gpu`: what they measure and print; times are not judged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tools import gpu
from tools.device_bench.__main__ import table
from tools.device_bench.works import CONTESTANTS, WORKS

ROOT = Path(__file__).parents[2]


def told_by(folder: Path, *command: str) -> Any:
    path = folder / "told.json"
    done = subprocess.run(
        [sys.executable, "-m", *command, "--json", str(path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(path.read_text())


@pytest.mark.evidence
@pytest.mark.timeout(240)
def test_the_host_copies_nothing_for_ours_and_each_batch_for_the_others(tmp_path: Path) -> None:
    found = told_by(tmp_path, "tools.device_bench", "--rounds", "1", "--batches", "30")["figures"]
    assert list(found) == [str(work) for work in WORKS]
    for rows in found.values():
        for contestant in CONTESTANTS:
            copies = rows[contestant.name]["host_copies"]
            assert copies == 0 if contestant.is_ours else copies >= 1, contestant


@pytest.mark.evidence
@pytest.mark.timeout(300)
def test_make_gpu_is_rehearsed_on_the_simulated_accelerator(tmp_path: Path) -> None:
    command = ["--accelerator", "simdev", "--batches", "400"]
    found = told_by(tmp_path, "tools.gpu", *command)
    assert found["problems"] == found["tests"]["failed"] == []
    assert found["tests"]["passed"] > 10
    assert found["soak"]["wrong"] == found["soak"]["waits"] == 0


def test_table_has_a_row_for_each_loader_of_each_work() -> None:
    figures = {"wait_us": 20.0, "step_us": 2000.0, "cpu_us": 100.0}
    found = {"copy 1 ms, step 2 ms": {"ours": {**figures, "host_copies": 0.0}, "theirs": figures}}
    rows = table(found).splitlines()[2:]
    assert rows == [
        "| copy 1 ms, step 2 ms | ours | 20 us | 1.0% | 100 us | 0 |",
        "| copy 1 ms, step 2 ms | theirs | 20 us | 1.0% | 100 us | - |",
    ]


def test_a_missed_goal_on_a_gpu_is_named() -> None:
    good = {
        "tests": {"passed": 3, "failed": []},
        "soak": {"failed": ""},
        "copies": {"image": {"registered_gb_s": 52.0, "pinned_gb_s": 54.0}},
        "calls": {"cudaMemcpyAsync": 400},
    }
    assert gpu.problems_of(good) == []
    bad = {
        "tests": {"passed": 3, "failed": ["one"]},
        "soak": {"failed": "see the counts"},
        "copies": {"image": {"registered_gb_s": 20.0, "pinned_gb_s": 54.0}},
        "calls": {"cudaStreamSynchronize": 1},
    }
    assert gpu.problems_of(bad) == [
        "tests failed",
        "soak failed",
        "copies of image are slower than from pinned memory",
        "an epoch calls cudaStreamSynchronize",
    ]
