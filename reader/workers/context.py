"""What code of the user can ask about the worker it runs in.

Imports `reader.data.seeds`, `reader.errors` and this room's rng. The state is one per thread: a
worker process has one, a worker thread of the trainer another, and the trainer's own threads have
none.
"""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from reader.data import seeds
from reader.errors import ReaderError
from reader.workers.rng import WorkerRng

__all__ = ["WorkerInfo", "get_worker_info", "sample_rng"]


@dataclasses.dataclass(frozen=True, slots=True)
class WorkerInfo:
    """A worker as its own code sees it.

    `id` counts from 0 to `num_workers` - 1; `dataset` is this process's copy, and with worker
    threads the loader's own; `seed` is the number this worker's random state was seeded with at its
    start, another for each worker. `worker_type` is "process" or "thread"; `rng` has the generators
    of a worker thread (see WorkerRng), and is None in a process, where the global ones are its own.
    """

    id: int
    num_workers: int
    dataset: Any = dataclasses.field(repr=False)
    seed: int
    worker_type: str = "process"
    rng: WorkerRng | None = None


class _State(threading.local):
    info: WorkerInfo | None = None
    task: tuple[int, int] | None = None  # (base seed, epoch) of the batch in hand


_state = _State()


def enter_worker(info: WorkerInfo | None) -> None:
    """Set what `get_worker_info` answers in this thread."""
    _state.info = info


def enter_task(base_seed: int, epoch: int) -> None:
    """Set what `sample_rng` is keyed by in this thread."""
    _state.task = (base_seed, epoch)


@contextlib.contextmanager
def in_task() -> Iterator[None]:
    """Leave a task that is entered within, for one that this thread was in before, or none."""
    before = _state.task
    try:
        yield
    finally:
        _state.task = before


def get_worker_info() -> WorkerInfo | None:
    """Return the WorkerInfo of the worker process or worker thread that calls, None in the trainer.

    Also None with `num_workers=0`, as in Paddle and PyTorch: the dataset then runs in the trainer's
    process. May be called from the dataset, `collate_fn` and `worker_init_fn`.
    """
    return _state.info


def sample_rng(index: int) -> np.random.Generator:
    """Return the random generator of one sample, keyed by (seed, epoch, `index`).

    Whoever makes the sample gets the same numbers: any worker, any number of workers, any run with
    the same `seed=` of the loader. Without `seed=` the loader draws a seed of its own when it is
    made. To be called from the dataset or `collate_fn`, in the thread that the loader calls.

    Args:
        index: the dataset index of the sample.

    Raises:
        ReaderError: no loader is fetching in this thread.

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
    if _state.task is None:
        raise ReaderError(
            "sample_rng() works only while a DataLoader fetches in this thread; in other code use"
            " numpy.random.default_rng(seed)"
        )
    base_seed, epoch = _state.task
    return seeds.sample_rng(base_seed, epoch, index)
