"""One rank of an evaluation, for tests of ranks that end together: what it counted, as JSON.

Run as ``python even_program.py FOLDER CASE RANK RANKS ADDRESS``; it joins a group of gloo, counts
samples in CASES[CASE], adds up over all ranks after each step, as training does, and writes
FOLDER/RANK.json. Imports the public package and torch.
"""

from __future__ import annotations

import datetime
import json
import os
import signal
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


def of_stream(end: str, workers: int, counts: list[int]) -> dict[str, Any]:
    """Count the batches of a stream of which each rank has another number of samples."""
    rank = dist.get_rank()
    stream = Stream(rank, counts[rank % len(counts)])
    with reader.DataLoader(stream, batch_size=4, num_workers=workers) as loader:
        steps = reader.EvenSteps(loader, end=end)  # type: ignore[arg-type]
        epochs = []
        for _ in range(2):
            numbers, taken = [], 0
            for step in steps:
                batch, is_new = step if end == "pad" else (step, True)
                numbers += batch["number"].tolist() if is_new else []
                taken += 1
                added(1)
            epochs.append({"numbers": numbers, "steps": taken})
            other = reader.EvenSteps(reader.DataLoader(stream, batch_size=4, num_workers=workers))
            other.load_state_dict(json.loads(json.dumps(steps.state_dict())))
            epochs[-1]["epoch"] = other.loader.epoch
        assert loader.epoch == 2
    return {"epochs": epochs}


def of_resumed(end: str) -> dict[str, Any]:
    """Resume from the state after each step: the rest is what came without an interruption."""
    rank = dist.get_rank()

    def steps(state: Any = None) -> Any:
        loader = reader.DataLoader(Stream(rank, 9 + 7 * rank), batch_size=4)
        made = reader.EvenSteps(loader, end=end)  # type: ignore[arg-type]
        if state is not None:
            made.load_state_dict(json.loads(json.dumps(state)))
        return made

    whole: list[Any] = []
    states = []
    begun = steps()
    for step in begun:
        whole.append(_plain(step, end))
        states.append(begun.state_dict())
    for number, state in enumerate(states):
        rest = [_plain(step, end) for step in steps(state)]
        assert rest == whole[number + 1 :], (rest, whole[number + 1 :])
    return {"steps": len(whole)}


def _plain(step: Any, end: str) -> Any:
    """Return a step as plain numbers; what is given again does not count, whatever it is."""
    if end != "pad":
        return step["number"].tolist()
    batch, is_new = step
    return batch["number"].tolist() if is_new else None


class Breaks(Stream):
    """A stream that raises at its sixth sample on rank 1."""

    def __iter__(self) -> Any:
        for number, sample in enumerate(super().__iter__()):
            if (self.rank, number) == (1, 5):
                raise ValueError("sample 5 is damaged")
            yield sample


def of_failed_rank() -> dict[str, Any]:
    """One rank fails: the others are told which."""
    steps = reader.EvenSteps(reader.DataLoader(Breaks(dist.get_rank(), 20), batch_size=4))
    try:
        list(steps)
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error).splitlines()[0]}
    return {}


class Gone(Stream):
    """A stream that is gone on rank 1 when it is opened once more."""

    is_gone = False

    def __iter__(self) -> Any:
        if self.rank == 1 and self.is_gone:
            raise OSError("the stream is gone")
        yield from super().__iter__()


def of_failed_repeat() -> dict[str, Any]:
    """The batch that one rank should repeat after a resume cannot be made: the others know."""
    rank = dist.get_rank()
    stream = Gone(rank, 24 - 16 * (rank == 1))
    begun = reader.EvenSteps(reader.DataLoader(stream, batch_size=4), end="repeat")
    steps = iter(begun)
    for _ in range(4):
        next(steps)
    other = reader.EvenSteps(reader.DataLoader(stream, batch_size=4), end="repeat")
    other.load_state_dict(begun.state_dict())
    stream.is_gone = True
    try:
        list(other)
    except Exception as error:
        return {"error": type(error).__name__, "text": str(error).splitlines()[0]}
    return {}


