"""Measure the Gluon face and ragged, bucketed batches beside the code that they replace.

    python -m tools.gluon_bench [--rounds 5] [--json FILE]

Each work is measured for all contestants in turns, in one run; medians of the rounds are shown. The
loaders of MXNet and PyTorch are measured where they are installed. A consumer takes the batches and
waits for what the library computes in the background; it copies nothing.
"""

from __future__ import annotations

import importlib.util
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from reader import BucketBatchSampler, DataLoader, get_worker_info
from reader.collate import Pad
from reader.compat import gluon
from reader.compat.gluon.nlp import ShardedDataLoader
from tools.turns import Report, command_line, in_turns, medians

Run = Callable[[], float]  # one round: seconds per batch, or of the measured action
Contestants = dict[str, Run]

WORKERS = 2
_SAMPLES = 2**16  # numbers that a hard sample sorts: about as much work as decoding an image


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    report = Report(command_line("gluon_bench", __doc__).parse_args())
    found: dict[str, dict[str, float]] = {}
    for name, contestants in works():
        found[name] = medians(in_turns(contestants, report.rounds))
        print(line(name, found[name]), flush=True)
    report.show("", found)
    return 0


def line(name: str, figures: dict[str, float]) -> str:
    """Return a row of the table: the first contestant's time, and the others' ratios to it."""
    (ours, first), *others = figures.items()
    ratios = ", ".join(
        f"{each} {value / first:.1f} times" if value > first else f"{each} {value * 1e6:,.0f} us"
        for each, value in others
    )
    return f"{name}: {ours} {first * 1e6:,.0f} us" + (f"; {ratios}" if ratios else "")


def works() -> Iterator[tuple[str, Contestants]]:
    """Yield each work with its contestants; what they need is made when it is its turn."""
    rows = [(np.full(8, i, "f4"), i) for i in range(6400)]
    yield "32 rows of 8 numbers and a label", loaders(rows, 32)
    images = np.random.default_rng(0).random((1024, 3, 224, 224), "f4")
    yield "64 images of 224 x 224", loaders(images, 64)
    del images
    yield "the CPU seconds behind a step of 4 shards, 4 workers", shards()
    yield "32 texts of 8 to 512 tokens, padded", texts()
    yield "10^7 lengths: the first bucketed batch", buckets()


def loaders(data: Any, batch_size: int) -> Contestants:
    """Return Gluon's loaders and ours, with warm workers."""
    made: dict[str, Any] = {"reader": gluon.DataLoader(data, batch_size, num_workers=WORKERS)}
    settle: Callable[[], None] = _nothing
    if importlib.util.find_spec("mxnet"):
        import mxnet as mx

        theirs = mx.gluon.data.DataLoader
        made["Gluon"] = theirs(data, batch_size, num_workers=WORKERS)
        made["Gluon, threads"] = theirs(data, batch_size, num_workers=WORKERS, thread_pool=True)
        settle = mx.nd.waitall
    return {name: _epoch_of(loader, settle) for name, loader in made.items()}


def _nothing() -> None:
    pass


def _epoch_of(loader: Any, settle: Callable[[], None]) -> Run:
    for _ in loader:
        pass

    def run() -> float:
        began, count = time.perf_counter(), 0
        for _ in loader:
            count += 1
        settle()
        return (time.perf_counter() - began) / count

    return run


class Hard:
    """Samples that take some milliseconds of computing; each tells its worker and CPU seconds."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> tuple[int, float]:
        began = time.thread_time()
        np.sort(np.random.default_rng(index).random(_SAMPLES))
        info = get_worker_info()
        return 0 if info is None else info.id, time.thread_time() - began


def shards() -> Contestants:
    """Return the CPU seconds of the worker that a step of 4 shards waits for, and of one task.

    With as many processors as workers that is the time of a step.
    """
    steps = [[list(range(k, k + 4)) for k in range(s, s + 16, 4)] for s in (0, 16, 32, 48)]
    one_task = [[index for shard in step for index in shard] for step in steps]
    loaders = {
        "a worker for each shard": ShardedDataLoader(
            Hard(), batch_sampler=steps, num_workers=4, framework="numpy"
        ),
        "one task for all": gluon.DataLoader(
            Hard(), batch_sampler=one_task, num_workers=4, framework="numpy"
        ),
    }
    return {name: _longest_of(loader) for name, loader in loaders.items()}


def _longest_of(loader: Any) -> Run:
    def run() -> float:
        longest = []
        for step in loader:
            seconds: dict[int, float] = {}
            for workers, times in step if isinstance(step[0], list) else [step]:
                for worker, each in zip(workers.tolist(), times.tolist(), strict=True):
                    seconds[worker] = seconds.get(worker, 0) + each
            longest.append(max(seconds.values()))
        return sum(longest) / len(longest)

    return run


def texts() -> Contestants:
    """Return padded texts: of the loader with Pad, and of PyTorch's with pad_sequence."""
    lengths = np.random.default_rng(0).integers(8, 513, 4096)
    arrays = [np.arange(length) for length in lengths.tolist()]
    found = {
        "reader": _epoch_of(
            DataLoader(
                arrays,
                batch_size=32,
                collate_fn=Pad(),
                num_workers=WORKERS,
                persistent_workers=True,
            ),
            _nothing,
        )
    }
    if importlib.util.find_spec("torch"):
        import torch
        from torch.nn.utils.rnn import pad_sequence
        from torch.utils.data import DataLoader as TorchLoader

        tensors = [torch.from_numpy(array) for array in arrays]
        loader: Any = TorchLoader(
            tensors,  # type: ignore[arg-type]
            32,
            collate_fn=_Padded(pad_sequence),
            num_workers=WORKERS,
            persistent_workers=True,
        )
        found["PyTorch"] = _epoch_of(loader, _nothing)
    return found


class _Padded:
    """PyTorch's pad_sequence, with the batch first."""

    def __init__(self, pad_sequence: Any) -> None:
        self._pad_sequence = pad_sequence

    def __call__(self, samples: list[Any]) -> Any:
        return self._pad_sequence(samples, batch_first=True)


def buckets() -> Contestants:
    """Return how long it takes to make a sampler of many lengths, and to resume it."""
    lengths = np.random.default_rng(0).integers(1, 1000, 10**7)
    samplers: list[Any] = []

    def make() -> float:
        began = time.perf_counter()
        sampler = BucketBatchSampler(lengths, max_tokens=16000, seed=1)
        next(iter(sampler))
        samplers[:] = [sampler]
        return time.perf_counter() - began

    def resume() -> float:
        sampler = samplers[0]
        began = time.perf_counter()
        next(sampler.iter_from(len(sampler) // 2))
        return time.perf_counter() - began

    return {"made": make, "resumed in the middle": resume}


if __name__ == "__main__":
    raise SystemExit(main())
