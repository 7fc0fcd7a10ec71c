"""The worker's loop: take a task, make its batch, answer; one loop for processes and threads.

Imports this room's context and fetch, the channel, seeds and failures. It runs in the worker's main
thread and prints nothing: whatever goes wrong is an answer that the trainer reports.
"""

from __future__ import annotations

import dataclasses
import pickle
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from reader._core.channel import TaskKind, WorkerChannel
from reader.data import seeds
from reader.data.epochs import tell_epoch
from reader.data.exception_codec import encode
from reader.data.failure import traceback_text
from reader.errors import ArenaFull
from reader.workers import context
from reader.workers.fetch import Fetcher
from reader.workers.stream import Stream, StreamFetcher

__all__ = ["CollateRules", "WorkerConfig", "run"]


class CollateRules(Protocol):
    """How a facade collates by default where it differs from stacking alike samples.

    Rules may have more: `is_strict`, true where samples are alike only with exactly the types of
    the first, tuples become lists, and a form is asked about once. `pack(objects, fields)`
    pickles what batches hold beside arrays, so that whole batches arrive as they were; it may add
    arrays and tensors to `fields`, and put `reader._core.tensor_array.field_of_batch` in their
    places. `revive(array, type name)` makes the tensor again that was stacked as an array.
    """

    def can_stack(self, sample: Any) -> bool:
        """Whether a first sample of a batch may be stacked in place. Raises for one of no batch."""

    def collate(self, samples: list[Any]) -> Any:
        """Return the batch of samples that are not alike."""


@dataclasses.dataclass(frozen=True)
class WorkerConfig:
    """What every worker of a pool is given; the same in each."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    worker_init_fn: Callable[[int], Any] | None
    num_workers: int  # 0: a thread of the trainer
    seed: int | None  # the user's: seeds every batch
    base_seed: int  # keys sample_rng: the user's seed, or the loader's own
    stream: Stream | None = None  # of an iterable dataset
    rules: CollateRules | None = None
    # prepares a worker process and seeds it: (worker_id, num_workers, dataset) -> the seed
    prepare: Callable[[int, int, Any], int] | None = None


def run(channel: WorkerChannel, config: WorkerConfig, worker_id: int) -> None:
    """Work until the pool stops. Exceptions of the user's code become answers."""
    is_thread = config.num_workers == 0
    try:
        if not is_thread:
            if config.prepare is None:
                own_seed = seeds.fresh_seed()
                seeds.seed_known_libraries(own_seed)
            else:
                own_seed = config.prepare(worker_id, config.num_workers, config.dataset)
            context.enter_worker(
                context.WorkerInfo(worker_id, config.num_workers, config.dataset, own_seed)
            )
            if config.worker_init_fn is not None:
                config.worker_init_fn(worker_id)
    except BaseException as error:
        channel.fail(_carry(error, -1, is_thread))
        return
    channel.hello()
    channel.set_rules(config.rules)
    fetcher = _fetcher(config)
    trouble: BaseException | None = None  # of the dataset's set_epoch; told with the next batch
    while (task := channel.next_task()) is not None:
        kind, keys = task
        if kind == TaskKind.TASK_EPOCH:
            trouble = _tell_epoch(config.dataset, keys)
            continue
        context.enter_task(config.base_seed, channel.epoch)
        try:
            if trouble is not None:
                fetcher.row = -1
                fetcher.is_stacking = False
                if isinstance(fetcher, StreamFetcher):  # told once; each batch of a map is its own
                    told, trouble = trouble, None
                    fetcher.give_up(channel.run)
                    raise told
                raise trouble
            with _seeded(config, channel, is_thread):
                fetcher.make(channel, kind, keys)
        except ArenaFull as full:
            channel.refuse_full(full.need_bytes, full.have_bytes, full.limit_bytes, full.knob)
        except BaseException as error:
            row = channel.position if fetcher.is_stacking else fetcher.row
            channel.refuse(_carry(error, row, is_thread))
        del task, keys


def _fetcher(config: WorkerConfig) -> Fetcher | StreamFetcher:
    if config.stream is None:
        return Fetcher(config.dataset, config.collate_fn)
    return StreamFetcher(config.dataset, config.collate_fn, config.stream)


def _tell_epoch(dataset: Any, marks: Any) -> BaseException | None:
    try:
        tell_epoch(dataset, marks)
    except BaseException as error:
        return error
    return None


def _seeded(
    config: WorkerConfig, channel: WorkerChannel, is_thread: bool
) -> AbstractContextManager[None]:
    """Make the random state of this batch a function of (seed, epoch, n)."""
    if config.seed is None:
        return _NOTHING
    value = seeds.batch_seed(config.seed, channel.epoch, channel.seq)
    guard = seeds.preserved_random_state() if is_thread else _NOTHING
    return _Seeding(guard, value)


_NOTHING: AbstractContextManager[None] = nullcontext()


class _Seeding(AbstractContextManager[None]):
    """Enters `guard`, then seeds."""

    def __init__(self, guard: AbstractContextManager[None], value: int) -> None:
        self._guard = guard
        self._value = value

    def __enter__(self) -> None:
        self._guard.__enter__()
        seeds.seed_known_libraries(self._value)

    def __exit__(self, *exc: Any) -> None:
        self._guard.__exit__(*exc)


def _carry(error: BaseException, row: int, is_thread: bool) -> Any:
    """What crosses to the trainer: (exception, worker's traceback or "", row of the sample)."""
    if is_thread:
        return error, "", row
    return pickle.dumps((encode(error), traceback_text(error), row))
