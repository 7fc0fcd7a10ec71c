"""Loaders whose states a release saved, in `saved_states.json`: faces, samplers and streams.

Beside `tests/contract/old_states.py`, which has the own loader over each kind of order. Imports a
face when it makes one. Run as `python -m tests.unit.saved_states` with the version that saves: it
adds what the file lacks, and leaves what is there: that must still be read.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import reader

RECORD = Path(__file__).with_name("saved_states.json")
SIZE, TAKEN = 50, 3
SAMPLES = list(range(SIZE))


class Counting(reader.IterableDataset[int]):
    """A stream with a state, whose iterators have none."""

    def __init__(self, first: int = 0) -> None:
        self.first = first
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield self.first + self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Drawing:
    """Samples that draw from the worker's own random state."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        return 1000 * index + random.randrange(1000)


class Failing:
    """One sample in seven fails."""

    def __len__(self) -> int:
        return SIZE

    def __getitem__(self, index: int) -> int:
        if index % 7 == 3:
            raise ValueError(index)
        return index


def of_torch(dataset: Any = SAMPLES, **options: Any) -> Any:
    """Make a loader of the torch face."""
    import torch

    from reader.compat.torch import StatefulDataLoader

    torch.manual_seed(5)
    return StatefulDataLoader(dataset, batch_size=4, **options)


def of_torch_stream(**options: Any) -> Any:
    """Make a loader of the torch face over a stream with a state."""
    from torch.utils.data import IterableDataset

    class Stream(Counting, IterableDataset[int]):
        """Counting, for that face."""

    return of_torch(Stream(), **options)


def of_torch_ranks() -> Any:
    """Make a loader of the torch face for one of two ranks."""
    from reader.compat.torch import StatefulDistributedSampler

    return of_torch(sampler=StatefulDistributedSampler(SAMPLES, 2, 1, seed=3))


def of_paddle(**options: Any) -> Any:
    """Make a loader of the Paddle face."""
    from reader.compat.paddle import DataLoader

    return DataLoader([(each,) for each in SAMPLES], batch_size=4, **options)


def of_gluon(**options: Any) -> Any:
    """Make a loader of the Gluon face."""
    from reader.compat.gluon import DataLoader

    return DataLoader(SAMPLES, batch_size=4, shuffle=True, seed=3, **options)


def of_batches(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a loader with a batch sampler."""
    return lambda: reader.DataLoader(SAMPLES, batch_sampler=make())


def of_order(make: Callable[[], Any]) -> Callable[[], Any]:
    """Return what makes a loader with a sampler."""
    return lambda: reader.DataLoader(SAMPLES, batch_size=4, sampler=make())


def of_stream(make: Callable[[], Any], **options: Any) -> Callable[[], Any]:
    """Return what makes a loader over a stream."""
    return lambda: reader.DataLoader(make(), batch_size=4, **options)


LOADERS: dict[str, Callable[[], Any]] = {
    "torch": of_torch,
    "torch, shuffled": lambda: of_torch(shuffle=True),
    "torch, workers": lambda: of_torch(shuffle=True, num_workers=2),
    "torch, ranks": of_torch_ranks,
    "paddle": of_paddle,
    "gluon": of_gluon,
    "random": of_order(lambda: reader.RandomSampler(SAMPLES)),
    "weighted": of_order(lambda: reader.WeightedRandomSampler([1.0, 2.0] * 25, SIZE, seed=3)),
    "subset": of_order(lambda: reader.SubsetRandomSampler(SAMPLES[:30], seed=3)),
    "buckets": of_batches(
        lambda: reader.BucketBatchSampler(range(1, SIZE + 1), batch_size=4, buckets=3, seed=3)
    ),
    "batches of ranks": of_batches(
        lambda: reader.DistributedBatchSampler(SAMPLES, 4, 2, 1, shuffle=True, seed=3)
    ),
    "mix": of_stream(lambda: reader.mix([Counting(), Counting(100)], [0.3, 0.7])),
    "shuffle buffer": of_stream(lambda: reader.shuffle_buffer(Counting(), 8, seed=3)),
    "one worker": lambda: reader.DataLoader(
        SAMPLES, batch_size=4, shuffle=True, seed=3, num_workers=1
    ),
    "torch, kept workers": lambda: of_torch(shuffle=True, num_workers=2, persistent_workers=True),
    "torch, drawing": lambda: of_torch(Drawing(), num_workers=2),
    "torch, stream": of_torch_stream,
    "torch, stream, workers": lambda: of_torch_stream(num_workers=2, snapshot_every_n_steps=2),
    "paddle, workers": lambda: of_paddle(num_workers=2),
    "gluon, workers": lambda: of_gluon(num_workers=2),
    "drawing, workers": lambda: reader.DataLoader(
        Drawing(), batch_size=4, shuffle=True, seed=3, num_workers=2
    ),
    "places": lambda: reader.DataLoader(
        SAMPLES, batch_size=4, shuffle=True, seed=3, num_workers=2, places=["cpu", "cpu"]
    ),
    "replaced samples": lambda: reader.DataLoader(
        Failing(), batch_size=4, num_workers=2, on_error="replace", error_budget=50
    ),
    "stream, workers": of_stream(Counting, num_workers=2, snapshot_every_n_steps=1),
    "stream, few snapshots": of_stream(Counting, num_workers=2, snapshot_every_n_steps=3),
    "shuffle buffer, workers": of_stream(
        lambda: reader.shuffle_buffer(Counting(), 8, seed=3), num_workers=2
    ),
}


def plain(batch: Any) -> Any:
    """Return a batch as nested lists."""
    if isinstance(batch, (list, tuple)):
        return [plain(each) for each in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch.asnumpy().tolist()


def saved(name: str) -> dict[str, Any]:
    """Return the state of a loader after a few batches, and the batches that come after it."""
    with LOADERS[name]() as loader:
        batches = iter(loader)
        for _ in range(TAKEN):
            next(batches)
        state = json.loads(json.dumps(loader.state_dict()))
        return {"state": state, "rest": [plain(batch) for batch in batches]}


def main() -> int:
    """Add to the file what it lacks."""
    held = json.loads(RECORD.read_text(encoding="utf-8")) if RECORD.exists() else {}
    held |= {name: saved(name) for name in LOADERS if name not in held}
    lines = [f"{json.dumps(name)}: {json.dumps(each)}" for name, each in held.items()]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
