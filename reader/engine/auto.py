"""Workers and batches in flight that are chosen while training.

Imports the tuner and backends. An AutoWorkers belongs to an engine; the thread that iterates calls
it before some waits.
"""

from __future__ import annotations

import copy
import functools
import math
import threading
import time
from collections.abc import Callable

from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import WaitStats
from reader._core.epoch.tasks import TaskTable
from reader.config import LoaderConfig
from reader.cores import local_ranks, usable_cores
from reader.engine.backends.pool import Pool
from reader.engine.tuner import Choice, Reading, Tuner
from reader.errors import ReaderError
from reader.log import log as _log
from reader.worker.worker_state import EpochStart

__all__ = ["AutoWorkers", "choice_of", "first_choice"]

_LEAST_FACTOR = 2
_FIRST_WORKERS = 8  # most to begin with
_BETWEEN_S = 0.03  # looks


def first_choice(most: Choice, is_free: tuple[bool, bool], cores: float | None = None) -> Choice:
    """Return the first choice of workers and batches in flight.

    Args:
        most: workers and batches in flight of each.
        is_free: which of both may change.
        cores: that workers may use; None: the share of this process in those it may use.
    """
    cores = usable_cores() / local_ranks() if cores is None else cores
    first = max(2, min(_FIRST_WORKERS, math.ceil(cores) // 2))
    return Choice(
        min(first, most.num_workers) if is_free[0] else most.num_workers,
        min(_LEAST_FACTOR, most.factor) if is_free[1] else most.factor,
    )


def choice_of(config: LoaderConfig, auto: AutoWorkers | None) -> Choice:
    """Return the current choice: what `auto` found, or what was passed."""
    if auto is None:
        return Choice(config.num_workers, config.prefetch_factor)
    return auto.choice


class AutoWorkers:
    """Chooses how many workers have tasks, and how many batches each has in flight.

    A change loses no batch and changes none. A worker starts when it is first needed; a worker that
    is not needed gets no more tasks. With workers on other machines the backend says how many
    batches in flight keep them busy.

    Args:
        config: with `auto` or `is_paced`, and the most workers and batches there may be.
        stats: of the engine.
    """

    def __init__(self, config: LoaderConfig, stats: WaitStats) -> None:
        most = Choice(config.num_workers, config.prefetch_factor)
        cores = usable_cores() / local_ranks()
        first = first_choice(most, config.auto, cores)
        self._kind = (most, config.auto)
        self._tuner = Tuner(first, most, config.auto, cores)
        self._places = len(config.places)
        self._is_paced = config.is_paced
        self._size = 0  # the window that was set last
        self._bound: int | None = None  # the largest window, once memory was short
        self._stats = stats
        self._run: object = None  # of the newest iterator, the only one that is measured
        self._next_s = 0.0
        self._has_begun = False  # each worker has made a batch since the last change
        self._capacity: int | None = None  # of the cluster, as the tuner knows it
        self._turn = threading.Lock()  # one thread measures at a time; others do not wait for it

    @property
    def choice(self) -> Choice:
        """The current choice."""
        found = self._tuner.choice
        if not self._is_paced:
            return found
        return found._replace(factor=max(found.factor, self._size // max(1, found.num_workers)))

    def active(self) -> int:
        """Return how many workers are started with a pool."""
        return self.choice.num_workers

    def go_on(self, before: AutoWorkers | None) -> None:
        """Begin with the choice of another AutoWorkers with the same arguments."""
        if before is not None and before._kind == self._kind:
            self._tuner, self._bound = copy.copy(before._tuner), before._bound

    def begin(
        self, pool: Pool, dispatcher: Dispatcher, start_of: Callable[[int], EpochStart] | None
    ) -> Callable[[], None]:
        """Begin an epoch before its first task; returns the function to call before waits."""
        pool.set_active(self.choice.num_workers)
        if not self._is_paced:
            self._bound = None  # the tuner knows
        self._set_in_flight(pool, dispatcher.table)
        self._tuner.begin()
        self._has_begun, self._run = False, object()
        return functools.partial(self._look, self._run, pool, dispatcher, start_of)

    def _in_flight(self, pool: Pool) -> int:
        choice = self._tuner.choice
        found = choice.factor * max(choice.num_workers, self._places)
        if self._is_paced:
            found = max(found, min(pool.window, pool.wanted or 0))
        return found if self._bound is None else min(found, self._bound)

    def _set_in_flight(self, pool: Pool, table: TaskTable) -> None:
        size = self._in_flight(pool)
        if size != table.size:
            table.resize(size)
            pool.set_in_flight(size)
        self._size = size

    def _look(
        self,
        run: object,
        pool: Pool,
        dispatcher: Dispatcher,
        start_of: Callable[[int], EpochStart] | None,
    ) -> None:
        now_s, table = time.monotonic(), dispatcher.table
        if now_s < self._next_s or not self._turn.acquire(blocking=False):
            return
        try:
            self._next_s = now_s + _BETWEEN_S
            is_usable = run is self._run and pool.is_usable and not table.is_closed
            if not is_usable or table.is_drained:
                return
            before, choice = self._tuner.choice, self._decided(pool, table, now_s)
            if choice != before:
                self._change(before, choice, pool, dispatcher, start_of)
            self._set_in_flight(pool, table)
        finally:
            self._turn.release()

    def _change(
        self,
        before: Choice,
        choice: Choice,
        pool: Pool,
        dispatcher: Dispatcher,
        start_of: Callable[[int], EpochStart] | None,
    ) -> None:
        self._has_begun = False
        try:
            started = pool.set_active(choice.num_workers)
        except ReaderError as error:
            if not pool.is_usable:
                raise
            _log.warning("num_workers stays %d: %s", pool.started, error)
            choice = self._tuner.limit(pool.started)
            started = []
            pool.set_active(choice.num_workers)
        for worker_id in started:
            if start_of is not None:
                dispatcher.add_start(worker_id, start_of(worker_id))
        _log.info("%s", _told(before, choice))

    def _decided(self, pool: Pool, table: TaskTable, now_s: float) -> Choice:
        """Return the choice from now on."""
        now, (has_workers, has_factor) = self._tuner.choice, self._kind[1]
        if has_workers and pool.capacity is not None and pool.capacity != self._capacity:
            self._capacity = pool.capacity
            return self._tuner.limit(max(1, min(self._capacity, self._kind[0].num_workers)))
        if table.size < self._size:  # memory is short: it was halved
            self._size = self._bound = table.size
            return now if self._places > 1 else self._tuner.fit(table.size)
        if not has_workers and not has_factor:
            return now
        self._has_begun = self._has_begun or pool.has_begun(now.num_workers)
        if not self._has_begun or not self._tuner.is_due(now_s, self._stats.batches):
            return now
        return self._tuner.read(self._reading(pool, now_s))

    def _reading(self, pool: Pool, now_s: float) -> Reading:
        clock, (wait_s, _) = pool.clock(), self._stats.times()
        reading = Reading(now_s, self._stats.batches, wait_s, pool.busy_s())
        if clock is None:
            return reading
        return reading._replace(cpu_s=clock.cpu_s, runnable_s=clock.runnable_s)


def _told(before: Choice, now: Choice) -> str:
    names = ("num_workers", "prefetch_factor")
    return ", ".join(
        f"{name}: {old} is now {new}" for name, old, new in zip(names, before, now) if old != new
    )
