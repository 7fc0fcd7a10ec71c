"""The pool: starts workers, notices the dead and replaces them, and ends them all.

Imports the core and this room. A pool belongs to the trainer process that made it; one iterator at
a time uses it. `close` may come from any thread, also from garbage collection; the state below
changes in `_set_state` alone.
"""

from __future__ import annotations

import contextlib
import dataclasses
import enum
import os
import select
import signal
import sys
import threading
import time
import weakref
from multiprocessing.process import BaseProcess
from typing import Any

from reader._core.arena import Arena, fork_generation
from reader._core.channel import WorkerChannel
from reader._core.feeder import Feeder
from reader._core.stack import SideTable
from reader.errors import InternalError, ReaderError, WorkerDied
from reader.workers import loop, open_pools
from reader.workers.handle import ThreadHandle, WorkerHandle
from reader.workers.interrupt import interrupt_after
from reader.workers.memory import available_bytes
from reader.workers.process import ProcessStarter, forget_process
from reader.workers.random_turns import RandomTurns
from reader.workers.template import pidfd_of
from reader.workers.threads import WorkerThreads

__all__ = ["Death", "Pool", "PoolState", "died"]

_GRACE_S = 0.4  # for a worker to end what it is doing; then SIGTERM
_TERM_S = 0.2  # for SIGTERM to work; then SIGKILL


class PoolState(enum.Enum):
    """OPEN -> CLOSING -> CLOSED."""

    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


@dataclasses.dataclass(frozen=True)
class Death:
    """A worker process that ended by itself."""

    worker_id: int
    pid: int
    exitcode: int | None
    lost: list[int]  # batches of this epoch that it had and did not answer
    busy: int | None  # the one of them that it was at
    started: bool  # whether it ever said hello
    is_used_up: bool  # whether it had said that its copy of an iterable dataset is


