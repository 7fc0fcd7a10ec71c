"""The engine opens epochs, saves and loads its position, counts batches, and closes workers.

Imports the other modules of this package, config, policy and frameworks. It belongs to the face and
the process that made it; several of its iterators may live at once. It knows no face's arguments.
"""

from __future__ import annotations

import dataclasses
import functools
import weakref
from collections import Counter
from collections.abc import Callable
from typing import Any

from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import WaitStats
from reader._core.epoch.iterator import EpochIterator
from reader._core.epoch.round_robin import RoundRobin
from reader._core.epoch.tasks import TaskTable
from reader._core.interpreter.own_attribute import own_attribute
from reader._core.interpreter.signals import Finalized
from reader._core.wire.times_log import TimesLog
from reader.caching.cached_dataset import cache_stats
from reader.checks import as_int
from reader.config import LoaderConfig
from reader.data.batch_sampler import count_of
from reader.data.columns import reading_ahead
from reader.data.epochs import carried_epochs, epoch_marks, following, own_epoch, set_epochs
from reader.data.padded import check_padding
from reader.data.pure_samples import holds_numbers
from reader.engine.auto import AutoWorkers
from reader.engine.backends.backend import Backend, WorkerStatus
from reader.engine.backends.inline_cache import InlineCache
from reader.engine.backends.pool import Pool
from reader.engine.backends.pool_cache import Loan, PoolCache
from reader.engine.epoch import Epoch
from reader.engine.epoch_by_need import EpochByNeed
from reader.engine.epoch_options import EpochOptions
from reader.engine.failed_samples import FailedSample, FailedSamples
from reader.engine.landing_places import LandingPlaces
from reader.engine.map_source import MapSource
from reader.engine.prefetched_epoch import PrefetchedEpoch, prefetch_next
from reader.engine.progress import Progress
from reader.engine.state import LoaderState, ResumePoint, batches_of
from reader.engine.stream_source import StreamSource
from reader.engine.supervisor import Supervisor
from reader.engine.task_source import TaskSource
from reader.engine.undivided import warn_if_undivided
from reader.engine.worker_cursors import WorkerCursors
from reader.errors import ConfigError, ReaderError, got
from reader.exceptions.user_error import as_user_error
from reader.frameworks import check_places
from reader.orders.base_sampler import batching_of
from reader.orders.grown import grown_samplers
from reader.orders.order import open_order
from reader.orders.reopened import reopened, set_seeded
from reader.orders.step_batches import StepBatches
from reader.policy import ErrorPolicy, Policy
from reader.processes.pool_registry import check_interpreter, stop_with_program
from reader.random import seeds
from reader.stores.fetch_stats import fetch_stats
from reader.streams.mix_stats import mix_stats
from reader.worker.worker_state import EpochStart

__all__ = ["Engine"]


