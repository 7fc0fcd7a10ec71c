"""The pools of an engine: lent to an iterator, idle between epochs, or closing.

Imports the pools and workers. Engine and iterators may be dropped in any order and in any thread;
the last one of them ends the workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import weakref
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import Finalized, interrupt_after
from reader._core.memory.arena import Arena
from reader._core.memory.copying import copy_way
from reader._core.wire.local_channel import LocalMemory
from reader.cluster.pace import MOST_FACTOR
from reader.collate import in_place
from reader.config import WORKER_KINDS, LoaderConfig
from reader.data.distributed_env import ranks_for_workers
from reader.data.pure_samples import has_pure_samples
from reader.engine.backends.backend import Backend
from reader.engine.backends.inline import InlineBackend
from reader.engine.backends.pool import Pool
from reader.engine.backends.process_pool import ProcessPool
from reader.engine.backends.remote_processes import RemoteProcesses
from reader.engine.backends.shared_processes import SharedProcesses
from reader.engine.backends.shared_workers import SharedWorkers
from reader.engine.backends.thread_pool import ThreadPool
from reader.engine.backends.worker_processes import OwnProcesses, Processes
from reader.errors import ConfigError, ReaderError
from reader.frameworks import make_unpacked
from reader.policy import BatchPolicy, Policy
from reader.processes.pool_registry import await_closing
from reader.worker.bad_sample import Tolerance
from reader.worker.loop import WorkerConfig
from reader.worker.stream import Stream

__all__ = ["Loan", "PoolCache", "backend_of"]

_MOST_PACED = 4096  # batches in flight of all remote workers, unless more are asked for


def worker_config(config: LoaderConfig, policy: Policy, base_seed: int) -> WorkerConfig:
    """Return what each worker of a loader is given."""
    return WorkerConfig(
        dataset=config.dataset,
        collate_fn=None if config.collate_fn is None else in_place(config.collate_fn),
        worker_init_fn=config.worker_init_fn,
        num_workers=config.num_workers,
        is_for_device=not config.is_on_cpu,
        seed=config.seed,
        base_seed=base_seed,
        stream=Stream(config.batch_size, config.drop_last) if config.is_iterable else None,
        policy=policy.worker
        if policy.worker.make_prepare is None
        else dataclasses.replace(policy.worker, make_prepare=None),
        worker_type=config.worker_type,
        seed_globals=config.seed_globals,
        snapshot_every=config.snapshot_every,
        has_pure_samples=not config.is_iterable and has_pure_samples(config.dataset),
        reseed=config.reseed,
        tolerance=_tolerance(config),
        makes_stale=policy.worker.makes_stale and config.persistent_workers and config.seed is None,
    )


def _tolerance(config: LoaderConfig) -> Tolerance | None:
    """Return what becomes of samples that fail; None: their exceptions are raised."""
    if not config.tolerates_failures:
        return None
    has_own = config.sampler is not None or config.batch_sampler is not None
    count = 0 if has_own or config.is_iterable else len(config.dataset)
    return Tolerance(config.on_error == "replace", count)


def backend_of(worker_type: str) -> type[Backend]:
    """Return the class of the backends of a kind of worker."""
    module, _, name = WORKER_KINDS[worker_type].backend.partition(":")
    found: type[Backend] = getattr(importlib.import_module(module), name)
    return found


class PoolCache:
    """Makes backends.

    Attributes:
        kind: the class of the backends.
        shelf: the backends, but for inline ones.
        workers: what each worker is given.

    Args:
        config: the loader's options.
        policy: the face's promises.
        base_seed: what keys `sample_rng`.
        active: says how many workers of a new backend are started; None: all.
    """

    def __init__(
        self,
        config: LoaderConfig,
        policy: Policy,
        base_seed: int,
        active: Callable[[], int] | None = None,
    ) -> None:
        self._config = config
        self._make_prepare = policy.worker.make_prepare if config.has_workers else None
        self.kind: type[Backend] = backend_of(config.worker_type)
        if not config.has_workers:
            self.kind = ThreadPool if policy.dispatch.works_ahead else InlineBackend
        self._policy = policy
        self._active = active
        self._convert: Callable[[Any], Any] | None = None  # inline; made with the first epoch
        # no WeakSet: Python drops a Ctrl-C that comes in its callbacks
        self._inline: list[weakref.ref[InlineBackend]] = []
        self._spare: list[LocalMemory] = []  # of inline backends, between epochs
        self._newest: weakref.ref[InlineBackend] | None = None
        self.workers = worker_config(config, policy, base_seed)
        self.shelf = PoolShelf(config.persistent_workers)
        self._shared: SharedWorkers | None = None
        if config.pool is not None:
            self._shared = config.pool._shared
            self._key = self._shared.join(self)

    def start(self) -> Backend:
        """Return a new backend for the caller alone.

        Raises:
            ConfigError: the dataset cannot be pickled (spawn, forkserver).
            ReaderError: the system refuses memory, descriptors, processes or threads.
        """
        if self.kind is InlineBackend:
            return self._make_inline()
        pool = self._start()
        self.shelf.lend(pool)
        return pool

    def give_back(self, backend: Backend) -> None:
        """Take a backend back from its iterator, once. Waits for nothing."""
        if isinstance(backend, InlineBackend):
            backend.close()
        else:
            self.shelf.give_back(backend)

    @property
    def newest(self) -> Backend | None:
        """The backend lent last, or the idle one; None when there is none."""
        return self.shelf.pool if self._newest is None else self._newest()

    @property
    def arena(self) -> Arena | None:
        """Where the newest backend's batches lie; between epochs, those of a kept one."""
        newest = self.newest
        found = newest.arena if newest is not None and newest.is_usable else None
        return self._spare[0].arena if found is None and self._spare else found

    def arena_stats(self) -> dict[str, Any] | None:
        """Return the counts of the arena, or the last ones of that which was closed last."""
        arena = self.arena
        counts = self.shelf.last_arena if arena is None else arena.stats()
        return counts and {**counts, "copy_way": copy_way(), "is_open": arena is not None}

    @property
    def is_in_use(self) -> bool:
        """Whether an iterator takes batches from a pool."""
        return self.shelf.is_lent

    def close_soon(self, grace_s: float | None = None) -> None:
        """As `close`, for the pools alone, and without waiting."""
        self.shelf.close_soon(grace_s)

    def close(self, grace_s: float | None = None) -> None:
        """End all backends and wait for it; iterators that have one then raise. Idempotent.

        `grace_s`: see Backend.
        """
        for found in self._inline:
            backend = found()
            if backend is not None:
                backend.close()
        while self._spare:
            self._spare.pop().close()
        self.shelf.close(grace_s)

    def _make_inline(self) -> InlineBackend:
        config = self._config
        if self._policy.batch.is_as_collated and config.is_on_cpu:
            # what is written in place (Rows) has no arrays before it is packed
            is_written = self.workers.collate_fn is not config.collate_fn
            self._convert = None if is_written else _same
        elif self._convert is None and self._policy.batch == BatchPolicy() and config.is_on_cpu:
            self._convert = make_unpacked(config.framework, config.collate_fn is not None)
        made = InlineBackend(
            self.workers, limit_nbytes=config.max_bytes, spare=self._spare, convert=self._convert
        )
        self._newest = weakref.ref(made)
        self._inline = [each for each in self._inline if each() is not None] + [self._newest]
        return made

    def _start(self) -> Backend:
        prepare = None if self._make_prepare is None else self._make_prepare()
        workers = dataclasses.replace(self.workers, prepare=prepare, ranks=ranks_for_workers())
        try:
            return self._make_pool(workers)
        except ConfigError:
            raise
        except ReaderError:
            # what the system refuses may still be held by pools that are just closing
            if not await_closing():
                raise
        return self._make_pool(workers)

    def _make_pool(self, workers: WorkerConfig) -> Backend:
        config = self._config
        active = None if self._active is None else self._active()
        window, limit_nbytes = config.window, config.max_bytes
        processes: Processes
        if self._shared is not None:
            limit_nbytes = limit_nbytes or self._shared.max_bytes
            processes = SharedProcesses(self._shared, self._key)
        elif config.backend is not None:
            if config.is_paced:
                window = max(window, min(_MOST_PACED, MOST_FACTOR * config.workers))
            in_flight = 2 * -(-window // config.workers) + 2
            takes_turns = self._policy.dispatch.is_round_robin
            processes = RemoteProcesses(config.backend, in_flight, takes_turns, config.is_paced)
        elif config.start_method is not None:
            processes = OwnProcesses(config.start_method)
        else:
            return self.kind(workers, window, limit_nbytes, active)
        return ProcessPool(workers, window, limit_nbytes, active, processes)


def _same(batch: Any) -> Any:
    return batch


class Loan(Finalized):
    """A backend that one iterator has; it is given back once, at the latest when this is dropped.

    Args:
        cache: lends the backend, an idle one or a new one; see `PoolCache.start` for its errors.

    Attributes:
        backend: what was lent. Kept when it is given back, to look at how its workers ended.
    """

    backend: Backend
    _is_out = False

    def __init__(self, cache: PoolCache) -> None:
        self._cache = cache  # keeps what the workers are given
        with interrupt_after():
            idle = cache.shelf.take_idle()
            if idle is not None:
                self.backend, self._is_out = idle, True
        if idle is None:
            self.backend = cache.start()  # a pool that an interrupt loses ends itself
            self._is_out = True

    def give_back(self) -> None:
        """Let another iterator have the backend. Idempotent; waits for nothing."""
        with interrupt_after():
            is_out, self._is_out = self._is_out, False
            if is_out:
                self._cache.give_back(self.backend)
                self.is_ended = True

    def finalize(self) -> None:
        """Give it back, in whatever thread."""
        self.give_back()


class PoolShelf:
    """The pools of one engine: lent, idle, or closing.

    A pool that is lent belongs to its iterator, and ends with that if it never gives it back.

    It has no lock. Each step is one operation of a dict or list, which no thread comes between, and
    a signal that comes between two steps leaves nothing locked.

    Args:
        is_persistent: keep a pool between epochs; else each epoch has its own.
    """

    def __init__(self, is_persistent: bool) -> None:
        self._is_persistent = is_persistent
        self._idle: list[Backend] = []  # one, most often
        # Pools that others keep, the newest last. Each reference takes itself out, without code of
        # Python: that could be interrupted, and Python drops what is raised there.
        self._lent: dict[weakref.ref[Backend], None] = {}
        # these end in the background, by threads that keep them; close() waits for them
        self._closing: dict[weakref.ref[Backend], None] = {}
        self._is_closed = False
        # counts of the feeder and the arena of the pool that ended last; None: there was none
        self.last_stages: Any = None
        self.last_arena: Any = None

    def _end(self, pool: Backend, grace_s: float | None = None) -> None:
        """Have a pool end in the background, and keep what it counted."""
        if isinstance(pool, Pool) and pool.is_usable:
            with contextlib.suppress(ReaderError):  # another thread has just closed it
                self.last_stages, self.last_arena = pool.feeder.stats(), pool.arena.stats()
        pool.close_soon(grace_s)

    def take_idle(self) -> Backend | None:
        """Return the pool that nobody uses, where there is one. It is lent from now on."""
        while self._idle:
            _note(self._lent, self._idle[-1])  # before the pop: it is always in a list
            pool = self._idle.pop()
            if pool.is_usable:
                return pool
            self._lent.pop(weakref.ref(pool), None)
            self._end(pool)
        return None

    @property
    def is_lent(self) -> bool:
        """Whether an iterator has a pool."""
        return any(pool.is_usable for pool in _pools_of(self._lent))

    def lend(self, pool: Backend) -> None:
        """Note that a pool is in use."""
        self._is_closed = False
        _note(self._lent, pool)

    def give_back(self, pool: Backend) -> None:
        """Take a pool back from its iterator. Waits for nothing."""
        if self._is_persistent and not self._is_closed and not self._idle and pool.is_usable:
            pool.cancel_epoch()
            self._idle.append(pool)
            self._lent.pop(weakref.ref(pool), None)
            self._check_closed()
            return
        _note(self._closing, pool)
        self._lent.pop(weakref.ref(pool), None)
        self._end(pool)

    def _check_closed(self) -> None:
        if self._is_closed:  # just now, by another thread
            self.drop()

    def close_soon(self, grace_s: float | None = None) -> list[Backend]:
        """As `close`, without waiting; returns what is to be waited for."""
        self._is_closed = True
        pools = [*_pools_of(self._lent), *_pools_of(self._closing), *self._idle]
        for pool in pools:
            self._end(pool, grace_s)
        return pools

    def close(self, grace_s: float | None = None) -> None:
        """End all pools and wait for it; iterators that still have one then raise. Idempotent."""
        for pool in self.close_soon(grace_s):
            pool.close(grace_s)
        self._lent.clear()
        self._idle.clear()

    def drop(self) -> None:
        """The loader is gone: end the idle pool; a lent one ends with its iterator."""
        self._is_closed = True
        for pool in [*self._idle]:
            self._end(pool)
        self._idle.clear()

    @property
    def pool(self) -> Backend | None:
        """The pool lent last, or the idle one; None when there is none."""
        return next(reversed([*self._idle, *_pools_of(self._lent)]), None)


def _note(pools: dict[weakref.ref[Backend], None], pool: Backend) -> None:
    pools[weakref.ref(pool, pools.pop)] = None


def _pools_of(pools: dict[weakref.ref[Backend], None]) -> list[Backend]:
    return [pool for each in list(pools) if (pool := each()) is not None]
