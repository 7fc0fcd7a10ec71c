"""One rank of a training, for tests of launchers: what its loaders deliver, as JSON.

Run as ``python ranks_program.py FOLDER HOW``; it writes FOLDER/RANK.json. Imports the public
package, and the library of HOW where that says one: "env", "gloo RANK ADDRESS", "jax RANK ADDRESS",
"torch", "paddle".
"""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import reader

COUNT = 24
WORKERS: dict[str, dict[str, Any]] = {
    "0": {"num_workers": 0},
    "2 fork": {"num_workers": 2, "start_method": "fork"},
    "1 spawn": {"num_workers": 1, "start_method": "spawn"},
    "2 threads": {"num_workers": 2, "worker_type": "thread"},
}


class Sharded(reader.IterableDataset[int]):
    """Iterates over `reader.shard` of some items."""

    def __init__(self, **options: Any) -> None:
        self.options = options

    def __iter__(self) -> Iterator[int]:
        return reader.shard(range(COUNT), **self.options)


class Plain(reader.IterableDataset[int]):
    """A stream that is not divided."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(COUNT))


def items_of(loader: Any) -> list[int]:
    """Return the items of an epoch, in ascending order."""
    with loader:
        return sorted(int(item) for batch in loader for item in batch)


def told_by(dataset: Any, **options: Any) -> list[str]:
    """Return the texts of the warnings of two epochs."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        with reader.DataLoader(dataset, batch_size=4, **options) as loader:
            for _ in range(2):
                list(loader)
    return [str(each.message) for each in told if each.filename == __file__]


def begin(how: list[str]) -> None:
    """Have a library train on several ranks."""
    if how[0] in ("gloo", "torch"):
        import torch.distributed

        given: dict[str, Any] = {}
        if how[0] == "gloo":
            given = {"init_method": f"tcp://{how[2]}", "rank": int(how[1]), "world_size": 2}
        torch.distributed.init_process_group("gloo", **given)
    elif how[0] == "jax":
        import jax

        jax.config.update("jax_platforms", "cpu")
        jax.distributed.initialize(how[2], num_processes=2, process_id=int(how[1]))
    elif how[0] == "paddle":
        import paddle.distributed  # noqa: F401  its launcher's environment says it


def end(how: list[str]) -> None:
    """Shut the library down."""
    if how[0] in ("gloo", "torch"):
        sys.modules["torch"].distributed.destroy_process_group()
    elif how[0] == "jax":
        assert not sys.modules["jax._src.xla_bridge"].backends_are_initialized()
        sys.modules["jax"].distributed.shutdown()


def main(folder: str, how: list[str]) -> None:
    """Run the loaders; write what they delivered."""
    begin(how)
    numbers = list(range(COUNT))
    sampler = reader.DistributedSampler(numbers, shuffle=False)
    found: dict[str, Any] = {"world": sampler.num_replicas}
    shares = found["shares"] = {}
    for name, options in WORKERS.items():
        shares[name] = items_of(reader.DataLoader(Sharded(), batch_size=4, **options))
    with reader.WorkerPool(2, start_method="forkserver") as pool:
        shares["pool"] = items_of(reader.DataLoader(Sharded(), batch_size=4, pool=pool))
    mixed = reader.mix([Sharded()])
    shares["mix"] = items_of(reader.DataLoader(mixed, batch_size=4))
    shares["sampler"] = items_of(reader.DataLoader(numbers, batch_size=4, sampler=sampler))
    by_batch = reader.DistributedBatchSampler(numbers, 4)
    shares["batch sampler"] = items_of(reader.DataLoader(numbers, batch_sampler=by_batch))
    buckets = reader.BucketBatchSampler([1] * COUNT, batch_size=4, seed=1)
    shares["buckets"] = items_of(reader.DataLoader(numbers, batch_sampler=buckets))
    whole = Sharded(rank=0, world_size=1)
    found["whole"] = items_of(reader.DataLoader(whole, batch_size=4))
    found["told"] = {
        "map": told_by(numbers),
        "stream": told_by(Plain()),
        "stream, workers": told_by(Plain(), num_workers=2),
        "shard, workers": told_by(Sharded(), num_workers=2),
    }
    end(how)
    Path(folder, f"{sampler.rank}.json").write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
