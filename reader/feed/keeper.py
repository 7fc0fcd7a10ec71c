"""Who has a loader's pool: the loader between epochs, an iterator during one.

Imports the config and the pool. One keeper per loader; loader and iterators may be dropped in any
order and in any thread, and whoever is last ends the workers.
"""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable
from typing import Any

from reader.config import LoaderConfig
from reader.promises import Promises
from reader.workers.loop import WorkerConfig
from reader.workers.pool import Pool
from reader.workers.starting import start_pool
from reader.workers.stream import Stream

__all__ = ["PoolKeeper", "PoolShelf", "make_keeper", "worker_config"]


def worker_config(
    config: LoaderConfig, promises: Promises, dataset: Any, base_seed: int
) -> WorkerConfig:
    """Return what each worker of a loader is given."""
    return WorkerConfig(
        dataset=dataset,
        collate_fn=config.collate_fn,
        worker_init_fn=config.worker_init_fn,
        num_workers=config.num_workers,
        seed=config.seed,
        base_seed=base_seed,
        stream=Stream(config.batch_size, config.drop_last) if config.is_iterable else None,
        rules=promises.rules,
        worker_type=config.worker_type,
        seed_globals=config.seed_globals,
        snapshot_every=config.snapshot_every_n_steps or 0,
        takes_any_key=promises.takes_any_key,
        keeps_rng=promises.keeps_worker_rng,
        heeds_seeding=promises.heeds_seeding,
        makes_stale=promises.makes_stale and config.persistent_workers and config.seed is None,
    )


def make_keeper(
    config: LoaderConfig, promises: Promises, dataset: Any, base_seed: int
) -> PoolKeeper:
    """Return the keeper of a loader's pools."""
    workers = worker_config(config, promises, dataset, base_seed)
    options = (config.window, config.start_method, config.max_bytes)
    start = functools.partial(start_pool, workers, promises.make_prepare, options)
    return PoolKeeper(start, config.persistent_workers)


class PoolShelf:
    """The pools of one keeper: lent, idle, or closing.

    It leads to nothing of the user's, so that finalizers may hold it: a dataset or `collate_fn`
    that leads to its loader would else keep it for ever.

    Args:
        is_persistent: keep a pool between epochs; else each epoch has its own.
    """

    def __init__(self, is_persistent: bool) -> None:
        self._is_persistent = is_persistent
        # reentrant: garbage collection may give a pool back while this thread borrows one
        self._lock = threading.RLock()
        self._idle: Pool | None = None
        self.lent: dict[Pool, None] = {}  # the newest last
        # these end in the background, by threads that keep them; close() waits for them
        self._closing: weakref.WeakSet[Pool] = weakref.WeakSet()
        self._is_closed = False

    def take_idle(self) -> Pool | None:
        """Return the pool that nobody uses, where there is one."""
        with self._lock:
            pool, self._idle = self._idle, None
            if pool is not None and not pool.is_usable:
                pool.close_soon()
                pool = None
        return pool

    def lend(self, pool: Pool) -> None:
        """Note that a pool is in use."""
        with self._lock:
            self._is_closed = False
            self.lent[pool] = None

    def give_back(self, pool: Pool) -> None:
        """Take a pool back from its iterator; never waits."""
        with self._lock:
            self.lent.pop(pool, None)
            keep = self._is_persistent and not self._is_closed and self._idle is None
            if keep and pool.is_usable:
                pool.cancel_epoch()
                self._idle = pool
                return
            self._closing.add(pool)
        pool.close_soon()

    def close(self) -> None:
        """End all pools and wait for it; iterators that still have one then raise. Idempotent."""
        with self._lock:
            self._is_closed = True
            pools = [*self.lent, *self._closing]
            if self._idle is not None:
                pools.append(self._idle)
            self._idle = None
            self.lent.clear()
            self._closing.update(pools)
        for pool in pools:
            pool.close_soon()
        for pool in pools:
            pool.close()

    def drop(self) -> None:
        """The loader is gone: end the idle pool; a lent one ends with its iterator."""
        with self._lock:
            self._is_closed = True
            pool, self._idle = self._idle, None
        if pool is not None:
            pool.close_soon()

    @property
    def pool(self) -> Pool | None:
        """The pool lent last, or the idle one; None when there is none."""
        with self._lock:
            return next(reversed(self.lent), self._idle)


class PoolKeeper:
    """Makes pools, and keeps for each what its workers are given. Lives with loader and iterators.

    Args:
        make: starts a pool; returns it and what its workers are given.
        is_persistent: see PoolShelf.
    """

    def __init__(self, make: Callable[[], tuple[Pool, WorkerConfig]], is_persistent: bool) -> None:
        self._make = make
        self.shelf = PoolShelf(is_persistent)
        self._configs: weakref.WeakKeyDictionary[Pool, WorkerConfig] = weakref.WeakKeyDictionary()

    def borrow(self) -> Pool:
        """Return a pool for the caller alone: the idle one, or a new one."""
        pool = self.shelf.take_idle()
        if pool is None:
            pool, config = self._make()
            self._configs[pool] = config
        self.shelf.lend(pool)
        return pool

    @property
    def pool(self) -> Pool | None:
        """The pool in use or idle, for statistics; None when there is none."""
        return self.shelf.pool
