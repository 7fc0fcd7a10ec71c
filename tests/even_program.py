"""One rank of an evaluation, for tests of ranks that end together: what it counted, as JSON.

Run as ``python even_program.py FOLDER CASE RANK RANKS ADDRESS``; it joins a group of gloo, counts
samples in CASES[CASE], adds up over all ranks after each step, as training does, and writes
FOLDER/RANK.json. Imports the public package and torch.
"""

from __future__ import annotations

import datetime
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import reader
from reader.compat import torch as compat

COUNT = 1003
GROUP_S = 60


class Squares:
    """Samples {"number": i, "square": i * i}; those whose numbers `fails` names raise."""

    def __init__(self, fails: tuple[int, ...] = ()) -> None:
        self.fails = frozenset(fails)

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> dict[str, Any]:
        if index in self.fails:
            raise ValueError(f"sample {index} is damaged")
        return {"number": np.int64(index), "square": np.int64(index * index)}


def sums_without(*numbers: int) -> list[int]:
    """Return how many samples there are but for some, and what numbers and squares add up to."""
    left = np.setdiff1d(np.arange(COUNT), numbers)
    return [len(left), int(left.sum()), int((left * left).sum())]


class Stream(reader.IterableDataset[dict[str, Any]]):
    """This rank's share of numbers, of which only some are left."""

    def __init__(self, rank: int, count: int) -> None:
        self.rank, self.count = rank, count
        self.world_size = 1  # it divides by itself

    def __iter__(self) -> Any:
        worker = reader.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        for index in range(first, self.count, step):
            yield {"number": np.int64(1000 * self.rank + index)}


def added(*numbers: int) -> list[int]:
    """Return the sums of some numbers over all ranks."""
    total = torch.tensor(numbers, dtype=torch.int64)
    dist.all_reduce(total)
    return [int(each) for each in total]


def evaluated(loader: Any) -> dict[str, Any]:
    """Count what a loader gives, with a step of all ranks for each batch."""
    sums, steps = [0, 0, 0], 0
    for batch in loader:
        valid = np.asarray(batch["valid"])
        number, square = (np.asarray(batch[name])[valid] for name in ("number", "square"))
        found = added(int(valid.sum()), int(number.sum()), int(square.sum()))
        sums = [one + other for one, other in zip(sums, found, strict=True)]
        steps += 1
    return {"sums": sums, "steps": steps}


def of_sampler(workers: int, **options: Any) -> dict[str, Any]:
    """Evaluate by a DistributedSampler."""
    padded = reader.Padded(Squares())
    sampler = reader.DistributedSampler(padded, shuffle=False, even="pad")
    with reader.DataLoader(
        padded, batch_size=16, sampler=sampler, num_workers=workers, **options
    ) as loader:
        return evaluated(loader)


def of_failing(on_error: str, workers: int) -> dict[str, Any]:
    """Evaluate samples of which some fail; the first batch of rank 0 fails as a whole."""
    ranks = dist.get_world_size()
    fails = (*range(0, 16 * ranks, ranks), 500, 501, 502, COUNT - 1)
    padded = reader.Padded(Squares(fails))
    sampler = reader.DistributedSampler(padded, shuffle=False)
    options: dict[str, Any] = {"on_error": on_error, "error_budget": 100}
    if on_error == "replace":
        padded.dataset.fails = frozenset((3, 500, 501, 502, COUNT - 1))
    with reader.DataLoader(
        padded, batch_size=16, sampler=sampler, num_workers=workers, **options
    ) as loader:
        found = evaluated(loader)
        return {**found, "failed": added(loader.stats()["failed_samples"])[0]}


def of_torch(workers: int) -> dict[str, Any]:
    """Evaluate by torch's own loader and by ours with its arguments: both give the same."""
    padded = reader.Padded(Squares())
    found = []
    for kind in (torch.utils.data.DataLoader, compat.DataLoader):
        sampler: Any = reader.DistributedSampler(padded, seed=3, even="pad")
        loader: Any = kind(padded, batch_size=16, sampler=sampler, num_workers=workers)  # type: ignore[arg-type]
        found.append(evaluated(loader))
        if hasattr(loader, "close"):
            loader.close()
    assert found[0] == found[1]
    return found[0]


def of_batches() -> dict[str, Any]:
    """Evaluate in batches of bounded cost."""
    padded = reader.Padded(Squares())
    costs = 1 + np.arange(COUNT) % 7 * 30
    batches = reader.BalancedBatches(costs, 200, seed=1, even="pad")
    with reader.DataLoader(padded, batch_sampler=batches, num_workers=1) as loader:
        return evaluated(loader)


CASES: dict[str, Any] = {
    "inline": lambda: of_sampler(0),
    "workers": lambda: of_sampler(2),
    "threads": lambda: of_sampler(2, worker_type="thread"),
    "skip": lambda: of_failing("skip", 1),
    "skip, inline": lambda: of_failing("skip", 0),
    "replace": lambda: of_failing("replace", 1),
    "torch": lambda: of_torch(1),
    "batches": of_batches,
}


def main(folder: str, cases: str, rank: str, ranks: str, address: str) -> None:
    """Join the group, run the cases, and write what they found."""
    given: dict[str, Any] = {"rank": int(rank), "world_size": int(ranks)}
    limit = datetime.timedelta(seconds=GROUP_S)
    dist.init_process_group("gloo", f"tcp://{address}", timeout=limit, **given)
    found = {case: CASES[case]() for case in cases.split("; ")}
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
