"""The programs: loops over a loader with different bottlenecks, before and after the advice.

Imports reader, and the works. A program is a function of how its loader works and of the options
that the verdict named; it makes a loop.
"""

from __future__ import annotations

import functools
import importlib.util
import itertools
import multiprocessing
import os
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import reader
from reader._core.batch.tensor_array import LoDTensorArray
from reader.config import LoaderConfig
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.loader import make_samplers
from reader.observe.face import ObservedFace
from reader.policy import BatchPolicy, Policy
from tools.late_device import Event, LateDevice
from tools.verdict_bench.memory_group import VARIABLE, MemoryGroup, made_group
from tools.verdict_bench.works import (
    FileSamples,
    Samples,
    compute,
    hold_gil,
    pictures,
    rest,
    slow_link,
)

__all__ = ["PROGRAMS", "Loop", "Program"]

KINDS: dict[str, dict[str, Any]] = {
    "0": {"num_workers": 0},
    "1": {"num_workers": 1},
    "2": {"num_workers": 2},
    "1 thread": {"num_workers": 1, "worker_type": "thread"},
    "2 threads": {"num_workers": 2, "worker_type": "thread"},
    "pool of 1": {"pool": 1},
    "pool of 2": {"pool": 2},
}


@dataclass
class Loop:
    """A loop over a loader.

    Attributes:
        loader: of this package; or any iterable, where nothing is profiled.
        step: called with each batch.
        epochs: how often.
        around: entered around the loop.
    """

    loader: Any
    step: Callable[[Any], None]
    epochs: int = 1
    around: AbstractContextManager[Any] = field(default_factory=nullcontext)


@dataclass(frozen=True)
class Program:
    """A program that is bound by one thing.

    Attributes:
        expected: the word of the verdict.
        kinds: of loaders that show it, see `KINDS`.
        make: called with the options of the loader, and whether what the verdict says was done;
            returns the loop.
        missing: says why it cannot run here; "": it can.
        around: entered by the process that starts the one it runs in.
    """

    expected: str
    kinds: tuple[str, ...]
    make: Callable[[dict[str, Any], bool], Loop]
    missing: Callable[[], str] = lambda: ""
    around: Callable[[], AbstractContextManager[Any]] = nullcontext


_ALL = ("0", "2", "2 threads")
_APART = ("2", "2 threads")


def _loader(options: dict[str, Any], data: Any, **arguments: Any) -> Any:
    """Return a loader: of this package, or what `made_by` of the options makes."""
    others = {name: value for name, value in options.items() if name != "made_by"}
    return options.get("made_by", reader.DataLoader)(data, **arguments, **others)


def _step(options: dict[str, Any], is_mended: bool) -> Loop:
    if is_mended:  # a loader that costs nothing
        return Loop([np.zeros((4, 16), np.float32)] * 80, lambda _: rest(0.01))
    return Loop(_loader(options, Samples(320), batch_size=4), lambda _: rest(0.01))


class SlowOrder:
    """A batch sampler that computes."""

    def __len__(self) -> int:
        return 120

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(120):
            hold_gil(0.008)
            yield [number]


def _sampler(options: dict[str, Any], is_mended: bool) -> Loop:
    order: Any = [[number] for number in range(120)] if is_mended else SlowOrder()
    loader = _loader(options, Samples(120), batch_sampler=order)
    return Loop(loader, lambda _: rest(0.004))


def _network(options: dict[str, Any], is_mended: bool) -> Loop:
    folder = tempfile.TemporaryDirectory()
    rows = [{"x": np.random.default_rng(k).bytes(100_000)} for k in range(160)]
    reader.write_shards(rows, folder.name, "mds", columns={"x": "bytes"}, shard_size="2MB")
    place = folder.name if is_mended else f"{slow_link(folder.name)}/index.json"
    how: dict[str, Any] = {"batch_size": 4, "shuffle": True, "seed": 0}
    loader = _loader(options, reader.Shards(place), **how)
    return Loop(loader, lambda _: rest(0.01), around=folder)


def _without_obstore() -> str:
    return "" if importlib.util.find_spec("obstore") else "obstore is not installed"


def _storage(options: dict[str, Any], _is_mended: bool) -> Loop:
    loader = _loader(options, Samples(400, rest, 0.005), batch_size=4)
    return Loop(loader, lambda _: rest(0.004))


def _dataset(options: dict[str, Any], is_mended: bool) -> Loop:
    data = Samples(240, compute, 0.0 if is_mended else 0.01)
    return Loop(_loader(options, data, batch_size=2), lambda _: rest(0.002))


def _dataset_and_step(options: dict[str, Any], is_mended: bool) -> Loop:
    data = Samples(160, compute, 0.0 if is_mended else 0.02)
    loader = _loader(options, data, batch_size=2)
    return Loop(loader, lambda _: compute(0.01))


