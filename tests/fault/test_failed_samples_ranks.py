"""Ranks in lockstep over a dataset with failing samples, with kills and resumes."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader

ROOT = Path(__file__).parents[2]
RANKS = 4

PROGRAM = """
import contextlib, json, os, random, signal, sys
from pathlib import Path
import numpy as np
import torch
import torch.distributed as distributed
import reader
from tests.fault.test_failed_samples_ranks import Numbers, newest_of_all

if __name__ == "__main__":
    folder, count, every = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    backend = None
    if cluster := sys.argv[4]:  # one pool of workers there, for all ranks
        backend = reader.Ray(address=cluster, resources={"CPU": 0.5}, pool="ranks")
    distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    torch.set_num_threads(1)
    sampler = reader.DistributedBatchSampler(
        Numbers(count), 64, num_replicas=ranks, rank=rank, shuffle=True
    )
    loader = reader.DataLoader(
        Numbers(count), batch_sampler=sampler, num_workers=1, seed=5, on_error="replace",
        error_budget=0.02, quarantine=folder / f"bad{rank}.jsonl", worker_retries=10,
        backend=backend,
    )
    steps = newest_of_all(folder, ranks)
    if steps:
        loader.load_state_dict(json.loads((folder / f"state{rank}.{steps}").read_text()))
    distributed.barrier()
    chance = random.Random(os.getpid())
    log = open(folder / f"log{rank}.txt", "a")
    for batch in loader:
        same = torch.tensor([steps, 1])
        distributed.all_reduce(same)  # hangs, or differs, where a rank has another number of steps
        assert same.tolist() == [steps * ranks, ranks], same
        log.write(f"{steps} {' '.join(map(str, batch.tolist()))}\\n")
        steps += 1
        if steps % every == 0:
            log.flush()
            draft = folder / f"draft{rank}"
            draft.write_text(json.dumps(loader.state_dict()))
            draft.rename(folder / f"state{rank}.{steps}")
        if chance.random() < 0.01:
            for status in loader.workers():
                with contextlib.suppress(ProcessLookupError):  # another rank killed it
                    os.kill(status.pid, signal.SIGKILL)
    log.flush()
    (folder / f"done{rank}").write_text(str(steps))
    distributed.barrier()
    distributed.destroy_process_group()
"""


class Numbers:
    """Each number is itself; one in a hundred fails."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> int:
        if is_bad(index):
            raise ValueError(f"number {index} is damaged")
        return int(index)


def is_bad(index: int) -> bool:
    return index * 2654435761 % 100 == 7


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        port: int = taken.getsockname()[1]
        return port


def start(folder: Path, count: int, every: int, cluster: str) -> list[subprocess.Popen[bytes]]:
    port = free_port()
    numbers = [str(count), str(every)]
    return [
        subprocess.Popen(
            [sys.executable, str(folder / "rank.py"), str(folder), *numbers, cluster],
            cwd=ROOT,
            env={
                "PATH": "/usr/bin:/bin",
                "PYTHONPATH": str(ROOT),
                "RANK": str(rank),
                "WORLD_SIZE": str(RANKS),
                "MASTER_ADDR": "localhost",
                "MASTER_PORT": str(port),
                "OMP_NUM_THREADS": "1",
            },
        )
        for rank in range(RANKS)
    ]


def end(ranks: list[subprocess.Popen[bytes]]) -> None:
    for rank in ranks:
        rank.kill()
    for rank in ranks:
        rank.wait()


def newest_of_all(folder: Path, ranks: int) -> int:
    """Return the newest step of which all ranks have saved a state; 0: none."""
    found = [
        {int(path.suffix[1:]) for path in folder.glob(f"state{rank}.*")} for rank in range(ranks)
    ]
    return max(set.intersection(*found), default=0)


@pytest.mark.alone
@pytest.mark.peer
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("count", "kills"), [(20_000, 1), pytest.param(1_000_000, 6, marks=pytest.mark.nightly)]
)
def test_ranks_take_the_same_steps_and_lose_only_failed_samples(
    count: int, kills: int, tmp_path: Path
) -> None:
    pytest.importorskip("torch")
    train_and_check(tmp_path, count, kills)


def train_and_check(folder: Path, count: int, kills: int, cluster: str = "") -> None:
    """Train with kills of ranks, after each of which all resume from their states; then compare.

    Args:
        folder: for what the ranks write.
        count: numbers in the dataset.
        kills: how often.
        cluster: address of a cluster of Ray that the workers are on; "": they are here.
    """
    (folder / "rank.py").write_text(PROGRAM)
    every = max(5, count // RANKS // 64 // 40)
    rng = np.random.default_rng(3)
    ranks: list[Any] = []
    try:
        while True:
            ranks = start(folder, count, every, cluster)
            before, ends = newest_of_all(folder, RANKS), float("inf")
            codes: list[int | None] = [None]
            while None in codes and not any(codes) and time.monotonic() < ends:
                time.sleep(0.05)
                codes = [rank.poll() for rank in ranks]
                if kills and ends == float("inf") and newest_of_all(folder, RANKS) > before:
                    ends = time.monotonic() + 4 * rng.random()  # all of them train
            assert not any(codes), f"the ranks ended with {codes}"
            if None not in codes:
                break
            kills -= 1
            ranks[int(rng.integers(RANKS))].send_signal(signal.SIGKILL)
            end(ranks)
    finally:
        end(ranks)
    steps = {(folder / f"done{rank}").read_text() for rank in range(RANKS)}
    assert len(steps) == 1
    seen: Counter[int] = Counter()
    for rank in range(RANKS):
        batches: dict[int, str] = {}
        for line in (folder / f"log{rank}.txt").read_text().splitlines():
            step, _, numbers = line.partition(" ")
            if int(step) in batches and len(numbers) == len(batches[int(step)]):
                assert batches[int(step)] == numbers  # it was made again after a kill
            batches[int(step)] = numbers
        assert sorted(batches) == list(range(int(steps.copy().pop())))
        seen.update(int(number) for numbers in batches.values() for number in numbers.split())
    good = {number for number in range(count) if not is_bad(number)}
    assert set(seen) == good
    named = {
        json.loads(line)["index"]
        for rank in range(RANKS)
        for line in (folder / f"bad{rank}.jsonl").read_text().splitlines()
    }
    assert named == set(range(count)) - good
    assert len(reader.without(Numbers(count), sorted(named))) == len(good)