class Engine(Finalized):
    """Feeds the iterators of one face.

    Args:
        config: the options, checked.
        policy: what the face promises.
        sampler: yields indices; None with a batch sampler of the user, and for a stream.
        batch_sampler: yields lists of indices; None without batching, and for a stream.
        base_seed: what keys `sample_rng`; None: the `seed` in the config, or a fresh one.
        failed: the failed samples of earlier engines of the same loader; None: there are none.
        times: the log of those engines; None: there are none.
        draws: what the face draws seeds of orders from, with `state()` and `load(state)`, or None.

    Raises:
        ConfigError: a place is not available here.

    Attributes:
        sampler, batch_sampler: iterated anew for each epoch; may be replaced between epochs.
        order_seed: seeds the random state that samplers without a state draw from in the next
            epochs; None: they draw from the trainer's own.
        auto: chooses workers and batches in flight; None: nothing does.
        failed: the samples that failed and were tolerated.
        times: the times of the last batches at each stage; see TimesLog.
        draws: see above.
    """

    def __init__(
        self,
        config: LoaderConfig,
        policy: Policy,
        sampler: Any,
        batch_sampler: Any,
        base_seed: int | None = None,
        *,
        failed: FailedSamples | None = None,
        times: TimesLog | None = None,
        draws: Any = None,
    ) -> None:
        if base_seed is None:
            base_seed = seeds.fresh_seed() if config.seed is None else config.seed
        if policy.batch.make_adapter is None:
            check_places(config.framework, config.places)
        inner = own_attribute(batch_sampler, "sampler")
        check_padding(config.dataset, sampler, batch_sampler, inner)
        if _draws_nothing(config):
            config = dataclasses.replace(config, seed_globals=False)
        self.config = config
        self.draws = draws
        self._policy = policy.without_round_robin() if config.auto[0] else policy
        self._error_policy = _error_policy_of(policy, config.has_workers)
        self._base_seed = base_seed
        self._num_workers = config.num_loops
        self._stats = WaitStats()
        self.times = TimesLog() if times is None else times
        self.auto = AutoWorkers(config, self._stats) if config.may_change else None
        active = None if self.auto is None else self.auto.active
        is_inline = not config.has_workers and not policy.dispatch.works_ahead
        self._cache: PoolCache | InlineCache = (
            InlineCache(config, self._policy, base_seed)
            if is_inline
            else PoolCache(config, self._policy, base_seed, active)
        )
        self.is_ended = is_inline  # nothing to finalize
        self.tells_undivided = False  # with its first epoch, where ranks read all samples
        # threads share the global random state: a worker seeds it only while the consumer waits
        self._is_eager = self._cache.kind.works_ahead and not config.takes_turns
        self._on_end = (
            functools.partial(prefetch_next, weakref.ref(self))
            if config.prefetch_next_epoch
            else None
        )
        self._places = LandingPlaces(config, policy.batch)
        self._following = following(config.dataset)
        self._expect = reading_ahead(config.dataset, "__expect__")
        self.failed = FailedSamples(config) if failed is None else failed
        self._begin_anew(sampler, batch_sampler)
        self._is_plain = is_inline and config.is_plain and not self._state.sends_snapshots

    def _begin_anew(self, sampler: Any, batch_sampler: Any) -> None:
        self.sampler = sampler
        self.batch_sampler = batch_sampler
        self.order_seed: int | None = None
        self._round_robin = self._make_round_robin(0)
        self._next_epoch = 0
        self._prefetched: PrefetchedEpoch | None = None
        self._newest: weakref.ref[EpochIterator] | None = None
        self._state = LoaderState(self.config, self._policy.worker.keeps_rng, self._base_seed)

    def renewed(self, sampler: Any, batch_sampler: Any) -> Engine:
        """Return an engine with the same options and base seed that was never iterated over.

        It is for an engine without workers: both keep the memory that batches are stacked in.
        """
        made = Engine.__new__(Engine)
        made.is_ended = self.is_ended
        vars(made).update(vars(self), _stats=WaitStats())
        made._begin_anew(sampler, batch_sampler)
        return made

    # -- epochs ----------------------------------------------------------------------------------

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next iterator begins, from 0."""
        return self._next_epoch - (self._prefetched is not None)

    def begin_at(self, epoch: int, order_seed: int | None = None) -> None:
        """Choose the next epoch and `order_seed`; unlike `set_epoch`, calls no other object."""
        self.order_seed = order_seed
        if self._prefetched is not None and self.epoch != epoch:
            self.drop_prefetched()
        if self._prefetched is None:
            self._next_epoch = epoch

    def use(self, **samplers: Any) -> None:
        """Draw the next epochs from another `sampler` or `batch_sampler`."""
        self.sampler = samplers.get("sampler", self.sampler)
        self.batch_sampler = samplers.get("batch_sampler", self.batch_sampler)

    def take_over(self, before: Engine) -> None:
        """Continue where another engine of the same loader stopped, and close its idle workers."""
        epoch = before.epoch
        before.drop()
        self.times = before.times  # one log for all iterators: see Observed
        if self.auto is not None:
            self.auto.go_on(before.auto)
        self.begin_at(epoch)

    def set_epoch(self, epoch: Any) -> None:
        """Choose the number of the next epoch, also of dataset and samplers with `set_epoch`."""
        self.drop_prefetched()
        self._next_epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
        self._state.choose(self._next_epoch)
        set_epochs(self._next_epoch, self.config.dataset, self.sampler, self.batch_sampler)

    def set_orders(self) -> None:
        """Set samplers with a seed to the next epoch: their length may depend on it."""
        set_seeded(self.epoch, self.sampler, self.batch_sampler)

    def __iter__(self) -> EpochIterator:
        """Begin an epoch. Starts workers unless idle ones persist; blocks on nothing else."""
        if self._cache.kind.works_ahead:
            check_interpreter()
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            if prefetched.take_over():
                self._state.follow(prefetched.batches.epoch.progress)
                return self._begun(prefetched.batches)
            prefetched.drop()
            self._next_epoch -= 1
        return self._begun(self._begin())

    def _begun(self, batches: EpochIterator) -> EpochIterator:
        self._newest = weakref.ref(batches)
        self._state.begun(batches.epoch.progress)
        return batches

    def _begin(self) -> EpochIterator:
        try:
            start = self._state.start()
            opened = self._open_grown if start.lengths else self._open
            batches = opened(self._next_epoch, start)
            if self.tells_undivided:  # before the position counts as taken: it may be interrupted
                self.tells_undivided = False
                own = self.sampler, self.batch_sampler
                warn_if_undivided(self.config, batches.epoch.progress, *own)
        except ImportError:
            check_interpreter()
            raise
        except ReaderError:
            stop_with_program()  # the program is ending, and that closed it: no error to report
            raise
        self._next_epoch += 1
        return batches

    def _open_grown(self, epoch: int, start: ResumePoint) -> EpochIterator:
        """Open an epoch whose dataset has grown since it began, with samplers of its own."""
        own = self.sampler, self.batch_sampler
        self.sampler, self.batch_sampler = made = grown_samplers(*own, start.lengths)
        try:
            return self._open(epoch, start)
        finally:
            self.sampler, self.batch_sampler = own
            if own_epoch(made[0]) is not None:  # as if it had begun the epoch itself
                sampler = own[0] if own[1] is None else own[1].sampler
                sampler.set_epoch(made[0].epoch)

    def _open(self, epoch: int, start: ResumePoint) -> EpochIterator:
        """Open an epoch: its first batches are being made when this returns.

        Workers start before the sampler is iterated over, so that they do not inherit what the
        sampler changes in the trainer.
        """
        for dataset in self._following:
            dataset.follow_epoch(epoch)
        has_step_batches = isinstance(self.batch_sampler, StepBatches)
        is_new = not start.is_resumed and start.base_seed == self._base_seed
        convert = None
        if self._is_plain and is_new and not has_step_batches:
            convert = self._places.convert()
        if convert is not None:
            return self._open_plain(epoch, start, convert)
        table = self._table(start)
        progress = self._progress(epoch, start, table)
        options = self._options(epoch, start, progress)
        stage = self._places.stage(has_step_batches)
        set_seeded(epoch, self.sampler, self.batch_sampler)
        loan = Loan(self._cache)
        backend = loan.backend
        source, dispatcher = self._drawing(table, progress, start, backend)
        look = None
        if self.auto is not None and isinstance(backend, Pool):
            look = self.auto.begin(backend, dispatcher, options.start_of)
            progress.listen(look)
        supervisor = Supervisor(loan, dispatcher, source, progress, options, self._stats, look)
        made = Epoch(loan, dispatcher, source, supervisor, stage, progress, options)
        batches = EpochIterator(
            made,
            dispatcher,
            stage.converter(0),
            self._stats,
            made.is_usual,
            options.on_end is not None,
            options.slow_s,
        )
        if options.start_of is not None:
            for worker_id in range(backend.started):
                dispatcher.add_start(worker_id, options.start_of(worker_id))
        backend.open_epoch(dispatcher.send_starts, progress)
        if options.is_eager:
            dispatcher.fill()
        return batches

    def _open_plain(
        self, epoch: int, start: ResumePoint, convert: Callable[[Any], Any]
    ) -> EpochIterator:
        """Open an epoch whose batches this thread makes, with only what usual steps need."""
        table = TaskTable(1, 0, self.config.in_order)
        turn = 0 if self._policy.dispatch.is_round_robin else None
        keep = self.config.keep_states
        progress = Progress(epoch, self._carried_epochs(), table, start.at, turn, keep=keep)
        set_seeded(epoch, self.sampler, self.batch_sampler)
        loan = Loan(self._cache)
        backend = loan.backend
        source, dispatcher = self._drawing(table, progress, start, backend)

        def make() -> Epoch:
            options = self._options(epoch, start, progress)
            supervisor = Supervisor(loan, dispatcher, source, progress, options, self._stats)
            stage = self._places.stage(has_step_batches=False)
            return Epoch(loan, dispatcher, source, supervisor, stage, progress, options)

        by_need = EpochByNeed(loan, table, progress, self._length(), make)
        slow_s = self.config.warn_after
        return EpochIterator(by_need, dispatcher, convert, self._stats, True, False, slow_s)

    def _options(self, epoch: int, start: ResumePoint, progress: Progress) -> EpochOptions:
        config = self.config
        return EpochOptions(
            epoch=epoch,
            timeout_s=config.timeout_s,
            is_eager=self._is_eager,
            error_policy=self._error_policy,
            start_of=self._starts(epoch, start, progress),
            on_end=self._on_end,
            slow_s=config.warn_after,
            hung_s=config.hang_after,
            tolerates=config.tolerates_failures,
            raises_deaths=self._error_policy.raises_deaths and not config.worker_retries,
            length=None if config.is_iterable else self._length(),
        )

    def _length(self) -> Callable[[], int]:
        """Return a function that counts the batches of an epoch of the current samplers."""
        return functools.partial(count_of, batches_of(self.sampler, self.batch_sampler))

    def _drawing(
        self, table: TaskTable, progress: Progress, start: ResumePoint, backend: Backend
    ) -> tuple[TaskSource, Dispatcher]:
        """Begin the run of an epoch; return its source of tasks and its dispatcher."""
        feeder = backend.feeder
        feeder.begin_run(progress.epoch, table.drawn, self.config.in_order, self.times)
        if self._is_eager:
            table.resize(backend.window)
        round_robin = None
        if self._policy.dispatch.is_round_robin and not table.is_stream:
            round_robin = self._round_robin
        source = self._source(table, progress, start, backend, round_robin)
        reword = functools.partial(_reworded, self._error_policy)
        return source, Dispatcher(table, feeder, source, round_robin, reword)

    def _table(self, start: ResumePoint) -> TaskTable:
        """Return the table of an epoch's tasks, with one task in flight at most."""
        config = self.config
        if config.is_iterable:
            size = config.samples_per_batch
            cursors = start.worker_cursors or WorkerCursors(self._num_workers, size)
            return TaskTable(
                1, 0, config.in_order, True, last_worker=cursors.last, worker_cursors=cursors
            )
        return TaskTable(
            1,
            start.at.batches,
            config.in_order,
            False,
            start.beyond,
            worker_cursors=start.worker_cursors,
        )

    def _progress(self, epoch: int, start: ResumePoint, table: TaskTable) -> Progress:
        config, failures = self.config, None
        if config.tolerates_failures:
            keys = None if config.is_iterable else batches_of(self.sampler, self.batch_sampler)
            failures = self.failed.epoch(epoch, start.failed, keys)
        is_turn = self._policy.dispatch.is_round_robin and not config.is_iterable
        turn = self._next_turn(start) if is_turn else None
        return Progress(
            epoch,
            self._carried_epochs(),
            table,
            start.at,
            turn,
            failures,
            step_size=self._state.step_size(self.batch_sampler),
            steps=start.steps,
            keep=config.keep_states,
            lengths=start.lengths,
        )

    def _carried_epochs(self) -> dict[str, int]:
        return carried_epochs(
            dataset=self.config.dataset, batch_sampler=self.batch_sampler, sampler=self.sampler
        )

    def _next_turn(self, start: ResumePoint) -> int:
        """Return the worker whose turn the first batch of an epoch is.

        With persistent workers round robin continues where the last epoch stopped, as in Paddle:
        their random numbers continue as well.
        """
        dispatch = self._policy.dispatch
        if self._num_workers == 1:
            return 0
        if start.turn is not None:
            self._round_robin = self._make_round_robin(start.turn % self._num_workers)
        elif dispatch.restarts_round_robin or not self.config.persistent_workers:
            self._round_robin = self._make_round_robin(0)
        return self._round_robin.turn

    def _make_round_robin(self, turn: int) -> RoundRobin:
        return RoundRobin(self._num_workers, turn, self.config.prefetch_factor)

    def _starts(
        self, epoch: int, start: ResumePoint, progress: Progress
    ) -> Callable[[int], EpochStart] | None:
        """Return a function that makes the EpochStart of a worker; None: the workers need none."""
        config = self.config
        has_copies = config.persistent_workers and not config.uses_threads
        marks = epoch_marks(config.dataset, epoch) if has_copies else []
        base_seed = start.base_seed
        if self._sends_initial_state and progress.worker_cursors is not None:
            cursors = progress.worker_cursors
            cursors.expect_initial_states()
            has_cursor = start.is_resumed
            return lambda worker_id: EpochStart(
                marks,
                base_seed,
                progress.to_start(worker_id) if has_cursor else None,
                worker_id in cursors.awaited,
            )
        if start.is_resumed and start.worker_cursors is not None:
            return lambda worker_id: EpochStart(marks, base_seed, progress.to_start(worker_id))
        if start.is_resumed or marks or base_seed != self._base_seed:
            return lambda _: EpochStart(marks, base_seed)
        return None

    @property
    def _sends_initial_state(self) -> bool:
        config = self.config
        is_late = config.is_iterable and config.seed is not None
        can_send = config.has_workers and config.in_order and not is_late
        return self._policy.worker.sends_initial_state and can_send and self._state.sends_snapshots

    def _source(
        self,
        table: TaskTable,
        progress: Progress,
        start: ResumePoint,
        backend: Backend,
        round_robin: RoundRobin | None,
    ) -> TaskSource:
        config = self.config
        if table.is_stream:
            return StreamSource(table, backend.num_workers, config.worker_retries)
        if round_robin is not None and not config.in_order:
            # weakly: the round robin goes on in the next epoch
            round_robin.watch(functools.partial(_loads_of, weakref.ref(table)))
        opened = functools.partial(
            open_order,
            batches_of(self.sampler, self.batch_sampler),
            every=config.snapshot_every,
            is_lazy=not self._is_eager,
            seed=self.order_seed,
            expect=self._expect,
        )
        order, batches = opened(start.order, start.at)
        reopen = functools.partial(
            reopened, opened, progress.epoch, progress.epochs, self.sampler, self.batch_sampler
        )
        return MapSource(
            table,
            order,
            batches,
            config.dataset,
            config.is_batched,
            self._policy.dispatch,
            round_robin,
            progress,
            reopen,
            takes_keys=self._cache.kind.takes_keys,
            retries=config.worker_retries,
        )

    # -- the next epoch, ahead -------------------------------------------------------------------

    def prefetch(self) -> None:
        """Begin the next epoch while the user works on the last batch of this one."""
        self.drop_prefetched()
        objects = (self.config.dataset, self.batch_sampler, self.sampler)
        self._prefetched = PrefetchedEpoch(self._begin, self.draws, *objects)

    @property
    def has_prefetched(self) -> bool:
        """Whether an epoch was begun ahead."""
        return self._prefetched is not None

    def drop_prefetched(self) -> None:
        """Drop the epoch that was begun ahead, if one was."""
        prefetched, self._prefetched = self._prefetched, None
        if prefetched is not None:
            prefetched.drop()
            self._next_epoch -= 1

    # -- state -----------------------------------------------------------------------------------

    def state_dict(self, trained: Any = None, epoch: Any = None) -> dict[str, Any]:
        """Return the state of the engine: the position of the last batch delivered.

        Args:
            trained: the position behind so many steps instead; see `EngineFace.state_dict`.
            epoch: of which epoch.

        Raises:
            ConfigError, ConfigTypeError: `trained` or `epoch` is no count, or is not known.
        """
        if trained is not None:
            remedy = "It counts the batches of the epoch, from its beginning, that were trained."
            trained = as_int("trained", trained, low=0, remedy=remedy)
        if epoch is not None:
            epoch = as_int("epoch", epoch, low=0, remedy="It is the epoch that trained= counts in.")
            if trained is None:
                raise ConfigError(
                    f"epoch={epoch} says in which epoch trained= counts batches. Pass trained=, or"
                    " leave it out"
                )
        self._give_way()
        prefetched: Progress | None = None
        if self._prefetched is not None:
            ahead = self._prefetched.batches.epoch
            ahead.note_initial_states()
            prefetched = ahead.progress
        samplers = self.sampler, self.batch_sampler
        first = self._draw_first
        return self._state.save(self.epoch, *samplers, first, prefetched, trained, epoch)

    def state_before(self, number: int, epoch: int | None) -> dict[str, Any] | None:
        """Return the state before a step, whatever was delivered; see `replay`.

        Args:
            number: of the step in its epoch.
            epoch: None: the one that was begun last.

        Returns:
            None: this epoch is none of the two that were begun last.

        Raises:
            ConfigError: the order does not tell where the step begins.
        """
        samplers = self.sampler, self.batch_sampler
        return self._state.before(number, epoch, *samplers, self._draw_first)

    @property
    def pending_state(self) -> dict[str, Any] | None:
        """The state that the next iterator begins with; None: none was loaded."""
        return self._state.pending

    def twin(self, config: LoaderConfig, sampler: Any, batch_sampler: Any) -> Engine:
        """Return an engine with other options and samplers that has the seeds of this one."""
        made = Engine(config, self._policy, sampler, batch_sampler, self._base_seed)
        made.order_seed = self.order_seed
        return made

    def draws_state(self) -> Any:
        """Return the state of `draws` after the draws of the epoch that `state_dict` describes."""
        prefetched = self._prefetched
        if prefetched is None or self.is_between_epochs:
            return self.draws.state()
        return prefetched.draws_before

    def _draw_first(self) -> None:
        if self._newest is not None and (newest := self._newest()) is not None:
            newest.epoch.draw_first()

    def load_state_dict(self, state: dict[str, Any], grown: str | None = None) -> None:
        """Have the next iterator resume where `state` was saved; a live iterator is not changed.

        Args:
            state: of such an engine.
            grown: see `EngineFace.load_state_dict`.

        Raises:
            StateError: the state is damaged, or that of another kind of loader. Nothing has changed
                then.
        """
        if not (grown is None or (isinstance(grown, str) and grown in ("next_epoch", "now"))):
            raise ConfigError(
                f"grown must be 'next_epoch', 'now' or None, got {got(grown)}. It says when samples"
                " join that the dataset has got since the state was saved"
            )
        epoch = self._state.load(state, self.sampler, self.batch_sampler, grown)
        self.drop_prefetched()
        self._next_epoch = epoch

    @property
    def is_between_epochs(self) -> bool:
        """Whether no epoch is under way: none was begun, or the last one is over."""
        progress = self._state.progress
        return progress is None or progress.is_finished

    # -- statistics ------------------------------------------------------------------------------

    def failures(self) -> list[FailedSample]:
        """Return the samples that failed in batches that were delivered, the last 1,000."""
        self._state.count()
        return list(self.failed.newest)

    def stats(self) -> dict[str, Any]:
        """Return counts and times so far: see `DataLoader.stats`."""
        return {**self.counts(), **{name: told(self) for name, told in _STATS_OF_ROOMS.items()}}

    def taken(self) -> tuple[int, int | None]:
        """Return the newest epoch of the order, and how many samples all ranks have taken of it.

        None: that is not known.
        """
        progress = self._state.progress
        if progress is None or progress.origin is None:
            return self.epoch, 0
        origin = progress.origin
        return origin.fixed.get("epoch", progress.epoch), origin.taken(progress.batches)

    def counts(self) -> dict[str, Any]:
        """Return those of `stats` that this process and its memory have: it waits for nobody."""
        self._give_way()
        self.failures()
        backend = self._cache.newest
        usable = backend if isinstance(backend, Pool) and backend.is_usable else None
        wait_s, last_wait_s = self._stats.times()
        stages = usable.feeder.stats() if usable is not None else self._cache.last_stages
        return {
            "batches": self._stats.batches,
            "wait_s": wait_s,
            "last_wait_s": last_wait_s,
            "queued": 0 if backend is None else backend.feeder.queued,
            "stages": stages,
            "arena": self._cache.arena_stats(),
            "devices": self._places.stats(),
            "cache": cache_stats(self.config.dataset),
            "failed_samples": self.failed.count,
            "room": None if usable is None else usable.capacity,
        }

    def workers(self) -> list[WorkerStatus]:
        """Return what each worker of the newest iterator does, or each idle one."""
        self._give_way()
        backend = self._cache.newest
        return [] if backend is None else backend.statuses()

    def _give_way(self) -> None:
        """Let a waiting consumer have the GIL first, since another thread may call this often."""
        if self._newest is not None and (newest := self._newest()) is not None:
            newest.give_way()

    # -- ending ----------------------------------------------------------------------------------

    def close(self, grace_s: float | None = None) -> None:
        """Close the workers and wait; see Backend. Idempotent; iterating starts new ones."""
        self.drop_prefetched()
        self._cache.close(grace_s)
        self._places.close()

    def drop(self) -> None:
        """Close idle workers in the background; workers in use end with their iterators."""
        self.drop_prefetched()
        self._cache.drop()

    def finalize(self) -> None:
        """Close idle workers when the engine is dropped."""
        cache = vars(self).get("_cache")
        if cache is not None:
            cache.drop()

    def copied(self) -> Engine:
        """Return an engine with the same options and epoch, and neither workers nor batches."""
        return _copied(*self.__reduce__()[1])

    def __reduce__(self) -> tuple[Any, ...]:
        made = (self.config, self._policy, self.sampler, self.batch_sampler, self._base_seed)
        return _copied, (*made, self.epoch)


