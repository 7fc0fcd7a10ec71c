"""Worker threads of the trainer: they are started, and joined at their end.

Imports the core and workers. See `pool` for its states. Nothing can end a thread that runs the
user's code: closing waits for it, for a limited time.
"""

from __future__ import annotations

import contextvars
import functools
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import interrupt_after
from reader._core.wire.channel import WorkerChannel
from reader.available_memory import available_bytes
from reader.engine.backends.backend import Death
from reader.engine.backends.pool import Pool
from reader.errors import InternalError, ReaderError, start_thread
from reader.processes import pool_registry
from reader.processes.handle import ThreadHandle
from reader.worker import loop
from reader.worker.global_rng_lock import GlobalRngLock

__all__ = ["ThreadPool"]

_GRACE_S = 0.4  # for a thread to end what it is doing


class ThreadPool(Pool):
    """Worker threads. Each runs in a copy of the context of the thread that starts the pool.

    Args:
        config, window, max_bytes, active: see Pool.

    Raises:
        ReaderError: the system refuses memory, descriptors or threads.
    """

    def __init__(
        self,
        config: loop.WorkerConfig,
        window: int,
        max_bytes: int | None = None,
        active: int | None = None,
    ) -> None:
        self._threads: list[threading.Thread] = []  # in the order of their numbers
        self._crew = _Crew()
        super().__init__(config, window, max_bytes, active)
        self._open(self._start_threads)

    def _start_threads(self) -> None:
        for worker_id in range(self._active):
            self._start_worker(worker_id)

    def _start_worker(self, worker_id: int) -> None:
        channel = WorkerChannel(
            self.arena, worker_id, self.feeder.bell, self._keep_slots, available_bytes, self.side
        )
        self.feeder.attach(worker_id)
        self._start_thread(channel, self._config, worker_id)
        self.started = worker_id + 1

    def _start_thread(
        self, channel: WorkerChannel, config: loop.WorkerConfig, worker_id: int
    ) -> None:
        name = f"reader-worker-{worker_id}" if config.num_workers else "reader-worker"
        context = contextvars.copy_context()  # a copy for each: one thread enters it
        work = functools.partial(context.run, _work, channel, config, worker_id, self.rng_lock)
        thread = threading.Thread(
            target=_run,
            args=([work], self._crew),
            name=name,
            daemon=True,  # a thread that is stuck in user code does not keep the process
        )
        del work, channel
        with interrupt_after():  # else an interrupt could lose a running thread here
            start_thread(thread, f"the worker thread {worker_id}")
            self._threads.append(thread)
            del thread  # the traceback of an exception must not hold the last reference to it

    def replace_ended(self) -> list[Death]:
        """Return nothing: a thread does not die by itself."""
        return []

    @property
    def handles(self) -> list[ThreadHandle]:
        """A handle of each worker, in the order of their numbers."""
        return [ThreadHandle(thread) for thread in self._threads]

    def name_of(self, worker_id: int) -> str:
        """Name a worker in a message."""
        if not self.has_workers:
            return "the worker thread (num_workers=0)"
        return f"worker thread {worker_id}"

    def open_error(self, payload: Any) -> loop.WorkerError:
        """Return what a worker sent in the place of a batch."""
        found: loop.WorkerError = payload
        return found

    def kill_worker(self, worker_id: int) -> bool:  # noqa: ARG002
        """Return False: a thread cannot be killed."""
        return False

    def _start_closing(self) -> None:
        """Have the last worker thread close it, if none of them makes a batch; else another one."""
        is_first = self._crew.pool is None and not sys.is_finalizing()
        if not (is_first and self._is_resting() and self._crew.leave_to_last(self)):
            super()._start_closing()

    def _is_resting(self) -> bool:
        try:
            found = list(map(self.feeder.worker_progress, range(self.started)))
        except ReaderError:  # another thread has closed it meanwhile
            return False
        return all(each.seq is None and each.is_ready for each in found)

    def _wait(self) -> None:
        if self._crew.pool is not None:
            with interrupt_after():  # nothing may come between the two calls
                is_closed = self._open_lock.acquire(timeout=_GRACE_S)
                if is_closed:
                    self._open_lock.release()
            if is_closed:
                return
            super()._start_closing()  # an iterator of the user's does not let its thread end
        super()._wait()

    def _drop_threads(self) -> None:
        super()._drop_threads()
        self._threads = []

    def _stop_workers(self) -> None:
        """Do nothing: each thread ends after the sample that it is at."""

    def _release(self) -> bool:
        """Wait for the threads, with a limit: user code in one of them may not end."""
        if self.rng_lock is not None:
            self.rng_lock.stop()
        deadline = time.monotonic() + _GRACE_S
        others = [each for each in self._threads if each is not threading.current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - time.monotonic()))
        if self.rng_lock is not None:
            self.rng_lock.release()
        return not any(thread.is_alive() for thread in others)


class _Crew:
    """The worker threads of a pool that have not ended.

    Attributes:
        pool: closed by the last of them; None: they leave it open.
    """

    def __init__(self) -> None:
        self.pool: ThreadPool | None = None
        self._count = 0
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Count the calling thread."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """The calling thread ends; the last one closes the pool."""
        with self._lock:
            self._count -= 1
            if self._count or self.pool is None:
                return
            pool, self.pool = self.pool, None
        pool_registry.keep_closer(threading.current_thread())
        pool._close()

    def leave_to_last(self, pool: ThreadPool) -> bool:
        """Have the last thread close the pool. Returns False if all have ended."""
        with self._lock:
            self.pool = pool if self._count else None
            return self._count > 0


def _run(work: list[Callable[[], None]], crew: _Crew) -> None:
    """Run a worker; what it had of the arena is freed before the pool is closed."""
    crew.enter()
    try:
        work.pop()()
    finally:
        crew.leave()


def _work(
    channel: WorkerChannel,
    config: loop.WorkerConfig,
    worker_id: int,
    rng_lock: GlobalRngLock | None,
) -> None:
    """Run a worker. Send also an exception that ends the loop: no pidfd tells of it."""
    try:
        loop.run(channel, config, worker_id, rng_lock)
    except BaseException as error:
        ended = InternalError(f"worker thread {worker_id} ended: {error!r}")
        ended.__cause__ = error
        channel.fail(loop.WorkerError(ended, ""))
