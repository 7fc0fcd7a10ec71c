"""`python -m reader tokens`, killed at any instant and started again."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import BOUND_S, Program

WRITER = """
    import sys
    from reader.__main__ import main
    from reader.tokens import write_tokens

    write_tokens._WRITTEN_AT_ONCE = 200

    if __name__ == "__main__":
        print("begun", flush=True)
        sys.exit(main(sys.argv[1:]))
"""
Start = Callable[..., Program]


def contents(folder: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in folder.iterdir()}


def check(start: Start, folder: Path, form: str, workers: int, kills: int, seed: int) -> None:
    texts = folder / "texts.jsonl"
    lines = (json.dumps({"text": f"{k} " * (k % 50)}) + "\n" for k in range(1500))
    texts.write_text("".join(lines))
    options = ["tokens", str(texts), "--tokenizer", "bytes", "--document-end", "256"]
    options += ["--format", form, "--shard-tokens", "9000", "--num-workers", str(workers)]
    rng, hits, outputs = random.Random(seed), 0, [folder / "0"]
    while hits < kills:
        outputs[-1].mkdir(exist_ok=True)
        writer = start(WRITER, *options, "--output", str(outputs[-1] / "x"))
        writer.line()
        try:
            assert writer.process.wait(rng.uniform(0.1, 1.2)) == 0
        except subprocess.TimeoutExpired:
            hits += 1
            writer.process.kill()
            writer.process.wait(BOUND_S)
        else:
            outputs.append(folder / f"{len(outputs)}")
    outputs.append(folder / "whole")
    for each in outputs:
        each.mkdir(exist_ok=True)
        status, out, error = start(WRITER, *options, "--output", str(each / "x")).finish()
        assert (status, out[:6]) == (0, "begun\n"), error
        assert contents(each) == contents(outputs[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("form", ["megatron", "llmc"])
def test_a_writer_that_is_killed_goes_on_with_the_same_bytes(
    program: Start, form: str, workers: int, tmp_path: Path
) -> None:
    check(program, tmp_path, form, workers, 3, 0)


@pytest.mark.nightly
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", range(12))
def test_a_hundred_kills_leave_the_same_bytes(program: Start, seed: int, tmp_path: Path) -> None:
    check(program, tmp_path, ("megatron", "llmc")[seed % 2], seed // 2 % 3, 20, seed)
