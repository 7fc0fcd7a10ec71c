"""The worker's loop: take a task, make its batch, answer; one loop for processes and threads.

Imports this package's context, fetchers and locks, the channel, seeds and failures. It runs in the
worker's main thread and prints nothing: each error is an answer that the trainer reports.
"""

from __future__ import annotations

import dataclasses
import pickle
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, NamedTuple, NoReturn

from reader._core.interpreter.signals import is_interrupt
from reader._core.memory.copying import cache_nbytes
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader.config import WORKER_KINDS
from reader.data.dataset import is_fetched
from reader.data.distributed_env import Ranks, set_ranks
from reader.errors import ArenaFull, ConfigError, DatasetError
from reader.exceptions.exception_codec import encode
from reader.exceptions.user_error import from_user_code, traceback_text
from reader.policy import Prepare, Reseed, WorkerPolicy
from reader.random import seeds
from reader.worker import context
from reader.worker.bad_sample import BadSample, NothingLeft, OneByOne, Tolerance
from reader.worker.fetch import Fetcher
from reader.worker.global_rng_lock import GlobalRngLock
from reader.worker.interruption import LoaderEnded
from reader.worker.library_info import LibraryInfo, show
from reader.worker.random_watch import RandomWatch
from reader.worker.rng import WorkerRng
from reader.worker.stream import Stream, StreamFetcher
from reader.worker.tolerant_fetcher import TolerantFetcher
from reader.worker.worker_state import EpochStart, WorkerSnapshot, WorkerState

__all__ = ["WorkerConfig", "WorkerError", "WorkerLoop", "carried", "open_loop", "run"]


@dataclasses.dataclass(eq=False)  # a frozen one takes longer to make, at each opening
class WorkerConfig:
    """The config of every worker of a pool; the same for all."""

    dataset: Any
    collate_fn: Callable[[Any], Any] | None
    worker_init_fn: Callable[[int], Any] | None
    num_workers: int  # 0: one thread of the trainer, in which get_worker_info() is None
    seed: int | None  # the user's: seeds every batch
    base_seed: int  # keys sample_rng: the user's seed, or the loader's own
    stream: Stream | None = None  # of an iterable dataset
    # without make_prepare: that stays in the trainer
    policy: WorkerPolicy = WorkerPolicy()  # noqa: RUF009
    # prepares a worker and seeds it: (worker_id, num_workers, dataset) -> the seed. Called in the
    # worker, where get_worker_info() already answers, with a seed that this one then replaces. In a
    # worker thread it must leave global state alone; the loop seeds the thread's `rng`.
    prepare: Prepare | None = None
    worker_type: str = "process"
    seed_globals: bool = True  # whether `seed` seeds the global generators before each batch
    snapshot_every: int = 0  # batches of a worker between two states of its dataset; 0: never
    shown_seed: int | None = None  # what torch.initial_seed() returns, if the worker has its own

    makes_stale: bool = False  # batches are still made when the loop has left the epoch
    is_for_device: bool = False  # a device reads the batches, so the processor's cache is no use
    has_pure_samples: bool = False  # of the dataset: workers may share batches
    reseed: Reseed | None = None  # called before each batch, with the dataset and the batch's seed
    tolerance: Tolerance | None = None  # of failing samples; None: raise their exceptions
    ranks: Ranks | ConfigError | None = None  # ranks of the trainer's training, for `shard`

    @property
    def of_user(self) -> dict[str, Any]:
        """The objects of the user that workers call, by the names of their options."""
        names = ("dataset", "collate_fn", "worker_init_fn", "reseed")
        return {name: getattr(self, name) for name in names}

    @property
    def seeds_each_batch(self) -> bool:
        """Whether the global random state of a batch follows from its number alone."""
        return self.seed is not None and self.seed_globals

    def uncached_from(self, in_flight: int) -> int:
        """Return from how many bytes on batches are copied past the cache.

        Batches in flight that fill half the cache are evicted before the consumer reads them.
        """
        return 0 if self.is_for_device else cache_nbytes() // (2 * in_flight)

    @property
    def is_thread(self) -> bool:
        """Whether workers are threads of the trainer."""
        return self.num_workers == 0 or WORKER_KINDS[self.worker_type].is_in_trainer


class WorkerError(NamedTuple):
    """A worker's report to the trainer of a batch that failed.

    `error`: the exception, in a process encoded by `exception_codec.encode`; `traceback`: the
    worker's, "" if the exception has it; `row`: of the sample in its batch, -1: of no sample;
    `drawn`: how many samples of an iterable dataset were drawn for the batch; `bad`: its samples
    that failed, if failures are tolerated; `is_nothing`: all samples failed, and nothing is raised.
    """

    error: Any
    traceback: str
    row: int = -1
    drawn: int = 0
    bad: tuple[BadSample, ...] = ()
    is_nothing: bool = False


