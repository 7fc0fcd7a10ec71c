"""The worker's loop: take a task, make its batch, answer; one loop for processes and threads.

Imports this room's context, fetchers and turns, the channel, seeds and failures. It runs in the
worker's main thread and prints nothing: whatever goes wrong is an answer that the trainer reports.
"""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

from reader._core.channel import TaskKind, WorkerChannel
from reader.data import seeds
from reader.data.exception_codec import encode
from reader.data.failure import traceback_text
from reader.errors import ArenaFull, DatasetError
from reader.workers import context
from reader.workers.fetch import Fetcher
from reader.workers.random_turns import RandomTurns
from reader.workers.rng import WorkerRng
from reader.workers.stream import Stream, StreamFetcher
from reader.workers.told import Snapshots, Told, open_told

__all__ = ["CollateRules", "WorkerConfig", "make_fetcher", "reseeding", "run", "seeded"]


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
    num_workers: int  # 0: one thread of the trainer, in which code of the user sees no worker
    seed: int | None  # the user's: seeds every batch
    base_seed: int  # keys sample_rng: the user's seed, or the loader's own
    stream: Stream | None = None  # of an iterable dataset
    rules: CollateRules | None = None
    # prepares a worker and seeds it: (worker_id, num_workers, dataset) -> the seed. Called in the
    # worker; get_worker_info() answers there already, with a seed that is replaced by this one. A
    # worker thread has `rng` to seed, which the loop does, and must leave global state alone.
    prepare: Callable[[int, int, Any], int] | None = None
    worker_type: str = "process"
    seed_globals: bool = True  # whether `seed` seeds the global generators before each batch
    snapshot_every: int = 0  # batches of a worker between two states of its dataset; 0: never
    takes_any_key: bool = False  # what __getitems__ returns is collated as it is
    keeps_rng: bool = False  # whether the global random state goes with them
    makes_stale: bool = False  # batches of an epoch that was left are made all the same
    heeds_seeding: bool = False  # whether a seed that worker_init_fn gave torch becomes `seed`
    shown_seed: int | None = None  # what torch is to tell as its seed, of a worker that has its own

    @property
    def is_thread(self) -> bool:
        """Whether workers are threads of the trainer."""
        return self.num_workers == 0 or self.worker_type == "thread"


def run(
    channel: WorkerChannel,
    config: WorkerConfig,
    worker_id: int,
    turns: RandomTurns | None = None,
) -> None:
    """Work until the pool stops. Exceptions of the user's code become answers.

    Args:
        channel: the worker's.
        config: the pool's.
        worker_id: from 0.
        turns: of a thread at the global random state; None in a process, which has one of its own.
    """
    is_thread = config.is_thread
    try:
        rng = _enter(config, worker_id) if config.num_workers else None
        if config.heeds_seeding and rng is None:
            config = _heed_seeding(config)
    except BaseException as error:
        channel.fail(_carry(error, -1, is_thread))
        return
    channel.hello()
    channel.set_rules(config.rules)
    if config.makes_stale:
        channel.make_stale()
    fetcher = make_fetcher(config, worker_id)
    base_seed = config.base_seed
    # of the dataset's set_epoch or load_state_dict; told with the next batch
    trouble: BaseException | None = None
    while (task := channel.next_task()) is not None:
        kind, keys = task
        if kind == TaskKind.TASK_EPOCH:
            base_seed = keys.base_seed
            trouble = _tell(config.dataset, fetcher, channel.run, keys)
            continue
        context.enter_task(base_seed, channel.epoch)
        try:
            if kind == TaskKind.TASK_BROKEN:
                raise DatasetError(
                    "the sampler's keys for this batch cannot be unpickled in the worker:"
                    f" {keys!r}; yield integers, strings or other keys that survive pickling"
                ) from keys
            if trouble is not None:
                fetcher.row = -1
                fetcher.is_stacking = False
                if isinstance(fetcher, StreamFetcher):  # told once; each batch of a map is its own
                    told, trouble = trouble, None
                    fetcher.give_up(channel.run)
                    raise told
                raise trouble
            number = channel.seq
            if isinstance(fetcher, StreamFetcher):
                number = fetcher.number(channel.run)
                fetcher.reseed = reseeding(config, channel.epoch, rng)
            with seeded(config, channel.epoch, number, rng, turns):
                fetcher.make(channel, kind, keys)
        except ArenaFull as full:
            channel.refuse_full(full.need_bytes, full.have_bytes, full.limit_bytes, full.knob)
        except BaseException as error:
            row = channel.position if fetcher.is_stacking else fetcher.row
            drawn = 0
            if isinstance(fetcher, StreamFetcher):
                drawn = fetcher.drawn_by_failure(channel)
            channel.refuse(_carry(error, row, is_thread, drawn))
        del task, keys
    channel.set_attachment(None)  # it holds the fetcher, and so an iterator that is to be closed


