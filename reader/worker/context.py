"""The worker as the user's code sees it.

Imports `reader.random.seeds`, `reader.errors` and this package's rng. The state is one per thread:
a worker process has one, a worker thread of the trainer another, and the trainer's own threads have
none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from reader.errors import ReaderError
from reader.random import seeds
from reader.worker.rng import WorkerRng

__all__ = ["WorkerInfo", "get_worker_info", "sample_rng"]


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its own code sees it.

    `id` counts from 0 to `num_workers` - 1; `dataset` is this process's copy, or with worker
    threads the loader's own; `seed` is the seed of this worker's random state at its start,
    different in each worker. `worker_type` is "process" or "thread". `rng` has the generators of a
    worker thread (see WorkerRng), and is None in a process, which has its own.
    """

    id: int
    num_workers: int
    dataset: Any = dataclasses.field(repr=False)
    seed: int
    worker_type: str = "process"
    rng: WorkerRng | None = None


class _State(threading.local):
    info: WorkerInfo | None = None
    task: tuple[int, int] | None = None  # (base seed, epoch) of the current batch
    refused: str | None = None  # why `sample_rng` refuses now


_state = _State()


def set_worker_info(info: WorkerInfo | None) -> None:
    """Set the result of `get_worker_info` in this thread."""
    _state.info = info


def set_task(base_seed: int, epoch: int) -> None:
    """Set the key of `sample_rng` in this thread."""
    _state.task = (base_seed, epoch)


def loader_task() -> tuple[int, int] | None:
    """Return (base seed, epoch) of the loader that fetches in this thread; None: no loader does."""
    return _state.task


@contextlib.contextmanager
def no_sample_rng(why: str) -> Iterator[None]:
    """Make `sample_rng` raise an error in this thread: its numbers would do harm."""
    before, _state.refused = _state.refused, why
    try:
        yield
    finally:
        _state.refused = before


class Repetition:
    """Gives `sample_rng` other numbers in this thread: samples come again in their epoch.

    Args:
        number: how often they came before; 0 changes nothing.
        count: how many samples come again. It tells a repetition from one inside of it, which is
            of fewer.
    """

    __slots__ = ("_before", "_count", "_number")

    def __init__(self, number: int, count: int) -> None:
        self._number, self._count = number, count

    def __enter__(self) -> None:
        self._before = _state.task
        if self._before is not None and self._number:
            base_seed, epoch = self._before
            _state.task = (seeds.repetition_seed(base_seed, self._number, self._count), epoch)

    def __exit__(self, *_: object) -> None:
        _state.task = self._before


def is_refused() -> bool:
    """Whether `sample_rng` refuses in this thread now."""
    return _state.refused is not None


def entered() -> tuple[WorkerInfo | None, tuple[int, int] | None]:
    """Let this thread do a task of a loader without workers; returns the argument of `leave`.

    The thread may itself be a worker's, whose dataset iterates over that loader.
    """
    state = _state
    before = state.info, state.task
    state.info = None
    return before


def leave(before: tuple[WorkerInfo | None, tuple[int, int] | None]) -> None:
    """Restore this thread's state."""
    state = _state
    state.info, state.task = before


def get_worker_info() -> WorkerInfo | None:
    """Return the WorkerInfo of the worker process or worker thread that calls, None in the trainer.

    Also None with `num_workers=0`, as in Paddle and PyTorch: the dataset then runs in the trainer's
    process. May be called from the dataset, `collate_fn` and `worker_init_fn`.
    """
    return _state.info


def sample_rng(index: int) -> np.random.Generator:
    """Return the random generator of one sample, keyed by (seed, epoch, `index`).

    The numbers are the same in any worker, with any number of workers, and in any run with the same
    `seed=` of the loader. Without `seed=` the loader draws a seed when it is made. Call it from the
    dataset or `collate_fn`, in the thread in which the loader calls them.

    Args:
        index: the dataset index of the sample.

    Raises:
        ReaderError: no loader is fetching in this thread, or `reader.cache` keeps the samples.

    >>> class Noise:
    ...     def __len__(self):
    ...         return 4
    ...     def __getitem__(self, index):
    ...         return sample_rng(index).normal(size=3)
    >>> from reader import DataLoader
    >>> once, again = (list(DataLoader(Noise(), seed=1, num_workers=n)) for n in (0, 2))
    >>> all((a == b).all() for a, b in zip(once, again))
    True
    """
    if _state.refused is not None:
        raise ReaderError(f"sample_rng() gives no numbers {_state.refused}")
    if _state.task is None:
        raise ReaderError(
            "sample_rng() works only while a DataLoader fetches in this thread; in other code use"
            " numpy.random.default_rng(seed)"
        )
    base_seed, epoch = _state.task
    return seeds.sample_rng(base_seed, epoch, index)