def run(
    channel: WorkerChannel,
    config: WorkerConfig,
    worker_id: int,
    rng_lock: GlobalRngLock | None = None,
) -> None:
    """Make batches until the pool stops. Exceptions of the user's code become answers.

    Args: see `open_loop`.
    """
    loop = open_loop(channel, config, worker_id, rng_lock)
    if loop is None:
        return
    with suppress(LoaderEnded):  # it came between two samples: neither is interrupted
        while (task := channel.next_task()) is not None:
            loop.step(*task)
            del task
    loop.close()


def open_loop(
    channel: WorkerChannel,
    config: WorkerConfig,
    worker_id: int,
    rng_lock: GlobalRngLock | None = None,
) -> WorkerLoop | None:
    """Prepare and seed a worker, and report its start; None: it cannot start.

    Args:
        channel: the worker's.
        config: the pool's.
        worker_id: from 0.
        rng_lock: guards the global random state of a thread; None in a process, which has its own.
    """
    set_ranks(config.ranks)
    try:
        rng = _prepare(config, worker_id) if config.num_workers else None
        if config.policy.heeds_seeding and rng is None:
            config = _heed_seeding(config)
    except BaseException as error:
        channel.fail(_carry(error, config.is_thread))
        return None
    channel.hello()
    channel.set_rules(config.policy.rules)
    if config.makes_stale:
        channel.make_stale()
    loop = WorkerLoop(channel, config, worker_id, rng, rng_lock)
    loop.share()
    if isinstance(loop.fetcher, Fetcher) and loop.fetcher.gathers:
        channel.take_indices()
    return loop