def _enter(config: WorkerConfig, worker_id: int) -> WorkerRng | None:
    """Be a worker whom the user's code can ask about; returns the generators of a thread."""
    seed = seeds.fresh_seed()
    rng = WorkerRng(seed) if config.is_thread else None
    info = context.WorkerInfo(
        worker_id, config.num_workers, config.dataset, seed, config.worker_type, rng
    )
    context.enter_worker(info)
    if config.prepare is not None:
        seed = config.prepare(worker_id, config.num_workers, config.dataset)
        context.enter_worker(dataclasses.replace(info, seed=seed))
        if rng is not None:
            rng.reseed(seed)
    elif rng is None:
        seeds.seed_known_libraries(seed)
        _use_one_thread()
    if config.worker_init_fn is not None:
        config.worker_init_fn(worker_id)
    return rng


def _heed_seeding(config: WorkerConfig) -> WorkerConfig:
    """Key the batches by the seed that `worker_init_fn` gave torch, where it did."""
    info, own = context.get_worker_info(), seeds.torch_seed()
    if info is None or own is None or own == info.seed or config.seed is None:
        return config
    return dataclasses.replace(config, seed=own, shown_seed=own)


def _use_one_thread() -> None:
    """Have torch work in this process's one thread, where somebody imported it.

    Workers are many, and the threads that torch had before a fork do not exist behind it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def make_fetcher(config: WorkerConfig, worker_id: int) -> Fetcher | StreamFetcher:
    """Return what makes the batches of a worker."""
    is_shared = config.is_thread and config.num_workers > 1
    snapshots = Snapshots(
        worker_id, config.dataset, config.snapshot_every, config.keeps_rng, is_shared
    )
    if config.stream is None:
        collate = config.rules.collate if config.takes_any_key and config.rules else None
        return Fetcher(config.dataset, config.collate_fn, snapshots, collate)
    turn = (worker_id, max(1, config.num_workers))
    return StreamFetcher(
        config.dataset, config.collate_fn, config.stream, is_shared, turn, snapshots
    )


def _tell(
    dataset: Any, fetcher: Fetcher | StreamFetcher, run: int, told: Told
) -> BaseException | None:
    try:
        fetcher.tell(run, open_told(told, dataset))
    except BaseException as error:
        return error
    return None


def seeded(
    config: WorkerConfig,
    epoch: int,
    number: int,
    rng: WorkerRng | None,
    turns: RandomTurns | None,
) -> AbstractContextManager[Any]:
    """Make the random state of this batch a function of (seed, epoch, number)."""
    if config.seed is None:
        return _NOTHING
    value = seeds.batch_seed(config.seed, epoch, number)
    if rng is not None:
        rng.reseed(value)
    if config.seed_globals:
        if turns is not None:
            return turns.turn(value)
        seeds.seed_known_libraries(value, config.shown_seed)
    return _NOTHING


def reseeding(
    config: WorkerConfig, epoch: int, rng: WorkerRng | None
) -> Callable[[int], None] | None:
    """What seeds again, within a turn, for batches that are drawn once more."""
    if config.seed is None:
        return None
    seed, seeds_globals, shown = config.seed, config.seed_globals, config.shown_seed

    def reseed(number: int) -> None:
        value = seeds.batch_seed(seed, epoch, number)
        if rng is not None:
            rng.reseed(value)
        if seeds_globals:
            seeds.seed_known_libraries(value, shown)

    return reseed


_NOTHING: AbstractContextManager[None] = nullcontext()


def _carry(error: BaseException, row: int, is_thread: bool, drawn: int = 0) -> Any:
    """What crosses to the trainer: exception, worker's traceback or "", row of the sample, drawn.

    `drawn`: how many samples of an iterable dataset were drawn for the batch.
    """
    if is_thread:
        return error, "", row, drawn
    return pickle.dumps((encode(error), traceback_text(error), row, drawn))