def _mix_stats(engine: Engine) -> dict[str | int, dict[str, Any]] | None:
    if engine.config.is_iterable:
        return None
    batches = batches_of(engine.sampler, engine.batch_sampler)
    batching = batching_of(batches)
    sampler = batches if batching is None else batching.sampler
    return mix_stats(engine.config.dataset, sampler, *engine.taken())


# what rooms tell of a loader, by its name in `stats`
_STATS_OF_ROOMS: dict[str, Callable[[Engine], Any]] = {
    "fetch": lambda engine: fetch_stats(engine.config.dataset),
    "mix": _mix_stats,
}


def _copied(
    config: LoaderConfig,
    policy: Policy,
    sampler: Any,
    batch_sampler: Any,
    base_seed: int,
    epoch: int,
) -> Engine:
    made = Engine(config, policy, sampler, batch_sampler, base_seed)
    made.begin_at(epoch)
    return made


def _error_policy_of(policy: Policy, has_workers: bool) -> ErrorPolicy:
    """Return the error policy: without workers no exception comes from another process."""
    if has_workers:
        return dataclasses.replace(policy.error_policy, passes_exits=False)
    return _OF_THIS_THREAD[policy.error_policy.passes_exits]


_OF_THIS_THREAD = {passes: ErrorPolicy(passes_exits=passes) for passes in (False, True)}


def _reworded(policy: ErrorPolicy, error: BaseException) -> BaseException:
    """Return the exception to raise for one of the sampler, after the batches before it."""
    return error if policy.passes(error) else as_user_error(error)


def _loads_of(table: weakref.ref[TaskTable]) -> Counter[int]:
    found = table()
    return Counter() if found is None else found.loads()


def _draws_nothing(config: LoaderConfig) -> bool:
    """Whether making a batch runs no user code that could draw: then no generator needs a seed."""
    is_map = config.seed is not None and not config.is_iterable
    return is_map and not config.runs_functions and holds_numbers(config.dataset)