class WorkerLoop:
    """Makes the batch of one task after the other: in a process, a thread, or the caller.

    Args:
        channel: takes batches and failures; a WorkerChannel, or a LocalChannel in the trainer.
        config: see WorkerConfig.
        worker_id: from 0.
        rng: the generators of a worker thread; None: the global ones are its own.
        rng_lock: guards the global random state, if threads share it.
        is_inline: whether the consumer runs it. Then exceptions of signal handlers, as for Ctrl-C,
            pass through, and the caller does the same task again.
    """

    def __init__(
        self,
        channel: Any,
        config: WorkerConfig,
        worker_id: int,
        rng: WorkerRng | None = None,
        rng_lock: GlobalRngLock | None = None,
        is_inline: bool = False,
    ) -> None:
        self._channel = channel
        self._config = config
        self._rng = rng
        self._rng_lock = rng_lock
        self._is_thread = config.is_thread
        self._is_inline = is_inline
        self.fetcher = make_fetcher(config, worker_id, is_inline)
        self.base_seed = config.base_seed
        self._shares = False
        # error of the dataset's set_epoch or load_state_dict, raised in place of the next batch
        self.start_error: BaseException | None = None

    @property
    def seeds_globals(self) -> bool:
        """Whether the global random state is seeded for each batch."""
        return self._config.seeds_each_batch

    def share(self) -> None:
        """Share batches with the other workers, if that cannot change their samples.

        Only samples that the dataset declares pure can be made elsewhere: other datasets may carry
        state from one sample to the next. Worker threads with `seed` do not share: their one global
        random state is seeded for each batch. Nor are samples shared that are fetched from a store:
        the worker of a batch has all of its bytes, and another would fetch them one by one.
        """
        config = self._config
        if not config.has_pure_samples or config.reseed is not None:
            return
        if config.num_workers < 2 or isinstance(self.fetcher, StreamFetcher):
            return
        if not self.fetcher.fetches_each or is_fetched(config.dataset):
            return
        watch = None
        if not self._is_thread:
            watch = RandomWatch(self._reseed if self.seeds_globals else None)
        elif config.seed is not None:
            return
        self._shares = True
        self._channel.share(config.dataset, watch)

    def _reseed(self) -> None:
        """Seed again for the current batch of a map-style dataset."""
        reseed = reseeding(self._config, self._channel.epoch, self._rng)
        if reseed is not None:
            reseed(self._channel.seq)

    def close(self) -> None:
        """Drop the fetcher, and with it the dataset's iterator."""
        self._channel.set_attachment(None)

    def start_epoch(self, start: EpochStart) -> None:
        """Begin an epoch, at the worker's cursor if there is one."""
        self.base_seed = start.base_seed
        try:
            self.fetcher.resume(self._channel.run, start.open(self._config.dataset))
            self.start_error = None
        except BaseException as error:
            if self._is_inline and is_interrupt(error):
                raise
            self.start_error = error
        context.set_task(self.base_seed, self._channel.epoch)  # for rows of other workers' batches
        if self._shares:
            self._channel.pause_sharing(self.start_error is not None)

    def _send_initial_state(self) -> None:
        """Begin the epoch now, and send its initial state."""
        context.set_task(self.base_seed, self._channel.epoch)
        self._channel.send_initial_state(self.begin_epoch() if self.start_error is None else None)

    def begin_epoch(self) -> WorkerSnapshot | None:
        """Begin the epoch now; returns its initial state, if states are kept.

        An exception of the user's code is kept, and raised in the place of the next batch.
        """
        try:
            return self.fetcher.begin_epoch(self._channel.run)
        except BaseException as error:
            if self._passes(error):
                raise
            self.start_error = error
            return None

    def pass_end(self) -> None:
        """Pass the end of a stream that was restored there. Exceptions: as of `enter`."""
        if isinstance(self.fetcher, StreamFetcher):
            try:
                self.fetcher.pass_end()
            except BaseException as error:
                if self._passes(error):
                    raise
                self.start_error = error

    def _passes(self, error: BaseException) -> bool:
        """Whether what was raised before the first batch is raised at once in the user's thread."""
        return self._is_inline and (not isinstance(error, Exception) or is_interrupt(error))

    def step(self, kind: int, keys: Any) -> None:  # noqa: C901, PLR0912  one frame for a task
        """Do one task. An exception of the user's code becomes an answer."""
        if kind == TaskKind.TASK_EPOCH:
            self.start_epoch(keys)
            return
        if kind == TaskKind.TASK_ENTER:
            self._send_initial_state()
            return
        channel, fetcher = self._channel, self.fetcher
        epoch = channel.epoch
        context.set_task(self.base_seed, epoch)
        try:
            if kind == TaskKind.TASK_BROKEN:
                hint = ""
                if "'__main__'" in str(keys):
                    hint = (
                        " (if the main module is not a file, workers have only what the dataset"
                        " uses of it)"
                    )
                raise DatasetError(
                    "the sampler's keys for this batch cannot be unpickled in the worker:"
                    f" {keys!r}{hint}; yield integers, strings or other keys that survive pickling"
                ) from keys
            if self.start_error is not None:
                self._raise_start_error(fetcher)
            number = channel.seq
            if type(keys) is list and keys and type(keys[0]) is OneByOne:
                fetcher.fetch_one_by_one()
                keys = keys[1:]
            if isinstance(fetcher, StreamFetcher):
                number = fetcher.number(channel.run, channel.seq)
            if self._config.seed is None:
                fetcher.make(channel, kind, keys)
            else:
                if isinstance(fetcher, StreamFetcher):
                    fetcher.reseed = reseeding(self._config, epoch, self._rng)
                with seeded(self._config, epoch, number, self._rng, self._rng_lock):
                    reseed_dataset(self._config, epoch, number)
                    fetcher.make(channel, kind, keys)
        except ArenaFull as full:
            channel.send_full(full.need_bytes, full.have_bytes, full.limit_bytes, full.knob)
        except LoaderEnded:
            raise  # no answer is awaited
        except BaseException as error:
            if self._is_inline and is_interrupt(error):
                raise
            row = channel.row if fetcher.is_stacking else fetcher.row
            drawn = 0
            if isinstance(fetcher, StreamFetcher):
                drawn = fetcher.drawn_by_failure(channel)
            channel.send_error(_carry(error, self._is_thread, row, drawn, fetcher.take_bad()))

    def _raise_start_error(self, fetcher: Fetcher | StreamFetcher) -> NoReturn:
        fetcher.leave_sample()
        error = self.start_error
        if isinstance(fetcher, StreamFetcher):  # raised once; with a map-style dataset each time
            self.start_error = None
            fetcher.stop(self._channel.run)
        try:
            raise error or DatasetError("the epoch could not be started")
        finally:
            del error  # otherwise its traceback's frame keeps it alive


def _prepare(config: WorkerConfig, worker_id: int) -> WorkerRng | None:
    """Set get_worker_info(), seed, run `worker_init_fn`; return the generators of a thread."""
    seed = seeds.fresh_seed()
    rng = WorkerRng(seed) if config.is_thread else None
    info = context.WorkerInfo(
        worker_id, config.num_workers, config.dataset, seed, config.worker_type, rng
    )
    context.set_worker_info(info)
    if config.prepare is not None:
        seed = config.prepare(worker_id, config.num_workers, config.dataset)
        info = dataclasses.replace(info, seed=seed)
        context.set_worker_info(info)
        if rng is not None:
            rng.reseed(seed)
    elif rng is None:
        seeds.seed_known_libraries(seed)
        _use_one_thread()
    show(LibraryInfo(info))
    if config.worker_init_fn is not None:
        config.worker_init_fn(worker_id)
    return rng


