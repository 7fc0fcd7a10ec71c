"""Workers and batches in flight that are chosen while training.

Imports the tuner, backends and the window. An AutoWorkers belongs to an engine; it is asked in the
thread that iterates, now and then.
"""

from __future__ import annotations

import functools
import logging
import math
import threading
import time
from collections.abc import Callable

from reader._core.steps.handover import WaitStats
from reader._core.steps.window import Window
from reader.config import LoaderConfig
from reader.cores import local_ranks, usable_cores
from reader.engine.backends.pool import Pool
from reader.engine.tuner import Choice, Reading, Tuner
from reader.errors import ReaderError
from reader.worker.worker_state import EpochStart

__all__ = ["AutoWorkers"]

_log = logging.getLogger("reader")
_LEAST_FACTOR = 2
_FIRST_WORKERS = 8  # most to begin with
_BETWEEN_S = 0.05  # looks


class AutoWorkers:
    """Chooses how many workers have tasks, and how many batches each has in flight.

    Batches are the same whoever makes them: nothing is lost or changed. Workers are started when
    they are first needed; those that nobody waits for get no more tasks.

    Args:
        config: with `auto`, and the most workers and batches there may be.
        stats: of the engine.
    """

    def __init__(self, config: LoaderConfig, stats: WaitStats) -> None:
        most = Choice(config.num_workers, config.prefetch_factor)
        has_workers, has_factor = config.auto
        first = max(2, min(_FIRST_WORKERS, math.ceil(usable_cores() / local_ranks()) // 2))
        choice = Choice(
            min(first, most.workers) if has_workers else most.workers,
            min(_LEAST_FACTOR, most.factor) if has_factor else most.factor,
        )
        self._tuner = Tuner(choice, most, (has_workers, has_factor))
        self._stats = stats
        self._next_s = 0.0
        self._turn = threading.Lock()  # one thread looks at a time, and no other waits for it

    @property
    def choice(self) -> Choice:
        """What there is now."""
        return self._tuner.choice

    def active(self) -> int:
        """Return how many workers are started with a pool."""
        return self.choice.workers

    def begin(
        self, pool: Pool, window: Window, start_of: Callable[[int], EpochStart] | None
    ) -> Callable[[], None]:
        """Begin an epoch, of which no task was sent yet; returns what is called now and then."""
        pool.set_active(self.choice.workers)
        window.size = self.choice.workers * self.choice.factor
        self._tuner.begin()
        return functools.partial(self._look, pool, window, start_of)

    def _look(
        self, pool: Pool, window: Window, start_of: Callable[[int], EpochStart] | None
    ) -> None:
        now_s = time.monotonic()
        if now_s < self._next_s or not self._turn.acquire(blocking=False):
            return
        try:
            self._next_s = now_s + _BETWEEN_S
            before = self.choice
            is_short = window.size < before.workers * before.factor  # of memory: it was halved
            if is_short or window.is_closed or window.is_drained or not pool.is_usable:
                return
            wait_s, _ = self._stats.times()
            reading = Reading(now_s, self._stats.batches, wait_s, pool.busy_s())
            choice = self._tuner.read(reading)
            if choice == before:
                return
            try:
                started = pool.set_active(choice.workers)
            except ReaderError as error:
                if not pool.is_usable:
                    raise
                _log.warning("num_workers stays %d: %s", pool.started, error)
                choice = self._tuner.limit(pool.started)
                started = []
                pool.set_active(choice.workers)
            for worker in started:
                if start_of is not None:
                    window.add_start(worker, start_of(worker))
            window.size = choice.workers * choice.factor
            _log.info("%s", _told(before, choice))
        finally:
            self._turn.release()


def _told(before: Choice, now: Choice) -> str:
    names = ("num_workers", "prefetch_factor")
    return ", ".join(
        f"{name}: {old} is now {new}" for name, old, new in zip(names, before, now) if old != new
    )