def of_trained(end: str) -> dict[str, Any]:
    """A state of what was trained, of ranks that have given some batches since."""
    rank = dist.get_rank()

    def steps() -> Any:
        loader = reader.DataLoader(Stream(rank, 9 + 7 * rank), batch_size=4)
        return reader.EvenSteps(loader, end=end)  # type: ignore[arg-type]

    begun = steps()
    whole = [_plain(step, end) for step in begun]
    for trained in range(3):
        other = steps()
        other.load_state_dict(json.loads(json.dumps(begun.state_dict(trained))))
        rest = [_plain(step, end) for step in other]
        assert rest == whole[trained:], (rest, whole[trained:])
    return {"steps": len(whole)}


def of_nothing() -> dict[str, Any]:
    """A rank has nothing to repeat."""
    steps = reader.EvenSteps(reader.DataLoader(Stream(0, 4 * dist.get_rank())), end="repeat")
    try:
        list(steps)
    except reader.DatasetError as error:
        return {"text": str(error)}
    return {}


def of_killed() -> dict[str, Any]:
    """Rank 1 is killed within its epoch: the others are not left waiting."""
    for number, _ in enumerate(reader.EvenSteps(reader.DataLoader(Stream(0, 20)))):
        if dist.get_rank() == 1 and number == 2:
            os.kill(os.getpid(), signal.SIGKILL)
    return {}


def of_training(kind: str, until: int | None) -> dict[str, Any]:
    """Train for a part of an epoch, until rank 1 is killed; without `until`, go on to its end.

    Before the ranks take a step each writes its indices, and after it rank 0 the state.
    """
    rank = dist.get_rank()
    folder = Path(sys.argv[1])
    padded = reader.Padded(Squares())
    options: dict[str, Any] = {"sampler": None, "batch_size": 16}
    if kind == "balanced":
        costs = 1 + np.arange(COUNT) % 13 * 7
        batches = reader.BalancedBatches(costs, 300, seed=2, even="pad", window=200)
        options = {"batch_sampler": batches}
    else:
        options["sampler"] = reader.DistributedSampler(padded, seed=2)
    indices = []
    with reader.DataLoader(padded, num_workers=1, **options) as loader:
        if until is None:
            loader.load_state_dict(json.loads((folder / "state.json").read_text()))
        for step, batch in enumerate(loader):
            own = batch["number"][batch["valid"]].tolist()
            indices.append(own)
            (folder / f"step {step} of {rank}.json").write_text(json.dumps(own))
            if (rank, step) == (1, until):
                os.kill(os.getpid(), signal.SIGKILL)
            added(1)
            if rank == 0 and until is not None:
                (folder / "state.json").write_text(json.dumps(loader.state_dict()))
                (folder / "steps.json").write_text(str(step + 1))
    return {"indices": indices}


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
STREAMS: dict[str, Any] = {
    "drop": lambda: of_stream("drop", 0, [17, 9, 30]),
    "drop, workers": lambda: of_stream("drop", 2, [16, 33, 9]),
    "repeat": lambda: of_stream("repeat", 0, [17, 9, 30]),
    "pad": lambda: of_stream("pad", 2, [17, 9, 30]),
    "resumed, drop": lambda: of_resumed("drop"),
    "resumed, pad": lambda: of_resumed("pad"),
    "trained, drop": lambda: of_trained("drop"),
    "trained, pad": lambda: of_trained("pad"),
    "failed": of_failed_rank,
    "failed repeat": of_failed_repeat,
    "nothing": of_nothing,
    "killed": of_killed,
}
TRAINING: dict[str, Any] = {
    "balanced, killed": lambda: of_training("balanced", 5),
    "balanced, on": lambda: of_training("balanced", None),
    "shared, killed": lambda: of_training("shared", 5),
    "shared, on": lambda: of_training("shared", None),
}


def main(folder: str, cases: str, rank: str, ranks: str, address: str) -> None:
    """Join the group, run the cases, and write what they found."""
    given: dict[str, Any] = {"rank": int(rank), "world_size": int(ranks)}
    limit = datetime.timedelta(seconds=GROUP_S)
    dist.init_process_group("gloo", f"tcp://{address}", timeout=limit, **given)
    found = {case: (CASES | STREAMS | TRAINING)[case]() for case in cases.split("; ")}
    dist.destroy_process_group()
    Path(folder, f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