def _heed_seeding(config: WorkerConfig) -> WorkerConfig:
    """Key the batches by the seed that `worker_init_fn` gave to torch, if any."""
    info, own = context.get_worker_info(), seeds.torch_seed()
    if info is None or own is None or own == info.seed or config.seed is None:
        return config
    return dataclasses.replace(config, seed=own, shown_seed=own)


def _use_one_thread() -> None:
    """Make torch compute in one thread, if it is imported.

    There are many workers, and torch's threads do not survive a fork.
    """
    torch = sys.modules.get("torch")
    if torch is not None and hasattr(torch, "set_num_threads"):
        torch.set_num_threads(1)


def make_fetcher(
    config: WorkerConfig, worker_id: int, is_inline: bool = False
) -> Fetcher | StreamFetcher:
    """Return the fetcher of a worker."""
    is_shared = config.is_thread and config.num_workers > 1
    snapshots = WorkerState(
        worker_id, config.dataset, config.snapshot_every, config.policy.keeps_rng, is_shared
    )
    if config.stream is None:
        rules = config.policy.rules
        collate = rules.collate if rules is not None and config.policy.collates_any_result else None
        fetches_many = config.policy.fetches_many or config.has_pure_samples
        given = (config.dataset, config.collate_fn, snapshots, collate, is_inline, fetches_many)
        if config.tolerance is not None:
            return TolerantFetcher(config.tolerance, worker_id, *given)
        return Fetcher(*given)
    worker = (worker_id, max(1, config.num_workers))
    return StreamFetcher(
        config.dataset,
        config.collate_fn,
        config.stream,
        is_shared,
        worker,
        snapshots,
        is_inline,
        config.tolerance,
    )


def seeded(
    config: WorkerConfig,
    epoch: int,
    number: int,
    rng: WorkerRng | None,
    rng_lock: GlobalRngLock | None,
) -> AbstractContextManager[Any]:
    """Make the random state of this batch a function of (seed, epoch, number)."""
    if config.seed is None:
        return _NOTHING
    value = seeds.batch_seed(config.seed, epoch, number)
    if rng is not None:
        rng.reseed(value)
    if rng_lock is not None and (config.seed_globals or config.reseed is not None):
        return rng_lock.hold(value if config.seed_globals else None)
    if config.seed_globals:
        seeds.seed_known_libraries(value, config.shown_seed)
    return _NOTHING


def reseed_dataset(config: WorkerConfig, epoch: int, number: int) -> None:
    """Call the user's `reseed` to seed the dataset's own generators for a batch."""
    if config.reseed is not None and config.seed is not None:
        config.reseed(config.dataset, seeds.batch_seed(config.seed, epoch, number))


def reseeding(
    config: WorkerConfig, epoch: int, rng: WorkerRng | None
) -> Callable[[int], None] | None:
    """Return the function that seeds again, within a hold, for batches that are drawn again."""
    if config.seed is None:
        return None
    seed, seeds_globals, shown = config.seed, config.seed_globals, config.shown_seed

    def reseed(number: int) -> None:
        value = seeds.batch_seed(seed, epoch, number)
        if rng is not None:
            rng.reseed(value)
        if seeds_globals:
            seeds.seed_known_libraries(value, shown)
        reseed_dataset(config, epoch, number)

    return reseed


_NOTHING: AbstractContextManager[None] = nullcontext()
# read and write past any override
_traceback_of: Any = BaseException.__dict__["__traceback__"]


def _carry(
    error: BaseException,
    is_thread: bool,
    row: int = -1,
    drawn: int = 0,
    bad: tuple[BadSample, ...] = (),
) -> Any:
    """Return the payload for an exception: a WorkerError, pickled in a process."""
    if isinstance(error, NothingLeft):
        found = WorkerError(None, "", row, drawn, bad, is_nothing=True)
        return found if is_thread else pickle.dumps(found)
    if is_thread:
        _traceback_of.__set__(error, from_user_code(_traceback_of.__get__(error)))
        return WorkerError(error, "", row, drawn, bad)
    return carried(error, row, drawn, bad)


def carried(
    error: BaseException, row: int = -1, drawn: int = 0, bad: tuple[BadSample, ...] = ()
) -> bytes:
    """Return the WorkerError of an exception, as a worker process sends it."""
    return pickle.dumps(WorkerError(encode(error), traceback_text(error), row, drawn, bad))
