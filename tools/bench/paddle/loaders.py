"""The two DataLoaders, opened alike, and what a row does with their batches.

Imports paddle; runs in a contestant's process only. It owns nothing: what is opened is its
caller's.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib import import_module
from typing import Any

import numpy as np
import paddle
from paddle.base import core

from tools.bench.floor import Layout, make_batch
from tools.bench.loaders import CONTESTANTS, Contestant, Opened, Through, dropping
from tools.bench.meter import descendants
from tools.bench.paddle.rows import OURS, Entry, Row
from tools.bench.touch import as_is
from tools.bench.works import MapDataset, Work

# What the program calls what it is fed.
INPUT = "x"
# Batches taken of an epoch before it is left.
TAKEN = 3
# Batches of an epoch that is never read to its end.
ENDLESS = 100_000


class Shared(paddle.io.IterableDataset[Any]):
    """A map-style dataset read in order; of N workers each reads every Nth batch."""

    def __init__(self, dataset: MapDataset, batch_size: int) -> None:
        super().__init__()
        self.dataset = dataset
        self.batch_size = batch_size

    def __iter__(self) -> Iterator[Any]:
        worker = paddle.io.get_worker_info()
        first, step = (0, 1) if worker is None else (worker.id, worker.num_workers)
        size = self.batch_size
        for start in range(first * size, len(self.dataset), step * size):
            for index in range(start, start + size):
                yield self.dataset[index]


def open_loader(entry: Entry, dataset: MapDataset, work: Work, **options: Any) -> Opened:
    """Open the entry's DataLoader on `dataset`; the arguments are the same for both."""
    loaders = [
        import_module(entry.face).DataLoader(
            Shared(dataset, work.batch_size) if entry.is_iterable else dataset,
            places=paddle.CPUPlace(),
            batch_size=work.batch_size,
            **entry.options,
            **options,
        )
    ]
    close = loaders[0].close if entry.face == OURS else dropping(loaders)
    return Opened(Through(loaders), close)


class Program:
    """A static program that looks at eight numbers of what it is fed, and its executor."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        paddle.enable_static()
        self.program = paddle.static.Program()  # type: ignore[no-untyped-call,unused-ignore]
        with paddle.static.program_guard(self.program):
            self.input = paddle.static.data(INPUT, [None, *shape[1:]], "float32")
            self.output = self.input[(0,) * (len(shape) - 1)][:8].mean()
        self.executor = paddle.static.Executor(paddle.CPUPlace())

    def step(self, feed: Any) -> None:
        """Run it once."""
        self.executor.run(self.program, feed=feed, fetch_list=[self.output])


class Fed:
    """One epoch: the program is run on each batch in turn. Yields nothing to touch."""

    def __init__(self, program: Program, batches: Any) -> None:
        self.program = program
        self.batches = batches

    def __iter__(self) -> Iterator[tuple[()]]:
        for batch in self.batches:
            self.program.step(batch)
            yield ()


class Feeds:
    """One epoch without a loader: so many feeds of one batch, as `make` hands it over."""

    def __init__(self, count: int, make: Callable[[], Any]) -> None:
        self.count = count
        self.make = make

    def __iter__(self) -> Iterator[Mapping[str, Any]]:
        for _ in range(self.count):
            yield {INPUT: self.make()}


def _feeds(how: str, dataset: MapDataset, work: Work) -> Feeds:
    """Stack one batch, and hand it over again and again in the way called `how`."""
    layout = Layout(dataset[0], work.batch_size)
    (shape, dtype, _), *_ = layout.fields
    array = np.empty(shape, dtype)
    make_batch(dataset, layout, 0, layout.rows([array]))
    made = core.DenseTensor()
    made.set(array, core.CPUPlace(), True)

    def copy() -> Any:
        fresh = core.DenseTensor()
        fresh.set(array, core.CPUPlace())
        return fresh

    ways: dict[str, Callable[[], Any]] = {
        "again": lambda: made,
        "array": lambda: array,
        "copy": copy,
    }
    return Feeds(len(dataset) // work.batch_size, ways[how])


def open_fed(entry: Entry, program: Program, dataset: MapDataset, work: Work) -> Opened:
    """Open epochs of steps of `program`, fed by the entry's DataLoader, or without one."""
    if not entry.face:
        return Opened(Fed(program, _feeds(entry.name, dataset, work)), lambda: None)
    opened = open_loader(entry, dataset, work, feed_list=[program.input], return_list=False)
    return Opened(Fed(program, opened.batches), opened.close)


def contestant_of(row: Row, entry: Entry) -> Contestant:
    """Return the entry as a contestant on the row's work."""
    tensors = CONTESTANTS["paddle"]
    if row.kind != "feed":
        return Contestant(
            entry.name,
            entry.title,
            tensors.needs,
            partial(open_loader, entry),
            tensors.view,
            tensors.clone,
        )
    shape = Layout(row.work.dataset(1)[0], row.work.batch_size).fields[0][0]
    return Contestant(
        entry.name,
        entry.title,
        tensors.needs,
        partial(open_fed, entry, Program(shape)),
        as_is,
        as_is,
    )


class BreakRun:
    """Epochs that are left early: each turn leaves one and begins the next."""

    def __init__(self, entry: Entry, work: Work) -> None:
        self.opened = open_loader(entry, work.dataset(ENDLESS * work.batch_size), work)
        self.iterator: Iterator[Any] | None = iter(self.opened.batches)
        self.batch = next(self.iterator)
        self.usual = len(descendants(os.getpid()))
        self.facts: Mapping[str, Any] = {"batches": TAKEN}

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Take some batches, break, and wait for the first batch of another epoch.

        What the break of the turn before left running is counted first: it had a round to end.
        """
        del is_touching
        left = len(descendants(os.getpid())) - self.usual
        if self.iterator is not None:
            for _ in range(TAKEN):
                self.batch = next(self.iterator)
        start = time.perf_counter_ns()
        self.iterator = None
        self.iterator = iter(self.opened.batches)
        self.batch = next(self.iterator)
        return {"us": (time.perf_counter_ns() - start) / 1e3, "left": left}

    def close(self) -> None:
        """Leave the last epoch too."""
        self.iterator = self.batch = None
        self.opened.close()
