"""Pools of worker processes: started, noticed when they die, replaced, and ended.

Imports the core, workers and what starts processes. See `pool` for its life; the lock of the
processes keeps one from being started that the closing thread never sees.
"""

from __future__ import annotations

import functools
import pickle
import signal
from collections.abc import Callable
from typing import Any

from reader._core.interpreter.signals import interrupt_after
from reader._core.wire.feeder import Feeder
from reader._core.wire.worker_reports import Damage
from reader.engine.backends.backend import Death, Watch
from reader.engine.backends.pool import Pool
from reader.engine.backends.shared_processes import SharedProcesses
from reader.engine.backends.worker_processes import OwnProcesses, Processes
from reader.errors import ReaderError
from reader.exceptions.user_error import decode
from reader.log import log as _log
from reader.processes.handle import RemoteHandle, WorkerHandle
from reader.processes.pickling import NotFound, not_found
from reader.processes.process import refused
from reader.worker.loop import WorkerConfig, WorkerError

__all__ = ["ProcessPool"]


class ProcessPool(Pool):
    """Worker processes.

    Args:
        config, window, limit_nbytes, active: see Pool.
        processes: what starts, signals and reaps them; None: its own, as Python does by default.

    Raises:
        ConfigError: the dataset cannot be pickled (spawn, forkserver).
        ReaderError: the system refuses memory, descriptors or processes.
    """

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        limit_nbytes: int | None = None,
        active: int | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._processes: Processes = OwnProcesses() if processes is None else processes
        self._is_shared = isinstance(processes, SharedProcesses)
        super().__init__(config, window, limit_nbytes, active)
        self._open(lambda: self._start_processes(config))

    # -- starting --------------------------------------------------------------------------------

    def _start_processes(self, config: WorkerConfig) -> None:
        is_ready = functools.partial(_is_ready, self.feeder)  # without the pool: that would stay
        self._processes.open(config, self.num_workers, is_ready)
        for worker_id in range(self._active):
            self._start_worker(worker_id)

    def _start_worker(self, worker: int) -> None:
        # or a process would start that the closing thread never sees
        with interrupt_after(), self._processes.lock:
            if not self.is_open:
                raise ReaderError("the loader was closed while its workers were being started")
            self._start_process(worker)
            self.started = worker + 1

    def _start_process(self, worker: int) -> None:
        with interrupt_after():
            try:
                pidfd = self._processes.start(
                    worker, self.arena, self.feeder.bell, self._keep_slots
                )
            except OSError as error:
                raise refused(f"worker {worker}", error) from error
            self.feeder.attach(worker, pidfd)

    # -- watching --------------------------------------------------------------------------------

    def replace_ended(self) -> list[Death]:
        """Reap worker processes that ended, start others in their place, and return the deaths."""
        deaths: list[Death] = []
        with self._processes.lock:
            if self.is_open:  # else the closing thread reaps them
                self._replace(deaths)
        return deaths

    def _replace(self, deaths: list[Death]) -> None:
        processes = self._processes
        exits: dict[int, tuple[int, int | None]] = {}  # pid and exit code
        ended = self.feeder.ended_workers()
        if not all(processes.has_ended(worker) for worker in ended):
            self._kill_damaged()  # the feeder sent SIGKILL, which may not reach them
        for worker in ended:
            exits[worker] = processes.reap(worker)
        damage = self.feeder.examine(ended)
        rows: dict[int, int] = {}
        found = {
            worker: self.feeder.found_by(pid) for worker, (pid, code) in exits.items() if code == 1
        }
        if damage is not None:
            # what else of the arena is damaged shows only when it is met: all of it is replaced
            _log.warning("%s", _words(damage, {worker: pid for worker, (pid, _) in exits.items()}))
            self._kill_damaged()
            for worker in processes.running:
                exits[worker] = processes.reap(worker)
            ended = sorted(exits)
            with interrupt_after():
                lost = dict(enumerate(self.feeder.detach_all()))
        else:
            rows = {worker: self.feeder.worker_progress(worker).row for worker in ended}
            lost = {worker: self.feeder.detach(worker) for worker in ended}
        for worker in ended:
            processes.release(worker)
            pid, exitcode = exits[worker]
            is_of_all = exitcode == -signal.SIGKILL or processes.refusal
            deaths.append(
                Death(
                    worker,
                    pid,
                    exitcode,
                    *lost[worker],
                    damage=damage if is_of_all else found.get(worker),
                    row=rows.get(worker, -1),
                    is_told=damage is None and processes.is_told(worker),
                    cause=processes.cause_of(worker),
                )
            )
        if damage is not None:
            self._renew_arena()
        for worker in ended:
            self._start_process(worker)

    def _kill_damaged(self) -> None:
        """End all workers; where the system refuses to send them a signal, after their batch."""
        self._processes.kill_all()
        if self._processes.refusal is not None:
            self.arena.stop()

    def kill_worker(self, worker: int) -> bool:
        """End the process of a worker at once; see Backend."""
        with self._processes.lock:
            return self._processes.kill(worker)

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:
        """See Backend."""
        return self._processes.add_watch(watch)

    @property
    def handles(self) -> list[WorkerHandle] | list[RemoteHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return self._processes.handles

    def name_of(self, worker: int) -> str:
        """Name a worker in a message."""
        process = self._processes.process_of(worker)
        if process is None:
            pid = self.feeder.worker_progress(worker)[0]
            if not pid and worker < len(self.handles):  # it has not written it yet
                pid = self.handles[worker].pid or 0
            process = f"pid {pid}" if pid else "not started yet"
        return f"worker {worker} ({process})"

    @property
    def capacity(self) -> int | None:
        """See Pool."""
        return self._processes.capacity

    @property
    def wanted(self) -> int | None:
        """See Pool."""
        return self._processes.wanted

    def open_error(self, payload: Any) -> WorkerError:
        """Open what a worker sent in the place of a batch."""
        with interrupt_after():  # decoding goes on after any exception, also one of a handler
            found: WorkerError = pickle.loads(payload)
            if found.is_nothing:
                return found
            error = decode(found.error)
        return found._replace(error=not_found(error) if isinstance(error, NotFound) else error)

    # -- ending ----------------------------------------------------------------------------------

    def _limit(self, grace_s: float) -> None:
        self._processes.grace.limit(grace_s)

    def _stop_workers(self) -> None:
        """Let them finish their samples, then interrupt these, then SIGKILL; reap."""
        self._processes.stop()

    def _release(self) -> bool:
        """Close the descriptors and the template. Batches that the user holds stay valid."""
        self._processes.close()
        return True

    def _kill_workers(self) -> None:
        self._processes.kill_all()


def _is_ready(feeder: Feeder, worker: int) -> bool:
    """Whether a worker has said that it runs."""
    try:
        return feeder.worker_progress(worker).is_ready
    except ReaderError:  # the pool was closed
        return False


def _words(damage: Damage, pids: dict[int, int]) -> str:
    whose = ""
    if damage.worker is not None and damage.worker in pids:
        whose = f" of worker {damage.worker} (pid {pids[damage.worker]})"
    return (
        f"a check of the shared memory{whose} failed: {damage}. All workers are replaced, and"
        " their batches are made again. The usual cause is native code, in any of the workers, that"
        " writes out of bounds"
    )
