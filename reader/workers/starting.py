"""Starting the workers of a loader: prepared as its facade wants, tried twice where that may help.

Imports the pool and the loop's config. Keeps no state.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from reader.errors import ConfigError, ReaderError
from reader.workers.loop import WorkerConfig
from reader.workers.open_pools import await_closing
from reader.workers.pool import Pool

__all__ = ["start_pool"]


def start_pool(
    workers: WorkerConfig,
    make_prepare: Callable[[], Any] | None,
    options: tuple[int, str | None, int | None],
) -> tuple[Pool, WorkerConfig]:
    """Start the workers of one epoch, or of all if they stay.

    Returns the pool and what its workers were given, which is to be kept as long as it.

    Args:
        workers: what each is given.
        make_prepare: returns what prepares each worker; None: nothing does.
        options: window, start_method and max_bytes of the pool.

    Raises:
        ConfigError, ReaderError: as Pool.
    """
    if make_prepare is not None and workers.num_workers > 0:
        workers = dataclasses.replace(workers, prepare=make_prepare())
    try:
        return Pool(workers, *options), workers
    except ConfigError:
        raise
    except ReaderError:
        # the system refuses something that pools which are just ending may still have
        if not await_closing():
            raise
    return Pool(workers, *options), workers
