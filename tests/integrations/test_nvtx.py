"""Ranges of NVTX as a profiler hears them: a listener that NVTX itself loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from reader import ConfigTypeError
from reader.integrations.nvtx import ranges
from tests.integrations.numbers import BATCHES, SIZE, loaded

ROOT = Path(__file__).parents[2]
PROGRAM = """
import reader
from reader.integrations.nvtx import ranges

loader = reader.DataLoader([1.0, 2.0, 3.0], batch_size=2)
for batch in ranges(loader):
    print("batch", len(batch), flush=True)
for batch in ranges(loader, domain="test"):
    break
print("left", flush=True)
"""
HEARD = """
push reader begin
pop reader
push reader wait
pop reader
start reader step
batch 2
end reader
push reader wait
pop reader
start reader step
batch 1
end reader
push reader wait
pop reader
push test begin
pop test
push test wait
pop test
start test step
end test
left
""".strip()


def test_a_profiler_hears_a_range_for_each_wait_and_step(tmp_path: Path) -> None:
    compiler = shutil.which("c++") or shutil.which("g++")
    assert compiler is not None
    listener = tmp_path / "listener.so"
    source = Path(__file__).with_name("nvtx_listener.cpp")
    command = [compiler, "-shared", "-fPIC", "-O1", str(source), "-o", str(listener)]
    subprocess.run(command, check=True)
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env={**os.environ, "NVTX_INJECTION64_PATH": str(listener)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert "\n".join(line.rstrip() for line in run.stdout.splitlines()) == HEARD


@pytest.mark.parametrize("workers", [0, 2])
def test_batches_are_those_of_the_loader_without_a_listener(workers: int) -> None:
    with loaded(workers) as loader:
        found = [batch[0, 0] for batch in ranges(loader)]
    assert found == list(range(0, BATCHES * SIZE, SIZE))


def test_non_loaders_are_refused_at_the_call() -> None:
    with pytest.raises(ConfigTypeError, match=r"ranges takes a loader of this package"):
        ranges([1, 2])
