"""Measure workers on Ray beside bare loops of `ray.get` of the same batches.

Run as ``python -m tools.cluster_bench`` in the environment of `make cluster`: three nodes on this
machine. It prints a table: microseconds a batch, medians of rounds in turns, and what of a core the
trainer takes.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

__all__ = ["main"]

_WORKERS = 3
_CALLS = 2  # of each actor in flight, in the bare loop
_MANY = 16  # batches of a call, in the bare loop of grouped calls


class Samples:
    """Arrays of one size.

    Args:
        count: of samples.
        shape: of each.
    """

    def __init__(self, count: int, shape: tuple[int, ...]) -> None:
        self.count, self.shape = count, shape
        self.made = np.ones(shape, np.uint8)

    def __len__(self) -> int:
        """The number of samples."""
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        """Return the same array for each index."""
        return self.made


WORKS = {"tiny": ((16,), 16, 4000), "text": ((2048,), 32, 2000), "image": ((224, 224, 3), 256, 40)}


class Maker:
    """An actor that stacks batches, as a program would write it."""

    def __init__(self, shape: tuple[int, ...], size: int) -> None:
        self._dataset, self._size = Samples(1, shape), size

    def batches(self, count: int) -> list[np.ndarray]:
        """Return so many batches."""
        return [np.stack([self._dataset[0] for _ in range(self._size)]) for _ in range(count)]


def bare(ray: Any, shape: tuple[int, ...], size: int, count: int, group: int) -> Iterator[Any]:
    """Yield batches of a bare loop of `ray.get`."""
    kind = ray.remote(Maker).options(num_cpus=1, scheduling_strategy="SPREAD")
    makers = [kind.remote(shape, size) for _ in range(_WORKERS)]
    ray.get([maker.batches.remote(1) for maker in makers])
    yield None
    calls: deque[Any] = deque()
    sent = done = 0
    while done < count:
        while len(calls) < _CALLS * _WORKERS and sent < count:
            calls.append(makers[sent // group % _WORKERS].batches.remote(group))
            sent += group
        for batch in ray.get(calls.popleft()):
            done += 1
            yield batch


def ours(address: str, shape: tuple[int, ...], size: int, count: int) -> Iterator[Any]:
    """Yield batches of a loader with remote workers."""
    from reader import DataLoader, Ray

    with DataLoader(
        Samples(count * size, shape),
        batch_size=size,
        num_workers=_WORKERS,
        prefetch_factor=2 if size == 256 else 128,
        backend=Ray(address=address),
    ) as loader:
        for _ in loader:
            pass
        yield None
        yield from loader


def timed(batches: Iterator[Any]) -> tuple[float, float]:
    """Return microseconds, and those of this thread's processor, for each batch."""
    next(batches)
    began, used, count = time.perf_counter(), time.thread_time(), 0
    for _ in batches:
        count += 1
    return (time.perf_counter() - began) / count * 1e6, (time.thread_time() - used) / count * 1e6


def main(arguments: list[str] | None = None) -> None:
    """Run the works; see above."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    options = parser.parse_args(arguments)
    import ray
    from ray.cluster_utils import Cluster

    store = {"object_store_memory": 1 << 30}
    cluster = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, **store}
    )
    for _ in range(2):
        cluster.add_node(num_cpus=2, **store)
    ray.init(address=cluster.address, log_to_driver=False)
    print("| work | ray.get, a call each | grouped | reader | of ray.get | trainer's CPU |")
    print("|---|---|---|---|---|---|")
    try:
        for name in options.works:
            shape, size, count = WORKS[name]
            group = _MANY if size < 256 else 1
            runs: dict[str, Callable[[], Iterator[Any]]] = {
                "each": functools.partial(bare, ray, shape, size, count, 1),
                "grouped": functools.partial(bare, ray, shape, size, count, group),
                "reader": functools.partial(ours, cluster.address, shape, size, count),
            }
            found: dict[str, list[tuple[float, float]]] = {key: [] for key in runs}
            for _ in range(options.rounds):
                for key, run in runs.items():
                    found[key].append(timed(run()))
            wall = {key: statistics.median(w for w, _ in each) for key, each in found.items()}
            used = {key: statistics.median(u for _, u in each) for key, each in found.items()}
            print(
                f"| {name} | {wall['each']:.0f} us | {wall['grouped']:.0f} | {wall['reader']:.0f}"
                f" | {wall['each'] / wall['reader']:.2f} | {used['each']:.0f} and"
                f" {used['reader']:.0f} us |"
            )
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main()