def _workers(options: dict[str, Any], _is_mended: bool) -> Loop:
    data = Samples(200, compute, 0.01)
    return Loop(_loader(options, data, batch_size=2), lambda _: rest(0.005))


@contextmanager
def _loops_beside(loaders: list[Any], pool: reader.WorkerPool) -> Iterator[None]:
    """Iterate over loaders in threads, again and again; end the pool of their workers."""
    is_over = threading.Event()

    def run(loader: Any) -> None:
        while not is_over.is_set():
            for _ in loader:
                if is_over.is_set():
                    return

    threads = [threading.Thread(target=run, args=(each,)) for each in loaders]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        is_over.set()
        for thread in threads:
            thread.join()
        pool.close()


def _pool(options: dict[str, Any], _is_mended: bool) -> Loop:
    pool = reader.WorkerPool(options["pool"])
    loader = reader.DataLoader(Samples(320, rest, 0.005), batch_size=4, pool=pool)
    other = reader.DataLoader(Samples(1000, rest, 0.015), batch_size=4, pool=pool)
    others = [] if "is_alone" in options else [other]
    return Loop(loader, lambda _: rest(0.01), around=_loops_beside(others, pool))


def _sample(options: dict[str, Any], is_mended: bool) -> Loop:
    data = Samples(300, rest, 0.001, None if is_mended else {151: 1.0})
    return Loop(_loader(options, data, batch_size=3), lambda _: rest(0.004))


def _slow_ones(work: Callable[[float], None], slow: dict[int, float]) -> Callable[..., Loop]:
    """Return a function that makes a loop with some slow samples among quick ones."""

    def make(options: dict[str, Any], is_mended: bool) -> Loop:
        data = Samples(1200, slow=None if is_mended else slow, slow_work=work)
        return Loop(_loader(options, data, batch_size=32), lambda _: rest(0.01))

    return make


_ONE = {333: 1.5}
_THREE = {100: 0.6, 333: 0.7, 1001: 0.6}
_EACH_100TH = dict.fromkeys(range(37, 1200, 100), 0.1)


def _straggler(options: dict[str, Any], is_mended: bool) -> Loop:
    data = Samples(160, rest, 0.003, slow_worker=None if is_mended else 1)
    return Loop(_loader(options, data), lambda _: rest(0.001))


def _collate_by(work: Callable[[float], None], samples: list[Any]) -> Any:
    work(0.015)
    return np.stack(samples)


def _collate(options: dict[str, Any], is_mended: bool) -> Loop:
    work = compute if options.get("worker_type") == "thread" else hold_gil
    collate = None if is_mended else functools.partial(_collate_by, work)
    loader = _loader(options, Samples(480), batch_size=4, collate_fn=collate)
    return Loop(loader, lambda _: rest(0.002))


def _slow_collate(options: dict[str, Any], is_mended: bool) -> Loop:
    collate = None if is_mended else functools.partial(_collate_by, rest)
    loader = _loader(options, Samples(480), batch_size=4, collate_fn=collate)
    return Loop(loader, lambda _: rest(0.002))


def _gil(options: dict[str, Any], _is_mended: bool) -> Loop:
    loader = _loader(options, Samples(120, hold_gil, 0.015))
    return Loop(loader, lambda _: rest(0.001))


def _gil_of_the_step(options: dict[str, Any], _is_mended: bool) -> Loop:
    loader = _loader(options, Samples(100, hold_gil, 0.012))
    return Loop(loader, lambda _: hold_gil(0.015))


@contextmanager
def _crowd(count: int) -> Iterator[None]:
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=hold_gil, args=(60.0,), daemon=True) for _ in range(count)]
    for each in others:
        each.start()
    try:
        yield
    finally:
        for each in others:
            each.kill()
            each.join()


def _cores(options: dict[str, Any], is_mended: bool) -> Loop:
    count = 0 if is_mended else 2 * len(os.sched_getaffinity(0))
    loader = _loader(options, Samples(100, compute, 0.012))
    return Loop(loader, lambda _: rest(0.002), around=_crowd(count))


def _slow_begin(_worker_id: int) -> None:
    rest(0.3)


def _start(options: dict[str, Any], _is_mended: bool) -> Loop:
    loader = _loader(options, Samples(80), batch_size=4, worker_init_fn=_slow_begin)
    return Loop(loader, lambda _: rest(0.003), epochs=5)


def _prefetch(options: dict[str, Any], _is_mended: bool) -> Loop:
    count = itertools.count()

    def step(_batch: Any) -> None:
        if next(count) % 10 == 9:  # as one that validates now and then
            rest(0.1)

    options = {"prefetch_factor": 1, **options}
    return Loop(_loader(options, Samples(200, rest, 0.018)), step)


