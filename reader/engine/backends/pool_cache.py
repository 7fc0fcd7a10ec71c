"""The pools of an engine: lent to an iterator, idle between epochs, or closing.

Imports the pools and workers. Engine and iterators may be dropped in any order and in any thread;
the last one of them ends the workers.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import importlib
import weakref
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import Finalized, interrupt_after
from reader.cluster.pace import MOST_FACTOR
from reader.config import WORKER_KINDS, LoaderConfig
from reader.data.distributed_env import ranks_for_workers
from reader.engine.backends.backend import Backend, arena_stats
from reader.engine.backends.inline_cache import InlineCache
from reader.engine.backends.pool import Pool
from reader.engine.backends.process_pool import ProcessPool
from reader.engine.backends.remote_processes import RemoteProcesses
from reader.engine.backends.shared_processes import SharedProcesses
from reader.engine.backends.shared_workers import SharedWorkers
from reader.engine.backends.thread_pool import ThreadPool
from reader.engine.backends.worker_config import make_worker_config
from reader.engine.backends.worker_processes import OwnProcesses, Processes
from reader.errors import ConfigError, ReaderError
from reader.policy import Policy
from reader.processes.pool_registry import await_closing
from reader.worker.loop import WorkerConfig

__all__ = ["Loan", "PoolCache", "backend_of"]

_MOST_PACED = 4096  # batches in flight of all remote workers, unless more are asked for


def backend_of(worker_type: str) -> type[Backend]:
    """Return the class of the backends of a kind of worker."""
    return _imported(WORKER_KINDS[worker_type].backend)


@functools.cache
def _imported(path: str) -> type[Backend]:
    module, _, name = path.partition(":")
    found: type[Backend] = getattr(importlib.import_module(module), name)
    return found


class PoolCache:
    """Makes backends.

    Attributes:
        kind: the class of the backends.
        shelf: the backends.
        worker_config: what each worker is given.

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
            self.kind = ThreadPool
        self._policy = policy
        self._active = active
        self.worker_config = make_worker_config(config, policy, base_seed)
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
        pool = self._start()
        self.shelf.lend(pool)
        return pool

    @property
    def has_idle(self) -> bool:
        """Whether a pool waits for an iterator."""
        return self.shelf.has_idle

    def take_idle(self) -> Backend | None:
        """Return the pool that nobody uses, where there is one. It is lent from now on."""
        return self.shelf.take_idle()

    def release(self, backend: Backend) -> None:
        """Take a backend back from its iterator, once. Waits for nothing."""
        self.shelf.release(backend)

    @property
    def newest(self) -> Backend | None:
        """The backend lent last, or the idle one; None when there is none."""
        return self.shelf.pool

    def arena_stats(self) -> dict[str, Any] | None:
        """Return the counts of the arena, or the last ones of that which was closed last."""
        newest = self.newest
        arena = newest.arena if newest is not None and newest.is_usable else None
        return arena_stats(arena, self.shelf.last_arena)

    @property
    def last_stages(self) -> Any:
        """The counts of the feeder of the pool that ended last; None: there was none."""
        return self.shelf.last_stages

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
        self.shelf.close(grace_s)

    def drop(self) -> None:
        """End the idle pool in the background; a lent one ends with its iterator."""
        self.shelf.drop()

    def _start(self) -> Backend:
        prepare = None if self._make_prepare is None else self._make_prepare()
        made = dataclasses.replace(self.worker_config, prepare=prepare, ranks=ranks_for_workers())
        try:
            return self._make_pool(made)
        except ConfigError:
            raise
        except ReaderError:
            # what the system refuses may still be held by pools that are just closing
            if not await_closing():
                raise
        return self._make_pool(made)

    def _make_pool(self, worker_config: WorkerConfig) -> Backend:
        config = self._config
        active = None if self._active is None else self._active()
        window, max_bytes = config.window, config.max_bytes
        processes: Processes
        if self._shared is not None:
            max_bytes = max_bytes or self._shared.max_bytes
            processes = SharedProcesses(self._shared, self._key)
        elif config.backend is not None:
            if config.is_paced:
                window = max(window, min(_MOST_PACED, MOST_FACTOR * config.num_loops))
            in_flight = 2 * -(-window // config.num_loops) + 2
            takes_turns = self._policy.dispatch.is_round_robin
            processes = RemoteProcesses(config.backend, in_flight, takes_turns, config.is_paced)
        elif config.start_method is not None:
            processes = OwnProcesses(config.start_method)
        else:
            return self.kind(worker_config, window, max_bytes, active)
        return ProcessPool(worker_config, window, max_bytes, active, processes)


class Loan(Finalized):
    """A backend that one iterator has; it is given back once, at the latest when this is dropped.

    Args:
        cache: lends the backend, an idle one or a new one; see `PoolCache.start` for its errors.
            With an InlineCache no signal is held back: a backend may be closed twice.

    Attributes:
        backend: what was lent. Kept when it is given back, to look at how its workers ended.
    """

    backend: Backend
    _is_out = False

    def __init__(self, cache: PoolCache | InlineCache) -> None:
        self._cache = cache  # keeps what the workers are given
        if isinstance(cache, PoolCache) and cache.has_idle:
            with interrupt_after():
                idle = cache.take_idle()
                if idle is not None:
                    self.backend, self._is_out = idle, True
                    return
        self.backend = cache.start()  # a pool that an interrupt loses ends itself
        self._is_out = True

    def release(self) -> None:
        """Let another iterator have the backend. Idempotent; waits for nothing."""
        cache = self._cache
        if isinstance(cache, InlineCache):
            if self._is_out:
                cache.release(self.backend)
                self._is_out = False
                self.is_ended = True
            return
        with interrupt_after():
            is_out, self._is_out = self._is_out, False
            if is_out:
                cache.release(self.backend)
                self.is_ended = True

    def finalize(self) -> None:
        """Give it back, in whatever thread; an interrupt may have come before it was lent."""
        if self._is_out:
            self.release()


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

    def _close_pool(self, pool: Backend, grace_s: float | None = None) -> None:
        """Have a pool end in the background, and keep what it counted."""
        if isinstance(pool, Pool) and pool.is_usable:
            with contextlib.suppress(ReaderError):  # another thread has just closed it
                self.last_stages, self.last_arena = pool.feeder.stats(), pool.arena.stats()
        pool.close_soon(grace_s)

    @property
    def has_idle(self) -> bool:
        """Whether a pool waits for an iterator."""
        return bool(self._idle)

    def take_idle(self) -> Backend | None:
        """Return the pool that nobody uses, where there is one. It is lent from now on."""
        while self._idle:
            _note(self._lent, self._idle[-1])  # before the pop: it is always in a list
            pool = self._idle.pop()
            if pool.is_usable:
                return pool
            self._lent.pop(weakref.ref(pool), None)
            self._close_pool(pool)
        return None

    @property
    def is_lent(self) -> bool:
        """Whether an iterator has a pool."""
        return any(pool.is_usable for pool in _pools_of(self._lent))

    def lend(self, pool: Backend) -> None:
        """Note that a pool is in use."""
        self._is_closed = False
        _note(self._lent, pool)

    def release(self, pool: Backend) -> None:
        """Take a pool back from its iterator. Waits for nothing."""
        if self._is_persistent and not self._is_closed and not self._idle and pool.is_usable:
            pool.cancel_epoch()
            self._idle.append(pool)
            self._lent.pop(weakref.ref(pool), None)
            self._check_closed()
            return
        _note(self._closing, pool)
        self._lent.pop(weakref.ref(pool), None)
        self._close_pool(pool)

    def _check_closed(self) -> None:
        if self._is_closed:  # just now, by another thread
            self.drop()

    def close_soon(self, grace_s: float | None = None) -> list[Backend]:
        """As `close`, without waiting; returns what is to be waited for."""
        self._is_closed = True
        pools = [*_pools_of(self._lent), *_pools_of(self._closing), *self._idle]
        for pool in pools:
            self._close_pool(pool, grace_s)
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
            self._close_pool(pool)
        self._idle.clear()

    @property
    def pool(self) -> Backend | None:
        """The pool lent last, or the idle one; None when there is none."""
        return next(reversed([*self._idle, *_pools_of(self._lent)]), None)


def _note(pools: dict[weakref.ref[Backend], None], pool: Backend) -> None:
    pools[weakref.ref(pool, pools.pop)] = None


def _pools_of(pools: dict[weakref.ref[Backend], None]) -> list[Backend]:
    return [pool for each in list(pools) if (pool := each()) is not None]
