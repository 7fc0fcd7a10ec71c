"""Measure workers on Ray beside bare loops of `ray.get`, `ray.data` and torch in actors.

Run as ``python -m tools.cluster_bench`` in the environment of `make cluster`: three nodes on this
machine. It prints a table: microseconds a batch, medians of rounds in turns, what of a core the
trainer takes, and the most that lay in the object stores. `ray.data` needs pyarrow and pandas;
where torch is missing it gives arrays (iter_batches), and torch's loader is left out.
"""

from __future__ import annotations

import functools
import importlib.util
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tools.local_cluster import LocalCluster
from tools.turns import Report, command_line, in_turns, markdown, medians

__all__ = ["main"]

_WORKERS = 3
_STORE_NBYTES = 1 << 30  # of each node
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


def ray_data(shape: tuple[int, ...], size: int, count: int) -> Iterator[Any]:
    """Yield batches of a pipeline of `ray.data`."""
    from ray import data

    made = np.ones((size, *shape), np.uint8)

    def stack(rows: dict[str, Any]) -> dict[str, Any]:
        return {"made": np.stack([made[0] for _ in rows["id"]])}

    data.DataContext.get_current().enable_progress_bars = False
    blocks = min(count, 4 * _WORKERS)
    table = data.range(count * size, override_num_blocks=blocks)
    table = table.map_batches(stack, batch_size=size, num_cpus=1)
    batches = table.iter_torch_batches if _has("torch") else table.iter_batches
    found = iter(batches(batch_size=size, prefetch_batches=2))
    next(found)  # its tasks have started
    yield None
    yield from found


class TorchLoader:
    """An actor in which torch's loader runs, with one worker."""

    def __init__(self, shape: tuple[int, ...], size: int, count: int) -> None:
        from torch.utils.data import DataLoader

        dataset: Any = Samples(count * size, shape)
        loader: Any = DataLoader(
            dataset,
            batch_size=size,
            num_workers=1,
            collate_fn=functools.partial(np.stack, axis=0),
        )
        self._batches = iter(loader)

    def next(self) -> Any:
        """Return the next batch."""
        return next(self._batches)


def torch_actors(ray: Any, shape: tuple[int, ...], size: int, count: int) -> Iterator[Any]:
    """Yield batches of torch's loaders in actors, each with its share."""
    kind = ray.remote(TorchLoader).options(num_cpus=1, scheduling_strategy="SPREAD")
    part = -(-count // _WORKERS) + 1
    loaders = [kind.remote(shape, size, part) for _ in range(_WORKERS)]
    ray.get([loader.next.remote() for loader in loaders])
    yield None
    calls: deque[Any] = deque()
    sent = done = 0
    while done < count:
        while len(calls) < _CALLS * _WORKERS and sent < count:
            calls.append(loaders[sent % _WORKERS].next.remote())
            sent += 1
        done += 1
        yield ray.get(calls.popleft())


def _has(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


class Store:
    """The most bytes in the object stores of a cluster, sampled now and then."""

    def __init__(self, ray: Any, whole: int) -> None:
        self._ray, self._whole = ray, whole
        self._end = threading.Event()
        self.most = 0.0

    def __enter__(self) -> Store:
        self._thread = threading.Thread(target=self._look)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._end.wait(0.05):
            free = self._ray.available_resources().get("object_store_memory", self._whole)
            self.most = max(self.most, self._whole - free)


def ours(address: str, shape: tuple[int, ...], size: int, count: int) -> Iterator[Any]:
    """Yield batches of a loader with remote workers, with its defaults."""
    from reader import DataLoader, Ray

    with DataLoader(
        Samples(count * size, shape),
        batch_size=size,
        num_workers=_WORKERS,
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
    parser = command_line("cluster_bench", __doc__)
    parser.add_argument("works", nargs="*", default=list(WORKS))
    options = parser.parse_args(arguments)
    report = Report(options)
    import ray

    with LocalCluster(store_nbytes=_STORE_NBYTES) as cluster:
        ray.init(address=cluster.address, log_to_driver=False)
        try:
            found = {name: _measured(ray, cluster, name, options.rounds) for name in options.works}
        finally:
            ray.shutdown()
    report.show(_table(found), found)


def _measured(ray: Any, cluster: LocalCluster, name: str, rounds: int) -> dict[str, Any]:
    """Run a work by each, in turns; return the medians."""
    shape, size, count = WORKS[name]
    group = _MANY if size < 256 else 1
    runs: dict[str, Callable[[], Iterator[Any]]] = {
        "ray.get, a call each": functools.partial(bare, ray, shape, size, count, 1),
        "ray.get, grouped": functools.partial(bare, ray, shape, size, count, group),
    }
    if _has("pyarrow"):
        way = "iter_torch_batches" if _has("torch") else "iter_batches"
        runs[f"ray.data, {way}"] = functools.partial(ray_data, shape, size, count)
    if _has("torch"):
        runs["torch, in actors"] = functools.partial(torch_actors, ray, shape, size, count)
    runs["reader"] = functools.partial(ours, cluster.address, shape, size, count)

    def turn(run: Callable[[], Iterator[Any]]) -> dict[str, float]:
        with Store(ray, 3 * _STORE_NBYTES) as store:
            wall_us, cpu_us = timed(run())
        return {"wall_us": wall_us, "cpu_us": cpu_us, "stored": store.most}

    turns = {key: functools.partial(turn, run) for key, run in runs.items()}
    return medians(in_turns(turns, rounds))


def _table(found: dict[str, dict[str, Any]]) -> str:
    rows = [
        [
            name,
            key,
            f"{each['wall_us']:.0f}",
            f"{each['wall_us'] / works['reader']['wall_us']:.2f} times as fast",
            f"{each['cpu_us']:.0f}",
            f"{each['stored'] / 1e6:.0f} MB",
        ]
        for name, works in found.items()
        for key, each in works.items()
    ]
    head = ["work", "from", "us a batch", "reader is", "trainer's CPU, us", "stores at most"]
    return markdown(head, rows)


if __name__ == "__main__":
    main()