def _decoding(options: dict[str, Any], is_mended: bool) -> Loop:
    data = pictures(480, kept=is_mended)
    return Loop(_loader(options, data, batch_size=4), lambda _: rest(0.002))


def _transformed(picture: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    compute(0.01)
    return picture


def _cached(options: dict[str, Any], is_mended: bool) -> Loop:
    kept = reader.cache(pictures(240), memory="64MB")
    for index in range(len(kept)):
        kept[index]
    data = kept if is_mended else kept.map(_transformed)
    return Loop(_loader(options, data, batch_size=2), lambda _: rest(0.002))


class _SlowLink(LateDevice):
    """A device with copies of a given length, one after the other."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.free_s = 0.0
        self.due_s: dict[int, float] = {}

    def copy(self, batch: LoDTensorArray, event: Event, tensors: list[Any]) -> Any:
        self.free_s = max(self.free_s, time.monotonic()) + self.seconds
        self.due_s[id(event)] = self.free_s
        return super().copy(batch, event, tensors)

    def is_done(self, event: Event) -> bool:
        if event.copies and time.monotonic() < self.due_s[id(event)]:
            return False
        event.happen()
        return True

    def await_in_consumer(self, event: Event | None, tensors: list[Any]) -> None:
        """Make the stream of the device wait: the consumer does not."""


class _DeviceLoader(EngineFace, ObservedFace):
    """A loader whose batches land on a simulated device."""

    def __init__(self, data: Any, seconds: float, options: dict[str, Any]) -> None:
        config = LoaderConfig.build(data, is_iterable=False, batch_size=4, **options)
        policy = Policy(batch=BatchPolicy(make_adapter=lambda _: _SlowLink(seconds)))
        sampler, batch_sampler = make_samplers(config)
        self._engine = Engine(config, policy, sampler, batch_sampler)


def _transfer(options: dict[str, Any], is_mended: bool) -> Loop:
    loader = _DeviceLoader(Samples(320), 0.005 if is_mended else 0.02, options)
    return Loop(loader, lambda _: rest(0.006))


def _no_group() -> str:
    try:
        with made_group():
            return ""
    except OSError as error:
        return f"{error}: {VARIABLE}=FOLDER names one"


def _memory(options: dict[str, Any], is_mended: bool) -> Loop:
    group = MemoryGroup(Path(os.environ[VARIABLE]))
    group.limit(None)
    group.enter()
    data = FileSamples(400, 256 << 20)
    if not is_mended:  # the program fits, and the file does not: its pages are read again and again
        group.limit(group.used_bytes() - (32 << 20))
    loader = _loader(options, data, batch_size=4)
    return Loop(loader, lambda _: rest(0.001), epochs=2)


PROGRAMS = {
    "step": Program("step", _ALL, _step),
    "sampler": Program("sampler", _ALL, _sampler),
    "storage": Program("storage", _ALL, _storage),
    "network": Program("network", ("2", "2 threads"), _network, _without_obstore),
    "samples that compute": Program("dataset", _APART, _dataset),
    "samples and step compute": Program("dataset", ("2",), _dataset_and_step),
    "too few workers": Program("workers", ("0", "1", "1 thread"), _workers),
    "two loaders on a pool": Program("workers", ("pool of 1", "pool of 2"), _pool),
    "one slow sample": Program("sample", _ALL, _sample),
    "a slow one of many": Program("sample", _ALL, _slow_ones(rest, _ONE)),
    "a slow one that computes": Program("sample", _ALL, _slow_ones(compute, _ONE)),
    "three slow ones": Program("sample", _ALL, _slow_ones(rest, _THREE)),
    "three slow that compute": Program("sample", _ALL, _slow_ones(compute, _THREE)),
    "1 % are slow": Program("sample", _ALL, _slow_ones(rest, _EACH_100TH)),
    "1 % compute": Program("sample", _ALL, _slow_ones(compute, _EACH_100TH)),
    "one slow worker": Program("straggler", _APART, _straggler),
    "collate_fn": Program("collate", _ALL, _collate),
    "collate_fn that waits": Program("collate", _ALL, _slow_collate),
    "threads in Python": Program("gil", ("2 threads",), _gil),
    "a step that holds the GIL": Program("gil", ("2 threads",), _gil_of_the_step),
    "other programs": Program("cores", _ALL, _cores),
    "memory is short": Program("memory", _ALL, _memory, _no_group, made_group),
    "copies to a device": Program("transfer", _ALL, _transfer),
    "cold start": Program("start", _APART, _start),
    "prefetch too small": Program("prefetch", _APART, _prefetch),
    "decoding": Program("decoding", _APART, _decoding),
    "pictures from a cache": Program("dataset", _APART, _cached),
}
