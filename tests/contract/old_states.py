"""The loaders whose states earlier versions saved, in `old_states.json`.

Run with the package of that version on the path, `python -m tests.contract.old_states FILE`, it
writes for each loader the state after three batches and the batches that came after it.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reader import DataLoader, DistributedSampler, IterableDataset, shard


class Squares:
    """A map-style dataset."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return index * index


class Shuffled:
    """A sampler that draws from the global random state."""

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[int]:
        order = list(range(50))
        random.shuffle(order)
        return iter(order)


class Resumable:
    """A sampler with a state of its own."""

    def __init__(self) -> None:
        self.at = 0

    def __len__(self) -> int:
        return 50

    def __iter__(self) -> Iterator[int]:
        while self.at < 50:
            self.at += 1
            yield 50 - self.at
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Divided(IterableDataset[int]):
    """A stream that `reader.shard` divides."""

    def __iter__(self) -> Iterator[int]:
        return shard(range(50))


class Plain(IterableDataset[int]):
    """A stream that is drawn again."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(50))


LOADERS: dict[str, Callable[[], Any]] = {
    "sequence": lambda: DataLoader(Squares(), batch_size=4),
    "shuffle, seed": lambda: DataLoader(Squares(), batch_size=4, shuffle=True, seed=3),
    "shuffle": lambda: DataLoader(Squares(), batch_size=4, shuffle=True, num_workers=2),
    "replayed": lambda: DataLoader(Squares(), batch_size=4, sampler=Shuffled()),
    "stateful": lambda: DataLoader(Squares(), batch_size=4, sampler=Resumable()),
    "sharded": lambda: DataLoader(
        Squares(), batch_size=4, sampler=DistributedSampler(Squares(), 2, 1, seed=5)
    ),
    "any order": lambda: DataLoader(Squares(), batch_size=4, num_workers=2, in_order=False),
    "divided stream": lambda: DataLoader(Divided(), batch_size=4, num_workers=2),
    "plain stream": lambda: DataLoader(Plain(), batch_size=4, num_workers=1),
    "seeded stream": lambda: DataLoader(Plain(), batch_size=4, seed=3),
}


def main(path: str) -> None:
    """Write what this version saves."""
    found = {}
    for name, make in LOADERS.items():
        random.seed(11)
        with make() as loader:
            batches = iter(loader)
            for _ in range(3):
                next(batches)
            state = json.loads(json.dumps(loader.state_dict()))
            found[name] = {"state": state, "rest": [batch.tolist() for batch in batches]}
    Path(path).write_text(json.dumps(found, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
