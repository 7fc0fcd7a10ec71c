"""Programs that write shards and are killed at any instant, and started again."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import BOUND_S, Program

WRITER = """
    import sys, time
    import reader

    class Rows:
        def __len__(self):
            return 300

        def __getitem__(self, index):
            time.sleep(0.002)
            return {"n": index, "s": "x" * (index % 90)}

    if __name__ == "__main__":
        print("begun", flush=True)
        folder, form, workers = sys.argv[1:]
        reader.write_shards(Rows(), folder, form, shard_size=900, num_workers=int(workers))
        print("done", flush=True)
"""


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


Start = Callable[..., Program]


def kill_often(start: Start, folder: Path, form: str, workers: int, kills: int, seed: int) -> int:
    """Kill a writer so many times at random instants, each time anew; return how many hit it."""
    rng = random.Random(seed)
    hits = 0
    for _ in range(kills):
        writer = start(WRITER, str(folder), form, str(workers))
        writer.line()
        try:
            writer.process.wait(rng.uniform(0, 0.5))
        except subprocess.TimeoutExpired:
            hits += 1
        writer.interrupt(9)
        writer.process.wait(BOUND_S)
        if (folder / "manifest.json").exists():
            break
    return hits


def check(start: Start, folder: Path, form: str, workers: int, kills: int, seed: int = 0) -> None:
    assert kill_often(start, folder / "killed", form, workers, kills, seed) > 0
    for name in ("killed", "whole"):
        status, out, error = start(WRITER, str(folder / name), form, str(workers)).finish()
        assert (status, out) == (0, "begun\ndone\n"), error
    assert contents(folder / "killed") == contents(folder / "whole")


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["mds", "tar"])
def test_a_writer_that_is_killed_goes_on_with_the_same_bytes(
    program: Start, form: str, workers: int, tmp_path: Path
) -> None:
    check(program, tmp_path, form, workers, 4)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills_leave_the_same_bytes(program: Start, seed: int, tmp_path: Path) -> None:
    check(program, tmp_path, ("mds", "tar")[seed % 2], seed // 2 % 3, 20, seed)
