"""Worker processes: started, noticed when they die, replaced, and ended.

Imports the core and workers. See `pool` for its life; the lock below keeps a process from being
started that the closing thread never sees.
"""

from __future__ import annotations

import logging
import os
import pickle
import select
import signal
import threading
import time
from multiprocessing.process import BaseProcess
from typing import Any

from reader._core.interpreter.signals import interrupt_after
from reader._core.wire.worker_reports import Damage
from reader.engine.backends.backend import Death
from reader.engine.backends.pool import Pool
from reader.errors import InternalError, ReaderError
from reader.exceptions.user_error import decode
from reader.processes.handle import WorkerHandle, send_signal
from reader.processes.pickling import NotFound, not_found
from reader.processes.process import ProcessStarter, forget_process, leave_process
from reader.processes.template import pidfd_of
from reader.worker.loop import WorkerConfig, WorkerError

__all__ = ["ProcessPool"]

_log = logging.getLogger("reader")

_GRACE_S = 0.4  # for a worker to end what it is doing; then SIGTERM
_TERM_S = 0.2  # for SIGTERM to work; then SIGKILL


class ProcessPool(Pool):
    """Worker processes.

    Args:
        config, window, max_bytes, active: see Pool.
        start_method: of multiprocessing; None: what Python's own default is.

    Raises:
        ConfigError: the dataset cannot be pickled (spawn, forkserver).
        ReaderError: the system refuses memory, descriptors or processes.
    """

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        max_bytes: int | None = None,
        start_method: str | None = None,
        active: int | None = None,
    ) -> None:
        self._processes: dict[int, BaseProcess] = {}
        self._pidfds: dict[int, int] = {}
        self._handles: dict[int, WorkerHandle] = {}
        self._starter: ProcessStarter | None = None
        self._refusal: OSError | None = None  # of a signal to a worker
        self._process_lock = threading.Lock()  # a worker is replaced, or all are ended
        super().__init__(config, window, max_bytes, active)
        self._open(lambda: self._start_processes(config, start_method))

    # -- starting --------------------------------------------------------------------------------

    def _start_processes(self, config: WorkerConfig, start_method: str | None) -> None:
        starter = ProcessStarter(config, start_method)
        with interrupt_after():
            self._starter, starter.has_pool = starter, True
        if self.workers > 1 or starter.needs_template:
            starter.open_template()
        for worker_id in range(self._active):
            self._start_worker(worker_id)

    def _start_worker(self, worker: int) -> None:
        # or a process would start that the closing thread never sees
        with interrupt_after(), self._process_lock:
            if not self.is_open:
                raise ReaderError("the loader was closed while its workers were being started")
            self._start_process(worker)
            self.started = worker + 1

    def _start_process(self, worker_id: int) -> None:
        with interrupt_after():
            self._start_and_note(worker_id)

    def _start_and_note(self, worker_id: int) -> None:
        if self._starter is None:
            raise InternalError("a worker process was to be started in a pool that has none")
        process = self._starter.start(
            worker_id, self._config, self.arena, self.feeder.bell, self._keep_slots
        )
        self._processes[worker_id] = process
        self._handles[worker_id] = WorkerHandle(process)
        try:
            self._pidfds[worker_id] = pidfd_of(process)
        except ProcessLookupError:  # it is gone and reaped already: any ended process will do
            self._pidfds[worker_id] = _ended_pidfd()
        self.feeder.attach(worker_id, self._pidfds[worker_id])

    # -- watching --------------------------------------------------------------------------------

    def replace_ended(self) -> list[Death]:
        """Reap worker processes that ended, start others in their place, and return the deaths."""
        deaths: list[Death] = []
        with self._process_lock:
            if self.is_open:  # else the closing thread reaps them
                self._replace(deaths)
        return deaths

    def _replace(self, deaths: list[Death]) -> None:
        exitcodes: dict[int, int | None] = {}
        pids: dict[int, int] = {}
        ended = self.feeder.ended_workers()
        if not all(_is_readable(self._pidfds[worker]) for worker in ended):
            self._end_damaged()  # the feeder sent SIGKILL, which may not reach them
        self._reap_all(ended, pids, exitcodes)
        damage = self.feeder.examine(ended)
        rows: dict[int, int] = {}
        found = {
            worker: self.feeder.found_by(pids[worker]) for worker in ended if exitcodes[worker] == 1
        }
        if damage is not None:
            # what else of the arena is damaged shows only when it is met: all of it is replaced
            _log.warning("%s", _words(damage, pids))
            self._end_damaged()
            ended = sorted({*ended, *self._processes})
            self._reap_all([worker for worker in ended if worker not in exitcodes], pids, exitcodes)
            with interrupt_after():
                lost = dict(enumerate(self.feeder.detach_all()))
        else:
            rows = {worker: self.feeder.worker_progress(worker).row for worker in ended}
            lost = {worker: self.feeder.detach(worker) for worker in ended}
        for worker_id in ended:
            os.close(self._pidfds.pop(worker_id))
            exitcode = exitcodes[worker_id]
            deaths.append(
                Death(
                    worker_id,
                    pids[worker_id],
                    exitcode,
                    *lost[worker_id],
                    damage=damage
                    if exitcode == -signal.SIGKILL or self._refusal
                    else found.get(worker_id),
                    row=rows.get(worker_id, -1),
                )
            )
        if damage is not None:
            self._renew_arena()
        for worker_id in ended:
            self._start_process(worker_id)

    def _end_damaged(self) -> None:
        """End all workers; where the system refuses to send them a signal, after their batch."""
        self._kill_workers()
        if self._refusal is not None:
            self.arena.stop()

    def _reap_all(
        self, workers: list[int], pids: dict[int, int], exitcodes: dict[int, int | None]
    ) -> None:
        for worker_id in workers:
            process = self._processes.pop(worker_id)
            pids[worker_id] = process.pid or 0
            exitcodes[worker_id] = _reap(process)
            self._handles[worker_id].note_end(exitcodes[worker_id])

    def end_worker(self, worker: int) -> bool:
        """End the process of a worker at once; see Backend."""
        with self._process_lock:
            pidfd, process = self._pidfds.get(worker), self._processes.get(worker)
            if pidfd is None or process is None or process.pid is None:
                return False
            try:
                send_signal(pidfd, process.pid, signal.SIGKILL)
            except OSError:
                return False
        return True

    @property
    def handles(self) -> list[WorkerHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return [handle for _, handle in sorted(self._handles.items())]

    def name_of(self, worker: int) -> str:
        """Name a worker in a message."""
        return f"worker {worker} (pid {self.feeder.worker_progress(worker)[0]})"

    def open_error(self, payload: Any) -> WorkerError:
        """Open what a worker sent in the place of a batch."""
        with interrupt_after():  # decoding goes on after any exception, also one of a handler
            found: WorkerError = pickle.loads(payload)
            if found.is_nothing:
                return found
            error = decode(found.error)
        return found._replace(error=not_found(error) if isinstance(error, NotFound) else error)

    # -- ending ----------------------------------------------------------------------------------

    def _end_workers(self) -> None:
        """Ask, then SIGTERM, then SIGKILL; reap."""
        with self._process_lock:
            self._end_and_reap()

    def _end_and_reap(self) -> None:
        if not self._wait_ended(time.monotonic() + _GRACE_S):
            self._signal(signal.SIGTERM)
            if not self._wait_ended(time.monotonic() + _TERM_S):
                self._kill_workers()
                self._wait_ended(time.monotonic() + _TERM_S if self._refusal else None)
        self._leave_running()
        while self._processes:
            worker_id, process = self._processes.popitem()
            self._handles[worker_id].note_end(_reap(process))

    def _leave_running(self) -> None:
        """Leave workers that no signal reaches: they end after their batch, or with the trainer."""
        if self._refusal is None:
            return
        left = [worker for worker, fd in self._pidfds.items() if not _is_readable(fd)]
        for worker_id in left:
            leave_process(self._processes.pop(worker_id))
        if left:
            _log.warning(
                "worker processes %s still run: they are busy, and the system refuses to send them"
                " a signal (%s). They end after their batch, or with this process; allow"
                " pidfd_send_signal or kill in the sandbox",
                [self._handles[worker].pid for worker in left],
                self._refusal,
            )

    def _let_go(self) -> bool:
        """Close the descriptors and the template. Batches that the user holds stay valid."""
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()
        if self._starter is not None:
            self._starter.close()
        return True

    def _kill_workers(self) -> None:
        self._signal(signal.SIGKILL)

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
        for worker_id, fd in self._pidfds.items():
            try:
                send_signal(fd, self._handles[worker_id].pid or 0, signum)
            except OSError as error:
                self._refusal = error


def _words(damage: Damage, pids: dict[int, int]) -> str:
    whose = ""
    if damage.worker is not None and damage.worker in pids:
        whose = f" of worker {damage.worker} (pid {pids[damage.worker]})"
    return (
        f"a check of the shared memory{whose} failed: {damage}. All workers are replaced, and"
        " their batches are made again. The usual cause is native code, in any of the workers, that"
        " writes out of bounds"
    )


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


def _ended_pidfd() -> int:
    """Return a descriptor that is readable, as the pidfd of a process that has ended."""
    return os.eventfd(1)


def _is_readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
