"""What pools of processes and of threads have in common: arena, feeder, and closing.

Imports the core and workers. A pool belongs to the trainer process that made it; one iterator at a
time uses it. `close` may come from any thread, also from garbage collection; the state of a pool
never goes back.
"""

from __future__ import annotations

import abc
import enum
import functools
import sys
import threading
from collections.abc import Callable
from typing import Any, ClassVar

from reader._core.batch.side_table import SideTable
from reader._core.interpreter.signals import Finalized, interrupt_after, is_unwinding
from reader._core.memory.arena import Arena, fork_generation
from reader._core.wire.feeder import Feeder
from reader.available_memory import available_bytes
from reader.engine.backends.backend import Death, Watch, WorkerActivity, WorkerStatus
from reader.engine.backends.grace import EXIT_S, GRACE_S
from reader.errors import ConfigError
from reader.processes import pool_registry
from reader.worker.global_rng_lock import GlobalRngLock
from reader.worker.loop import WorkerConfig, WorkerError
from reader.worker_clock import WorkerClock, worker_clock

__all__ = ["Pool", "PoolState"]


class PoolState(enum.Enum):
    """OPEN -> CLOSING -> CLOSED."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


_OPEN = PoolState.OPEN  # asked for each batch, and an enum takes ten times as long to find it


class Pool(Finalized, abc.ABC):
    """Workers, their arena and the feeder that moves their batches; see `Backend`.

    A pool that is dropped ends its workers: an interrupt may come after it started and before
    anybody refers to it. Workers do not refer to it.

    Args:
        config: what each worker is given.
        window: batches in flight, over all workers.
        max_bytes: most memory that batches may own; None: what the machine has.
        active: how many workers are started; None: all.

    Attributes:
        has_workers: False: one thread takes the place of workers.
        num_workers: how many workers may take tasks, 1 or more.
        started: how many workers there are; more may be started.
        side: where workers in the trainer hand over objects; None: workers are processes.
        rng_lock: what such workers take to seed the global random state; None: see `side`.

    Raises:
        ConfigError: gevent or eventlet has replaced what the workers need.
        ReaderError: the system refuses memory, descriptors, processes or threads.
    """

    works_ahead: ClassVar[bool] = True
    takes_keys: ClassVar[bool] = False

    _state = PoolState.CLOSED  # until there is something to close
    _is_shared = False  # whether the workers are other loaders', too

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        max_bytes: int | None = None,
        active: int | None = None,
    ) -> None:
        _check_unpatched(config)
        self._config = config
        self.side = SideTable() if config.is_thread else None
        self.rng_lock = GlobalRngLock() if config.is_thread else None
        self.has_workers = config.num_workers > 0
        self.num_workers = max(1, config.num_workers)
        self.window = window
        self.started = 0
        self._active = self.num_workers if active is None else active
        share = -(-window // self.num_workers)
        self._keep_slots = share + 3
        self._generation = fork_generation()
        self._closer: threading.Thread | None = None
        limit = 2 * share + 2  # tasks of an abandoned epoch may still be in flight
        self._make_arena = functools.partial(Arena.create, self.num_workers, limit, max_bytes)
        self.arena = self._make_arena()
        self.set_in_flight(max(1, window * self._active // self.num_workers))
        self.feeder = Feeder(
            self.arena, self.num_workers, self.window, limit, available_bytes, self.side
        )
        self._closing = threading.Lock()  # the thread that ends the workers takes it and keeps it
        # held until it is closed. An Event that is interrupted may stay locked
        self._open_lock = threading.Lock()
        self._open_lock.acquire()
        self._state = PoolState.OPEN

    def _renew_arena(self) -> None:
        """Go on in another arena: the workers have ended, and one of them damaged this one."""
        arena = self._make_arena()
        self.feeder.renew(arena)
        self.arena = arena
        self.set_in_flight(self._in_flight)

    def _open(self, start: Callable[[], None]) -> None:
        """Start the workers by `start`, then the reader thread."""
        pool_registry.limit_closing()
        pool_registry.add(self)
        try:
            # after `add`: a program that is ending either sees this pool, or this call raises
            pool_registry.stop_with_program()
            start()
            self.feeder.start()
        except BaseException:
            self.close(0.0)
            raise

    # -- in use ----------------------------------------------------------------------------------

    def set_active(self, count: int) -> list[int]:
        """Have so many workers take tasks; returns those that were started for it."""
        new = list(range(self.started, count))
        for worker_id in new:
            self._start_worker(worker_id)
        for worker_id in range(self.started):
            self.feeder.set_resting(worker_id, worker_id >= count)
        self._active = count
        return new

    def set_in_flight(self, count: int) -> None:
        """Choose how samples are copied, for ``count`` batches in flight at once."""
        self._in_flight = count
        self.arena.uncached_from = self._config.uncached_from(count)

    @abc.abstractmethod
    def _start_worker(self, worker_id: int) -> None:
        """Start one more, and count it.

        Raises:
            ReaderError: the system refuses it, or the pool was closed.
        """

    def busy_s(self) -> float:
        """Return the seconds that all workers spent on batches so far, those in hand included."""
        feeder = self.feeder
        return sum(
            feeder.worker_counts(worker_id).busy_s + feeder.worker_progress(worker_id).seconds
            for worker_id in range(self.started)
        )

    def clock(self) -> WorkerClock | None:
        """Return the CPU times of all workers by the system's clock; None: unknown."""
        if any(handle.thread_id is None for handle in self.handles):
            return None  # it is on another machine
        found = [worker_clock(handle.pid, handle.thread_id) for handle in self.handles]
        known = [clock for clock in found if clock is not None]
        if len(known) < len(found):
            return None
        return WorkerClock(sum(each.cpu_s for each in known), sum(e.runnable_s for e in known))

    @property
    def capacity(self) -> int | None:
        """How many workers fit on other machines; None: the cores of this machine decide."""
        return None

    @property
    def wanted(self) -> int | None:
        """How many tasks in flight keep workers on other machines busy; None: unknown."""
        return None

    def has_begun(self, count: int) -> bool:
        """Whether each of so many workers has made a batch."""
        return all(self.feeder.worker_counts(worker_id).batches for worker_id in range(count))

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in the process that made it."""
        return self._state is _OPEN and self._generation == fork_generation()

    @property
    def is_open(self) -> bool:
        """Whether it was not closed, in whatever process."""
        return self._state is PoolState.OPEN

    @property
    def is_closing(self) -> bool:
        """Whether it ends in the background."""
        return self._state is PoolState.CLOSING

    def open_epoch(self, send_starts: Callable[[], bool], progress: Any) -> None:
        """Do nothing: workers begin an epoch with its first task."""

    @abc.abstractmethod
    def replace_ended(self) -> list[Death]:
        """See Backend."""

    @abc.abstractmethod
    def name_of(self, worker_id: int) -> str:
        """See Backend."""

    @abc.abstractmethod
    def open_error(self, payload: Any) -> WorkerError:
        """See Backend."""

    @abc.abstractmethod
    def kill_worker(self, worker_id: int) -> bool:
        """See Backend."""

    @property
    @abc.abstractmethod
    def handles(self) -> list[Any]:
        """See Backend."""

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:  # noqa: ARG002
        """Find none: no other loader has these workers."""
        return list

    def cancel_epoch(self) -> None:
        """Make the epoch stale: answers in flight are dropped as they come. Blocks on nothing."""
        self.feeder.begin_run(0)
        self.feeder.notify()

    def statuses(self) -> list[WorkerStatus]:
        """Return what each worker does at this moment."""
        found = []
        for worker_id, handle in enumerate(self.handles):
            if not self.is_usable or not handle.is_alive():
                ended = WorkerStatus(worker_id, handle.pid, WorkerActivity.ENDED, host=handle.host)
                found.append(ended)
                continue
            counts = None  # the clocks of this machine tell more, but of a whole process
            if self._is_shared or handle.host is not None:
                counts = self.feeder.worker_counts(worker_id)
            _, batch, sample, since_s, is_ready = self.feeder.worker_progress(worker_id)
            activity = WorkerActivity.BUSY
            if batch is None:
                activity = WorkerActivity.IDLE if is_ready else WorkerActivity.STARTING
            at = batch, sample, since_s, handle.thread_id, handle.host, counts
            found.append(WorkerStatus(worker_id, handle.pid, activity, *at))
        return found

    # -- ending ----------------------------------------------------------------------------------

    def close(self, grace_s: float | None = None) -> None:
        """Close the workers and wait for their end. Idempotent.

        A worker process finishes the sample that it is at, in `grace_s` seconds at most, is then
        interrupted, and killed after another second; one between two samples ends at once. A later
        call may shorten that time. Threads are waited for 0.4 s. Batches that the user still holds
        stay valid. Ctrl-C ends the waiting, not the closing.

        Args:
            grace_s: None: 5 s; 0 where an exception drops the pool.
        """
        self.close_soon(grace_s)
        if self._generation == fork_generation() and self._closer is not threading.current_thread():
            self._wait()

    def _wait(self) -> None:
        """Wait until it is closed."""
        with self._open_lock:
            pass

    def close_soon(self, grace_s: float | None = None) -> None:
        """As `close`, but another thread waits."""
        if self._generation != fork_generation() or self._state is PoolState.CLOSED:
            return  # a forked child owns nothing of this
        if grace_s is None:
            grace_s = 0.0 if is_unwinding() else GRACE_S
        with interrupt_after():  # the feeder reads the arena, others the state
            self._limit(grace_s)
            self._state = PoolState.CLOSING
            if self._closer is None:
                self.arena.stop()
        if self._closer is not None:
            return
        try:
            with interrupt_after():
                self._start_closing()
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            self._limit(EXIT_S)
            try:
                self._close()
            except BaseException:
                self._kill_workers()
                self._closing.release()
                self._close()
                raise

    def _start_closing(self) -> None:
        """Have a thread close it. Raises RuntimeError: the interpreter starts no more threads."""
        pool_registry.start_closing(self._close)

    def finalize(self) -> None:
        """Close the workers, unless they are closed."""
        if self._state is PoolState.CLOSED:
            self._drop_threads()  # now: Python drops a signal's exception in a later free
        elif self._generation == fork_generation():
            pool_registry.add(self)  # the garbage collector has cleared weak references to it
            self.close_soon()

    def _drop_threads(self) -> None:
        self._closer = None

    def _close(self) -> None:
        if not self._closing.acquire(blocking=False):
            return  # another thread does it
        self._closer = threading.current_thread()
        try:
            self._stop_workers()
            self.feeder.close()
            is_free = self._release()
            self.arena.close()
            if is_free:
                self.arena.release()
        finally:
            self._state = PoolState.CLOSED
            pool_registry.remove(self)
            if self._open_lock.locked():  # it is not locked after an interrupt
                self._open_lock.release()

    @abc.abstractmethod
    def _stop_workers(self) -> None:
        """Stop the workers; those that do not end by themselves get signals."""

    def _limit(self, grace_s: float) -> None:
        """Limit the time in which workers may finish their samples, in seconds from now."""

    def _kill_workers(self) -> None:
        """Kill the workers, where that can be done."""

    @abc.abstractmethod
    def _release(self) -> bool:
        """Release the resources of the workers. Returns whether none of them can use the arena."""


def _check_unpatched(config: WorkerConfig) -> None:
    """Refuse to wait for threads that gevent or eventlet has replaced.

    Theirs run one at a time, and switch where Python waits. The consumer waits in native code, and
    so no worker thread would ever run. Eventlet also takes away `select.poll`.
    """
    used = "num_workers=0" if config.num_workers == 0 else 'worker_type="thread"'
    gevent, eventlet = (sys.modules.get(name) for name in ("gevent.monkey", "eventlet.patcher"))
    if gevent is not None and config.is_thread and gevent.is_module_patched("_thread"):
        raise ConfigError(
            f"{used} needs operating system threads, and gevent.monkey has replaced them with"
            " greenlets, which do not run while the loader waits. Pass num_workers=1 or more with"
            ' worker_type="process", or call patch_all(thread=False)'
        )
    patched = eventlet is not None and [
        name for name in ("thread", "select", "os") if eventlet.is_monkey_patched(name)
    ]
    if patched:
        raise ConfigError(
            f"a loader needs the unpatched modules {', '.join(patched)}, and eventlet has patched"
            " them: its green threads do not run while the loader waits. Call"
            " eventlet.monkey_patch(thread=False, select=False, os=False), or use the loader in"
            " another process"
        )