class Pool:
    """Workers, their arena and the feeder that moves their batches.

    Args:
        config: what each worker is given; processes or threads, as it says. It is kept weakly,
            for a finalizer may hold the pool, and a dataset its loader: the caller keeps it.
        window: batches in flight, over all workers.
        start_method: of multiprocessing; None: what Python's own default is.
        max_bytes: most memory that batches may own; None: what the machine has.

    Raises:
        ConfigError: the dataset cannot be pickled (spawn, forkserver).
        ReaderError: the system refuses memory, descriptors or processes.
    """

    def __init__(
        self,
        config: loop.WorkerConfig,
        window: int,
        start_method: str | None = None,
        max_bytes: int | None = None,
    ) -> None:
        self.state = PoolState.CLOSED
        self._config = weakref.ref(config)
        self.num_workers = config.num_workers  # 0: one thread
        self.is_thread = config.is_thread
        self.workers = max(1, config.num_workers)
        self.window = window
        share = -(-window // self.workers)
        self._keep_slots = share + 3
        self._generation = fork_generation()
        self._processes: dict[int, BaseProcess] = {}
        self._pidfds: dict[int, int] = {}
        self._handles: dict[int, WorkerHandle] = {}
        self._starter: ProcessStarter | None = None
        self._threads = WorkerThreads() if config.is_thread else None
        self._closer: threading.Thread | None = None
        self._side = None if self._threads is None else SideTable()
        limit = 2 * share + 2  # some tasks may be stale ones of an epoch given up
        self.arena = Arena.create(self.workers, limit, max_bytes)
        self.feeder = Feeder(
            self.arena, self.workers, self.window, limit, available_bytes, self._side
        )
        self._state_lock = threading.Lock()
        self._closed = threading.Event()
        self._process_lock = threading.Lock()  # a worker is replaced, or all are ended
        self.state = PoolState.OPEN
        open_pools.add(self)
        try:
            # after it was added: whoever ends the program sees it, or this
            open_pools.leave_with_program()
            if self._threads is None:
                self._start_processes(config, start_method)
            else:
                self._start_threads(config, self._threads)
            self.feeder.start()
        except BaseException:
            self.close()
            raise

    # -- starting --------------------------------------------------------------------------------

    def _start_processes(self, config: loop.WorkerConfig, start_method: str | None) -> None:
        self._starter = ProcessStarter(config, start_method)
        if self.workers > 1 or self._starter.holds_many:
            self._starter.open_template()
        for worker_id in range(self.workers):
            with self._process_lock:  # or a process would start that the closing thread never sees
                if self.state is not PoolState.OPEN:
                    raise ReaderError("the loader was closed while its workers were being started")
                self._start_process(worker_id)

    def _start_process(self, worker_id: int) -> None:
        with interrupt_after():
            self._start_and_note(worker_id)

    def _start_and_note(self, worker_id: int) -> None:
        config = self._config()
        if self._starter is None or config is None:
            raise InternalError("a worker process was to be started in a pool that has none")
        process = self._starter.start(
            worker_id, config, self.arena, self.feeder.bell, self._keep_slots
        )
        self._processes[worker_id] = process
        self._handles[worker_id] = WorkerHandle(process)
        try:
            self._pidfds[worker_id] = pidfd_of(process)
        except ProcessLookupError:  # it is gone and reaped already: any ended process will do
            self._pidfds[worker_id] = _ended_pidfd()
        self.feeder.attach(worker_id, self._pidfds[worker_id])

    def _start_threads(self, config: loop.WorkerConfig, threads: WorkerThreads) -> None:
        for worker_id in range(self.workers):
            channel = WorkerChannel(
                self.arena,
                worker_id,
                self.feeder.bell,
                self._keep_slots,
                available_bytes,
                self._side,
            )
            self.feeder.attach(worker_id)
            threads.start(channel, config)

    # -- watching --------------------------------------------------------------------------------

    @property
    def is_usable(self) -> bool:
        """Whether it is open, and in the process that made it."""
        return self.state is PoolState.OPEN and self._generation == fork_generation()

    @property
    def is_closing(self) -> bool:
        """Whether it ends in the background."""
        return self.state is PoolState.CLOSING

    def replace_ended(self) -> list[Death]:
        """Reap worker processes that ended, start others in their place, and tell of them."""
        deaths: list[Death] = []
        with self._process_lock:
            if self.state is PoolState.OPEN:  # else the closing thread reaps them
                self._replace(deaths)
        return deaths

    def _replace(self, deaths: list[Death]) -> None:
        for worker_id in self.feeder.ended_workers():
            process = self._processes.pop(worker_id)
            pid = process.pid or 0
            exitcode = _reap(process)
            self._handles[worker_id].note_end(exitcode)
            lost, busy, started, is_used_up = self.feeder.detach(worker_id)
            os.close(self._pidfds.pop(worker_id))
            death = Death(worker_id, pid, exitcode, lost, busy, started, is_used_up)
            deaths.append(death)
            self._start_process(worker_id)

    def cancel_epoch(self) -> None:
        """Make the epoch stale: what is in flight is dropped as it comes in. Waits for nothing."""
        self.feeder.begin_run(0)
        self.feeder.notify()

    @property
    def handles(self) -> list[Any]:
        """A WorkerHandle or ThreadHandle of each worker, in the order of their numbers."""
        if self._threads is not None:
            return [ThreadHandle(thread) for thread in self._threads.all]
        return [handle for _, handle in sorted(self._handles.items())]

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that run, in the order of their numbers."""
        return [p.pid for _, p in sorted(self._processes.items()) if p.pid is not None]

    @property
    def turns(self) -> RandomTurns | None:
        """The turns of worker threads at the global random state; None where workers have none."""
        return None if self._threads is None else self._threads.turns

    # -- ending ----------------------------------------------------------------------------------

    def _set_state(self, new: PoolState) -> bool:
        """Go to `new`; False when another thread went there before."""
        with self._state_lock:
            if self.state is new or self.state is PoolState.CLOSED:
                return False
            self.state = new
            return True

    def close(self) -> None:
        """End the workers and wait until nothing of them is left: 0.7 s at most. Idempotent.

        Batches that the user still holds stay valid. Ctrl-C ends the waiting, not the closing.
        """
        self.close_soon()
        if self._generation == fork_generation() and self._closer is not threading.current_thread():
            self._closed.wait()

    def close_soon(self) -> None:
        """As `close`, but a thread of its own does the waiting."""
        if self._generation != fork_generation() or not self._set_state(PoolState.CLOSING):
            return  # a forked child owns nothing of this
        self.arena.stop()
        self._closer = threading.Thread(target=self._finish, name="reader-close", daemon=True)
        try:
            self._closer.start()
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            self._closer = threading.current_thread()
            try:
                self._finish()
            except BaseException:
                self._signal(signal.SIGKILL)
                self._finish()
                raise

    def _finish(self) -> None:
        try:
            with self._process_lock:
                self._end_workers()
            self._let_go()
        finally:
            self._set_state(PoolState.CLOSED)
            open_pools.remove(self)
            self._closed.set()

    def _end_workers(self) -> None:
        """Ask, then SIGTERM, then SIGKILL; reap."""
        if not self._wait_ended(time.monotonic() + _GRACE_S):
            self._signal(signal.SIGTERM)
            if not self._wait_ended(time.monotonic() + _TERM_S):
                self._signal(signal.SIGKILL)
                self._wait_ended(None)
        while self._processes:
            worker_id, process = self._processes.popitem()
            self._handles[worker_id].note_end(_reap(process))

    def _let_go(self) -> None:
        """Give back thread, descriptors and memory; what the user holds stays."""
        self.feeder.close()
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()
        if self._starter is not None:
            self._starter.close()
        # a thread may be in code of the user that nothing can end: what it uses stays with it
        is_ended = self._threads is None or self._threads.join(_GRACE_S)
        self.arena.close()
        if is_ended:
            self.arena.release()

    def _wait_ended(self, deadline: float | None) -> bool:
        """Wait until every worker process ended, or the deadline."""
        poll = select.poll()
        for fd in self._pidfds.values():
            poll.register(fd, select.POLLIN)
        left = len(self._pidfds)
        while left:
            rest = None if deadline is None else max(0.0, deadline - time.monotonic()) * 1000
            ended = poll.poll(rest)
            if not ended:
                return False
            for fd, _ in ended:
                poll.unregister(fd)
                left -= 1
        return True

    def _signal(self, signum: int) -> None:
        for fd in self._pidfds.values():
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(fd, signum)


def _reap(process: BaseProcess) -> int | None:
    """Take the exit code of a process that has ended, and free what Python keeps of it."""
    process.join()
    pause = threading.Event()
    for _ in range(100):
        # another thread that starts a process reaps all; it has the code in a moment
        if process.exitcode is not None:
            break
        pause.wait(0.001)
    exitcode = process.exitcode
    popen: Any = process._popen  # type: ignore[attr-defined]
    if exitcode is None and popen is not None:
        # the user's own os.wait took the code: tell multiprocessing that it has ended
        popen.returncode = 255
    process.join()
    forget_process(process)
    return exitcode


def died(death: Death, epoch: int | None, indices: list[int] | None) -> WorkerDied:
    """The exception that tells of a death."""
    return WorkerDied(
        pid=death.pid,
        exitcode=death.exitcode,
        worker_id=death.worker_id,
        batch=death.busy,
        epoch=epoch,
        indices=indices,
    )


def _ended_pidfd() -> int:
    """A pidfd of a process that has ended."""
    pid = os.posix_spawn("/bin/true", ["true"], {})
    fd = os.pidfd_open(pid)
    os.waitpid(pid, 0)
    return fd


if sys.platform != "linux":
    raise ReaderError("reader runs on Linux only: it needs memfd, futex and pidfd")
