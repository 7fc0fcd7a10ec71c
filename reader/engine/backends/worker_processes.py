"""The processes of a pool: they are started, signalled and reaped here.

Imports the starter, handles and templates. The pool that made it calls it, under `lock` where a
process may be started or ended meanwhile.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Protocol

from reader._core.interpreter.signals import interrupt_after
from reader._core.memory.arena import Arena
from reader.engine.backends.backend import Watch
from reader.engine.backends.grace import BETWEEN_S, INTERRUPTS, Grace, await_ends
from reader.errors import InternalError, refusal
from reader.log import log as _log
from reader.processes.handle import RemoteHandle, WorkerHandle, is_readable, send_signal
from reader.processes.process import Job, ProcessStarter, drop_process, release_process
from reader.processes.template import pidfd_of
from reader.worker import interruption
from reader.worker.loop import WorkerConfig

__all__ = ["OwnProcesses", "Processes", "WorkerProcesses"]


_REFUSED_S = 0.2  # seconds for workers that no signal reaches


class Processes(Protocol):
    """The worker processes of a ProcessPool, its own or those it shares."""

    @property
    def lock(self) -> threading.Lock:
        """Taken where a process is started, replaced or ended."""

    @property
    def refusal(self) -> OSError | None:
        """The error of a refused signal to a worker; None: none was refused."""

    @property
    def grace(self) -> Grace:
        """The time that workers have at their end."""

    def open(
        self,
        config: WorkerConfig,
        num_workers: int,
        is_ready: Callable[[int], bool],
    ) -> None:
        """Prepare to start processes. Raises what ProcessStarter raises.

        `is_ready`: returns whether a worker has reported that it works for this pool.
        """

    def start(self, worker_id: int, arena: Arena, bell: int, keep_slots: int) -> int:
        """Have a process work in an arena; returns its pidfd, good until `release`."""

    def has_ended(self, worker_id: int) -> bool:
        """Whether the process of a worker has ended."""

    def reap(self, worker_id: int) -> tuple[int, int | None]:
        """Wait for the end of a worker's process; returns its pid and exit code."""

    def release(self, worker_id: int) -> None:
        """Close the pidfd of a process that was reaped, when nobody watches it any more."""

    def is_told(self, worker_id: int) -> bool:
        """Whether the last death needs no report from this loader.

        Another loader reports it, or it was wanted.
        """

    def cause_of(self, worker_id: int) -> str | None:
        """Return what is known of the end that was reaped last, beside its exit code."""

    def process_of(self, worker_id: int) -> str | None:
        """Name the process of a worker on another machine; None: it is on this one."""

    @property
    def capacity(self) -> int | None:
        """How many workers fit on other machines; None: the cores of this machine decide."""

    @property
    def wanted(self) -> int | None:
        """How many tasks in flight keep workers on other machines busy; None: unknown."""

    def kill(self, worker_id: int) -> bool:
        """Send SIGKILL to a worker's process; False: it cannot be sent."""

    def kill_all(self) -> None:
        """Send SIGKILL to all."""

    @property
    def running(self) -> list[int]:
        """The workers that have a process which was not reaped."""

    @property
    def handles(self) -> list[WorkerHandle] | list[RemoteHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:
        """See Backend."""

    def stop(self) -> None:
        """Wait until no process works in the stopped arena; then end or release the processes."""

    def close(self) -> None:
        """Close the descriptors and the starter."""


class WorkerProcesses:
    """Starts worker processes, signals and reaps them.

    Attributes:
        lock: held while a process is started, replaced or ended.
        refusal: the error of a refused signal to a worker; None: none was refused.
        grace: the time that workers have at their end.
        starter: see ProcessStarter; None before `open`.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.refusal: OSError | None = None
        self.grace = Grace()
        self.starter: ProcessStarter | None = None
        self._processes: dict[int, BaseProcess] = {}
        self._pidfds: dict[int, int] = {}
        self._handles: dict[int, WorkerHandle] = {}

    def open_starter(
        self,
        config: WorkerConfig | None,
        method: str | None,
        num_workers: int,
        find_libraries: Callable[[], list[str]] | None = None,
        imports_main: bool = True,
    ) -> None:
        """Make the starter, with a template where that saves time. Raises what it raises.

        `method`: of multiprocessing; None: Python's own default.
        `find_libraries`: for workers that get their configs later; not called under fork.
        `imports_main`: see ProcessStarter.
        """
        try:
            with interrupt_after():
                self.grace.open()
        except OSError as error:
            raise refusal("worker processes", "cannot be watched", error) from error
        starter = ProcessStarter(config, method, imports_main)
        if find_libraries is not None and not starter.is_fork:
            starter.preload(find_libraries())
        with interrupt_after():
            self.starter = starter
            starter.leave_to_pool()
        if num_workers > 1 or starter.needs_template:
            starter.open_template()

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:  # noqa: ARG002
        """Find none: no other loader has these processes."""
        return list

    def add(self, worker_id: int, process: BaseProcess) -> int:
        """Note a process that was started; returns its pidfd."""
        self._processes[worker_id] = process
        self._handles[worker_id] = WorkerHandle(process)
        try:
            self._pidfds[worker_id] = pidfd_of(process)
        except ProcessLookupError:  # it has ended and was reaped: use any readable descriptor
            self._pidfds[worker_id] = _ended_pidfd()
        return self._pidfds[worker_id]

    def has_ended(self, worker_id: int) -> bool:
        """Whether the process of a worker has ended."""
        return is_readable(self._pidfds[worker_id])

    def reap(self, worker_id: int) -> tuple[int, int | None]:
        """Wait for the end of a worker's process; returns its pid and exit code."""
        process = self._processes.pop(worker_id)
        pid, exitcode = process.pid or 0, _reap(process)
        self._handles[worker_id].note_end(exitcode)
        return pid, exitcode

    def release(self, worker_id: int) -> None:
        """Close the pidfd of a process that was reaped, when nobody watches it any more."""
        os.close(self._pidfds.pop(worker_id))

    def is_told(self, worker_id: int) -> bool:  # noqa: ARG002  there is no other loader
        """Whether another loader reports the last death."""
        return False

    def cause_of(self, worker_id: int) -> str | None:  # noqa: ARG002  its exit code is all
        """Return what is known of the end that was reaped last, beside its exit code."""
        return None

    def process_of(self, worker_id: int) -> str | None:  # noqa: ARG002  it is one of this machine
        """Name the process of a worker that is none of this machine."""
        return None

    @property
    def capacity(self) -> int | None:
        """How many workers fit on other machines."""
        return None

    @property
    def wanted(self) -> int | None:
        """How many tasks in flight keep workers elsewhere busy."""
        return None

    def kill(self, worker_id: int) -> bool:
        """Send SIGKILL to a worker's process; False: it cannot be sent."""
        return self._send(worker_id, signal.SIGKILL)

    def kill_all(self) -> None:
        """Send SIGKILL to all; `refusal` has the error if that is refused."""
        self._signal(signal.SIGKILL)

    @property
    def running(self) -> list[int]:
        """The workers that have a process which was not reaped."""
        return list(self._processes)

    @property
    def handles(self) -> list[WorkerHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return [handle for _, handle in sorted(self._handles.items())]

    def stop_all(self) -> None:
        """Wait for processes that were asked to end; then interrupt, then kill them; reap."""
        if not self.grace.await_ends(self._pidfds.values()) and not self._end_by_interrupts():
            self.kill_all()
            await_ends(self._pidfds.values(), _REFUSED_S if self.refusal else None)
        self._leave_running()
        while self._processes:
            worker_id, process = self._processes.popitem()
            self._handles[worker_id].note_end(_reap(process))

    def close(self) -> None:
        """Close the descriptors and the template. Batches that the user holds stay valid."""
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()
        self.grace.close()
        if self.starter is not None:
            self.starter.close()

    def _leave_running(self) -> None:
        """Leave workers that no signal reaches: they end after their batch, or with the trainer."""
        if self.refusal is None:
            return
        left = [worker_id for worker_id, fd in self._pidfds.items() if not is_readable(fd)]
        for worker_id in left:
            drop_process(self._processes.pop(worker_id))
        if left:
            _log.warning(
                "worker processes %s still run: they are busy, and the system refuses to send them"
                " a signal (%s). They end after their batch, or with this process; allow"
                " pidfd_send_signal or kill in the sandbox",
                [self._handles[worker_id].pid for worker_id in left],
                self.refusal,
            )

    def _end_by_interrupts(self) -> bool:
        """Interrupt the samples of all; False: some still run a second later."""
        for _ in range(INTERRUPTS):
            self._signal(interruption.SIGNAL)
            if await_ends(self._pidfds.values(), BETWEEN_S):
                return True
        return False

    def interrupt(self, worker_id: int) -> None:
        """Interrupt the sample that a worker is at, where its loader has ended."""
        self._send(worker_id, interruption.SIGNAL)  # a refusal shows when SIGKILL is sent

    def _send(self, worker_id: int, signum: int) -> bool:
        """Send a signal to a worker's process; False: it cannot be sent."""
        pidfd, process = self._pidfds.get(worker_id), self._processes.get(worker_id)
        if pidfd is None or process is None or process.pid is None:
            return False
        try:
            send_signal(pidfd, process.pid, signum)
        except OSError:
            return False
        return True

    def _signal(self, signum: int) -> None:
        for worker_id, fd in self._pidfds.items():
            try:
                send_signal(fd, self._handles[worker_id].pid or 0, signum)
            except OSError as error:
                self.refusal = error

    def start_job(self, worker_id: int, job: Job) -> int:
        """Start a process that does a job; returns its pidfd."""
        if self.starter is None:
            raise InternalError("a worker process was to be started by a pool that has no starter")
        return self.add(worker_id, self.starter.start_job(worker_id, job))


class OwnProcesses(WorkerProcesses):
    """The processes of one pool alone; see Processes.

    Args:
        method: how multiprocessing starts them; None: as Python does by default.
    """

    def __init__(self, method: str | None = None) -> None:
        super().__init__()
        self._method = method
        self._config: WorkerConfig | None = None

    def open(
        self,
        config: WorkerConfig,
        num_workers: int,
        is_ready: Callable[[int], bool],  # noqa: ARG002  they end with the pool
    ) -> None:
        """Prepare to start processes."""
        self._config = config
        self.open_starter(config, self._method, num_workers)

    def start(self, worker_id: int, arena: Arena, bell: int, keep_slots: int) -> int:
        """Start a process; returns its pidfd."""
        if self.starter is None or self._config is None:
            raise InternalError("a worker process was to be started in a pool that has none")
        job = self.starter.job(self._config, arena, bell, keep_slots)
        return self.start_job(worker_id, job)

    def stop(self) -> None:
        """End all processes, by signals if they do not end by themselves."""
        with self.lock:
            self.stop_all()


def _reap(process: BaseProcess) -> int | None:
    """Take the exit code of a process that has ended, and free what Python keeps of it."""
    process.join()
    pause = threading.Event()
    for _ in range(100):
        # another thread that starts a process reaps all: the code comes in a moment
        if process.exitcode is not None:
            break
        pause.wait(0.001)
    exitcode = process.exitcode
    popen = process._popen  # type: ignore[attr-defined]
    if exitcode is None and popen is not None:
        # an os.wait of the user took the code: tell multiprocessing that it ended
        popen.returncode = 255
    process.join()
    release_process(process)
    return exitcode


def _ended_pidfd() -> int:
    """Return a descriptor that is readable, as the pidfd of a process that has ended."""
    return os.eventfd(1)
