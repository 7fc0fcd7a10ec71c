"""The programs of docs/checkpoints.md, killed and started again, end with the same numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.pages import DOCS, programs_of

FILES = ["checkpoint.pt", "checkpoint.pd"]


def start(code: str, folder: Path) -> subprocess.Popen[str]:
    folder.mkdir(exist_ok=True)
    return subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", code],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(DOCS.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def written_ns(file: Path) -> int:
    return file.stat().st_mtime_ns if file.exists() else 0


@pytest.mark.timeout(180)
@pytest.mark.parametrize("which", [0, 1], ids=["torch", "paddle"])
def test_a_run_that_is_killed_goes_on_to_the_same_end(
    which: int, tmp_path: Path, seed: int
) -> None:
    pytest.importorskip("torch" if which == 0 else "paddle")
    code = programs_of("checkpoints")[which].code
    assert FILES[which] in code
    chosen = np.random.default_rng(seed)
    whole = start(code, tmp_path / "whole")
    for _ in range(2):
        run = start(code, tmp_path / "killed")
        file = tmp_path / "killed" / FILES[which]
        before_ns = written_ns(file)
        while written_ns(file) == before_ns:
            assert run.poll() is None, run.communicate()[1]
            time.sleep(0.001)
        time.sleep(chosen.uniform(0, 0.03))
        run.kill()
        run.communicate()
    rest = start(code, tmp_path / "killed")
    printed = [program.communicate()[0] for program in (whole, rest)]
    assert float(printed[0]) != 0
    assert printed[0] == printed[1]
