"""The observable side of a loader, whatever its face.

Imports the engine and the log of times. It has no state of its own.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from reader._core.epoch.handover import Handover
from reader._core.wire.times_log import TimesLog
from reader.caching.cached_dataset import caches_of
from reader.engine.auto import choice_of
from reader.engine.backends.backend import WorkerStatus
from reader.engine.engine import Engine
from reader.engine.face import engine_of
from reader.errors import ConfigTypeError, got
from reader.observe.decoder import decoder_of
from reader.stores.fetch_stats import fetch_stats
from reader.worker_clock import WorkerClock, worker_clock

__all__ = ["Observed", "ObservedOptions", "clock_of", "name_of", "observed", "options_of"]


class ObservedOptions(NamedTuple):
    """The options of a loader that a verdict needs.

    Attributes:
        workers: how many; 0: the consumer makes its batches.
        ahead: batches that are made ahead, in all.
        uses_threads: whether workers are threads.
        decoder: see `decoder_of`.
        persists: whether workers stay between epochs.
        shares_workers: whether they make batches of others too: those of a WorkerPool, or of a pool
            on a cluster.
        is_remote: whether they are on a cluster.
        room: how many workers fit into the cluster; None: unknown.
        has_collate_fn: whether the program has its own collate function.
        in_order: whether batches come in the sampler's order.
        keeps_files: whether a cache of the dataset keeps undecoded files.
    """

    workers: int
    ahead: int
    uses_threads: bool
    decoder: str
    persists: bool
    shares_workers: bool = False
    is_remote: bool = False
    room: int | None = None
    has_collate_fn: bool = False
    in_order: bool = True
    keeps_files: bool = False


def options_of(engine: Engine) -> ObservedOptions:
    """Return how an engine works."""
    config, (workers, factor) = engine.config, choice_of(engine.config, engine.auto)
    ahead = factor * max(1, workers)
    decoder, persists = decoder_of(config.dataset), config.persistent_workers
    backend = config.backend
    is_shared = config.pool is not None or (backend is not None and backend.pool is not None)
    is_remote = backend is not None
    room = engine.counts()["room"] if is_remote else None
    workers = min(workers, room) if room else workers  # the others wait for a place
    return ObservedOptions(
        workers,
        ahead,
        config.uses_threads,
        decoder,
        persists,
        is_shared,
        is_remote,
        room,
        config.collate_fn is not None,
        config.in_order,
        any(cache.what == "files" for cache in caches_of(config.dataset)),
    )


def clock_of(status: WorkerStatus) -> WorkerClock | None:
    """Return the clock of a worker for this loader; None: it has ended."""
    counts = status.counts
    if status.host is not None and counts is not None:
        return WorkerClock(
            counts.computed_s,
            counts.runnable_s,
            stored_s=counts.stored_s,
            bounded_s=counts.bounded_s,
        )
    if status.pid is None or status.thread_id is None:
        return None
    clock = worker_clock(status.pid, status.thread_id)
    if clock is None or counts is None:
        return clock
    return WorkerClock(counts.computed_s, clock.runnable_s, clock.cpu_s - counts.computed_s)


def name_of(status: WorkerStatus) -> tuple[str | None, int | None, int | None]:
    """Return the identity of a worker: its machine, process and thread."""
    return status.host, status.pid, status.thread_id


class Observed:
    """A loader that can be observed. A face sets `_engine`, or overrides `_observed_times`."""

    def _observed_engine(self) -> Engine | None:
        """Return the engine of the newest iterator; None: there is none yet."""
        return engine_of(self)

    def _observed_options(self) -> ObservedOptions | None:
        """Return the options of the newest iterator; None: there is none yet."""
        engine = self._observed_engine()
        return None if engine is None else options_of(engine)

    def _observed_times(self) -> TimesLog:
        """Return the log that all iterators of this loader share."""
        engine = self._observed_engine()
        if engine is None:
            raise NotImplementedError("a face whose engine comes late keeps a log by itself")
        return engine.times

    def _observed_workers(self) -> list[WorkerStatus]:
        """Return the result of `workers`; see `EngineFace`."""
        engine = self._observed_engine()
        return [] if engine is None else engine.workers()

    def _observed_stats(self) -> dict[str, Any] | None:
        """Return the result of `Engine.counts`; None: there is none yet."""
        engine = self._observed_engine()
        return None if engine is None else engine.counts()

    def _observed_fetches(self) -> dict[str, Any] | None:
        """Return what was fetched from stores, see `fetch_stats`; None: nothing ever is."""
        engine = self._observed_engine()
        return None if engine is None else fetch_stats(engine.config.dataset)


def observed(loader: Any, what: str = "profile") -> Observed:
    """Return a loader, checked.

    Raises:
        ConfigTypeError: it is none of this package.
    """
    if isinstance(loader, type) and issubclass(loader, Observed):
        raise ConfigTypeError(f"{what} takes a loader, got the class {loader.__name__}: make one")
    if isinstance(loader, Observed):
        return loader
    if isinstance(loader, Handover):
        raise ConfigTypeError(f"{what} got an iterator of one: pass the loader itself")
    remedy = "put reader.DataLoader, or one of reader.compat, in its place"
    raise ConfigTypeError(f"{what} takes a loader of this package, got {got(loader)}: {remedy}")
