"""Streams of webdataset and of Hugging Face's datasets in workers: `make integrations`."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader

datasets = pytest.importorskip("datasets", reason="make integrations")
wds = pytest.importorskip("webdataset", reason="make integrations")

pytestmark = [
    pytest.mark.evidence,
    pytest.mark.filterwarnings("ignore"),
    pytest.mark.timeout(240),  # a spawned worker imports it all
]

KINDS: dict[str, dict[str, Any]] = {
    "0": {},
    "fork": {"num_workers": 2, "start_method": "fork"},
    "spawn": {"num_workers": 2, "start_method": "spawn"},
    "threads": {"num_workers": 2, "worker_type": "thread"},
}


def rows(shards: list[int]) -> Iterator[dict[str, int]]:
    """Ten numbers of each shard."""
    for shard in shards:
        for number in range(10):
            yield {"x": shard * 10 + number}


def of_hugging_face(is_shuffled: bool = False) -> Any:
    """Forty numbers in four shards."""
    made = datasets.IterableDataset.from_generator(rows, gen_kwargs={"shards": [0, 1, 2, 3]})
    return made.shuffle(seed=3, buffer_size=5) if is_shuffled else made


def numbers(batches: Any) -> list[int]:
    """The numbers in batches, in their order."""
    return [int(number) for batch in batches for number in np.asarray(batch["x"])]


@pytest.mark.parametrize("kind", KINDS)
def test_01_a_webdataset_has_each_sample_once(kind: str, tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{shard}.tar") for shard in range(4)]
    for shard, path in enumerate(paths):
        with wds.TarWriter(path) as writer:
            for number in range(10):
                writer.write({"__key__": f"{shard}-{number}", "cls": shard * 10 + number})
    data = wds.WebDataset(paths, shardshuffle=False).decode().to_tuple("cls")
    with reader.DataLoader(data, batch_size=4, **KINDS[kind]) as loader:
        found = [int(number) for (batch,) in loader for number in batch]
    assert sorted(found) == list(range(40))


@pytest.mark.parametrize(
    ("kind", "taken"),
    [*((kind, taken) for kind in ("0", "fork", "threads") for taken in (0, 5, 9)), ("spawn", 5)],
)
def test_01_a_stream_of_hugging_face_resumes_exactly(kind: str, taken: int) -> None:
    options = {"batch_size": 4, **KINDS[kind]}
    with reader.DataLoader(of_hugging_face(), **options) as whole:
        expected = numbers(whole)
    assert sorted(expected) == list(range(40))
    with reader.DataLoader(of_hugging_face(), **options) as loader:
        batches = iter(loader)
        before = numbers([next(batches) for _ in range(taken)])
        state = json.loads(json.dumps(loader.state_dict()))
    with reader.DataLoader(of_hugging_face(), **options) as resumed:
        resumed.load_state_dict(state)
        assert before + numbers(resumed) == expected


@pytest.mark.parametrize("kind", ["fork", "threads"])
def test_01_a_shuffled_stream_of_hugging_face_resumes_by_drawing_batches_again(
    kind: str,
) -> None:
    options = {"batch_size": 4, "snapshot_every_n_steps": 0, **KINDS[kind]}
    with reader.DataLoader(of_hugging_face(True), **options) as loader:
        batches = iter(loader)
        before = numbers([next(batches) for _ in range(5)])
        state = json.loads(json.dumps(loader.state_dict()))
    with reader.DataLoader(of_hugging_face(True), **options) as resumed:
        resumed.load_state_dict(state)
        assert sorted(before + numbers(resumed)) == list(range(40))


_PROGRAM = """
import json, os, signal, sys
import reader
from tests.integrations.test_streams import numbers, of_hugging_face

if __name__ == "__main__":
    loader = reader.DataLoader(of_hugging_face(), batch_size=4, num_workers=2)
    if os.path.exists(sys.argv[1]):
        loader.load_state_dict(json.load(open(sys.argv[1])))
    for count, batch in enumerate(loader):
        print(*numbers([batch]), flush=True)
        json.dump(loader.state_dict(), open(sys.argv[1] + ".new", "w"))
        os.replace(sys.argv[1] + ".new", sys.argv[1])
        if count == 3:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_01_a_program_that_is_killed_again_and_again_reads_each_sample_once(
    tmp_path: Path,
) -> None:
    found: list[int] = []
    command = [sys.executable, "-c", _PROGRAM, str(tmp_path / "state.json")]
    for _ in range(4):
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, env=os.environ)
        found += map(int, done.stdout.split())
        if done.returncode != -signal.SIGKILL:
            break
    assert done.returncode == 0
    assert sorted(found) == list(range(40))
