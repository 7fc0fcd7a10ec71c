"""The list of open pools, while other threads open and close some."""

from __future__ import annotations

import gc
import sys
import threading

from reader.processes import pool_registry


class Quiet:
    """Stands for a pool: the list needs no more of it."""

    is_closing = False

    def close(self) -> None:
        pool_registry.remove(self)


def test_the_open_pools_can_be_listed_while_threads_open_and_close_some() -> None:
    kept = Quiet()
    pool_registry.add(kept)
    done = threading.Event()

    def open_and_close() -> None:
        while not done.is_set():
            some = [Quiet() for _ in range(20)]
            for pool in some:
                pool_registry.add(pool)
            for pool in some:
                pool.close()

    thread = threading.Thread(target=open_and_close)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        thread.start()
        for _ in range(20_000):
            assert kept in pool_registry.snapshot()
    finally:
        done.set()
        sys.setswitchinterval(interval)
        thread.join()
        kept.close()
    assert kept not in pool_registry.snapshot()


def test_a_pool_that_was_freed_is_not_listed() -> None:
    before = len(pool_registry.snapshot())
    pool = Quiet()
    pool_registry.add(pool)
    assert len(pool_registry.snapshot()) == before + 1
    del pool
    gc.collect()
    assert len(pool_registry.snapshot()) == before
