"""The loaders side by side: how each is opened on a work, read and closed.

Each adapter uses the loader's documented public face, with two worker processes that persist
where the loader can, two batches in flight for each, and batches in order. Frameworks are
imported when a contestant is opened, in a process of its own; this module owns no state.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from tools.bench.floor import Floor, Layout, make_batch
from tools.bench.touch import View, as_is, through_dlpack, through_numpy
from tools.bench.works import MapDataset, Work

WORKERS = 2
PREFETCH = 2


@dataclass
class Opened:
    """A loader that is ready to be iterated, epoch after epoch.

    Attributes:
        batches: Iterating it is one epoch.
        close: Ends its workers.
    """

    batches: Iterable[Any]
    close: Callable[[], None]


@dataclass(frozen=True)
class Contestant:
    """One loader of the comparison.

    Attributes:
        name: What the command line and the results call it.
        title: What the table and the chart call it.
        needs: Modules without which it cannot run.
        open: Opens it on a dataset.
        view: Shows the bytes of a field without a copy.
        clone: Copies a field into private memory.
        is_peer: Whether it takes part only when asked for.
        works: Names of the works it takes part in; None: all.
    """

    name: str
    title: str
    needs: tuple[str, ...]
    open: Callable[[MapDataset, Work], Opened]
    view: View
    clone: Callable[[Any], Any]
    is_peer: bool = False
    works: tuple[str, ...] | None = None

    def missing(self) -> list[str]:
        """Name the modules it needs that are not installed."""
        return [module for module in self.needs if find_spec(module.partition(".")[0]) is None]


def dropping(loaders: list[Any]) -> Callable[[], None]:
    """Close a loader that has no ``close``: forget the only reference to it."""

    def close() -> None:
        loaders.clear()
        gc.collect()

    return close


class Through:
    """Iterates what a list holds, so that the list alone keeps the loader."""

    def __init__(self, loaders: list[Any]) -> None:
        self.loaders = loaders

    def __iter__(self) -> Iterator[Any]:
        return iter(self.loaders[0])


def _reader(framework: str) -> Callable[[MapDataset, Work], Opened]:
    def open_reader(dataset: MapDataset, work: Work) -> Opened:
        loader = import_module("reader").DataLoader(
            dataset,
            batch_size=work.batch_size,
            num_workers=WORKERS,
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            start_method="fork",
            framework=framework,
        )
        return Opened(loader, loader.close)

    return open_reader


def _torch(dataset: MapDataset, work: Work) -> Opened:
    loaders = [
        import_module("torch.utils.data").DataLoader(
            dataset,
            batch_size=work.batch_size,
            num_workers=WORKERS,
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            multiprocessing_context="fork",
        )
    ]
    return Opened(Through(loaders), dropping(loaders))


def _paddle(dataset: MapDataset, work: Work) -> Opened:
    paddle = import_module("paddle")
    loaders = [
        paddle.io.DataLoader(
            dataset,
            batch_size=work.batch_size,
            num_workers=WORKERS,
            prefetch_factor=PREFETCH,
            persistent_workers=True,
            use_shared_memory=True,
            return_list=True,
            places=paddle.CPUPlace(),
        )
    ]
    return Opened(Through(loaders), dropping(loaders))


def _floor(dataset: MapDataset, work: Work) -> Opened:
    floor = Floor(dataset, work.batch_size, WORKERS, PREFETCH)
    return Opened(floor, floor.close)


class _Shard:
    """Every second batch of an epoch, made in the process that iterates it."""

    def __init__(self, dataset: MapDataset, batch_size: int, worker: int) -> None:
        self.dataset, self.batch_size, self.worker = dataset, batch_size, worker
        self.layout = Layout(dataset[0], batch_size)

    def __iter__(self) -> Iterator[Any]:
        layout = self.layout
        for number in range(self.worker, len(self.dataset) // self.batch_size, WORKERS):
            views = [np.empty(shape, dtype) for shape, dtype, _ in layout.fields]
            make_batch(self.dataset, layout, number * self.batch_size, layout.rows(views))
            yield layout.batch(views)


class _InTurn:
    """Reads several iterables in turn until the first of them ends."""

    def __init__(self, parts: list[Any]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Any]:
        iterators = [iter(part) for part in self.parts]
        while True:
            for iterator in iterators:
                try:
                    batch = next(iterator)
                except StopIteration:
                    return
                yield batch
                del batch


def _spdl(dataset: MapDataset, work: Work) -> Opened:
    pipeline = import_module("spdl.pipeline")
    # Its fastest transport: one process for each shard, and recycled shared segments.
    nbytes = Layout(dataset[0], work.batch_size).nbytes
    parts: list[Any] = [
        pipeline.iterate_in_subprocess(
            partial(_Shard, dataset, work.batch_size, worker),
            buffer_size=PREFETCH,
            mp_context="fork",
            arena=pipeline.SharedMemorySegmentPool(nbytes, PREFETCH + 3),
        )
        for worker in range(WORKERS)
    ]
    return Opened(_InTurn(parts), dropping(parts))


def _grain(dataset: MapDataset, work: Work) -> Opened:
    grain = import_module("grain")
    flags = import_module("absl.flags")
    if not flags.FLAGS.is_parsed():
        flags.FLAGS(["bench"])
    # Samples are in memory, so reading threads inside the workers would only cost.
    loaders = [
        grain.MapDataset.source(dataset)
        .batch(work.batch_size)
        .to_iter_dataset(grain.ReadOptions(num_threads=0, prefetch_buffer_size=0))
        .mp_prefetch(
            grain.MultiprocessingOptions(num_workers=WORKERS, per_worker_buffer_size=PREFETCH)
        )
    ]
    return Opened(Through(loaders), dropping(loaders))


def _clone_torch(field: Any) -> Any:
    return field.clone()


CONTESTANTS = {
    contestant.name: contestant
    for contestant in (
        Contestant(
            "reader-numpy", "reader (numpy)", ("reader",), _reader("numpy"), as_is, np.array
        ),
        Contestant(
            "reader-torch",
            "reader (torch)",
            ("reader", "torch"),
            _reader("torch"),
            through_numpy,
            _clone_torch,
        ),
        Contestant(
            "reader-paddle",
            "reader (paddle)",
            ("reader", "paddle"),
            _reader("paddle"),
            through_dlpack,
            _clone_torch,
        ),
        Contestant("torch", "PyTorch", ("torch",), _torch, through_numpy, _clone_torch),
        Contestant("paddle", "Paddle", ("paddle",), _paddle, through_dlpack, _clone_torch),
        Contestant("floor", "bare floor", (), _floor, as_is, np.array),
        Contestant("spdl", "SPDL", ("spdl.pipeline",), _spdl, as_is, np.array, is_peer=True),
        Contestant("grain", "Grain", ("grain",), _grain, as_is, np.array, is_peer=True),
    )
}

# Measured by a program of its own: it hands no batch to anyone.
DECODE = "decode"
