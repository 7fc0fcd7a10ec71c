"""Pools of worker processes: they are started, replaced when they die, and closed.

Imports the core, workers and what starts processes. See `pool` for its life; under the lock of the
processes none starts that the closing thread does not see.
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
        config, window, max_bytes, active: see Pool.
        processes: start, signal and reap the workers; None: the pool's own, by Python's default.

    Raises:
        ConfigError: the dataset cannot be pickled (spawn, forkserver).
        ReaderError: the system refuses memory, descriptors or processes.
    """

    def __init__(
        self,
        config: WorkerConfig,
        window: int,
        max_bytes: int | None = None,
        active: int | None = None,
        processes: Processes | None = None,
    ) -> None:
        self._processes: Processes = OwnProcesses() if processes is None else processes
        self._is_shared = isinstance(processes, SharedProcesses)
        super().__init__(config, window, max_bytes, active)
        self._open(lambda: self._start_processes(config))

    # -- starting --------------------------------------------------------------------------------

    def _start_processes(self, config: WorkerConfig) -> None:
        is_ready = functools.partial(_is_ready, self.feeder)  # without the pool: that would stay
        self._processes.open(config, self.num_workers, is_ready)
        for worker_id in range(self._active):
            self._start_worker(worker_id)

    def _start_worker(self, worker_id: int) -> None:
        # else a process could start that the closing thread does not see
        with interrupt_after(), self._processes.lock:
            if not self.is_open:
                raise ReaderError("the loader was closed while its workers were being started")
            self._start_process(worker_id)
            self.started = worker_id + 1

    def _start_process(self, worker_id: int) -> None:
        with interrupt_after():
            try:
                pidfd = self._processes.start(
                    worker_id, self.arena, self.feeder.bell, self._keep_slots
                )
            except OSError as error:
                raise refused(f"worker {worker_id}", error) from error
            self.feeder.attach(worker_id, pidfd)

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
        if not all(processes.has_ended(worker_id) for worker_id in ended):
            self._kill_damaged()  # the feeder sent SIGKILL, which may not reach them
        for worker_id in ended:
            exits[worker_id] = processes.reap(worker_id)
        damage = self.feeder.examine(ended)
        rows: dict[int, int] = {}
        found = {
            worker_id: self.feeder.found_by(pid)
            for worker_id, (pid, code) in exits.items()
            if code == 1
        }
        if damage is not None:
            # other parts of the arena may be damaged, too: all of it is replaced
            _log.warning(
                "%s", _words(damage, {worker_id: pid for worker_id, (pid, _) in exits.items()})
            )
            self._kill_damaged()
            for worker_id in processes.running:
                exits[worker_id] = processes.reap(worker_id)
            ended = sorted(exits)
            with interrupt_after():
                lost = dict(enumerate(self.feeder.detach_all()))
        else:
            rows = {worker_id: self.feeder.worker_progress(worker_id).row for worker_id in ended}
            lost = {worker_id: self.feeder.detach(worker_id) for worker_id in ended}
        for worker_id in ended:
            processes.release(worker_id)
            pid, exitcode = exits[worker_id]
            is_of_all = exitcode == -signal.SIGKILL or processes.refusal
            deaths.append(
                Death(
                    worker_id,
                    pid,
                    exitcode,
                    *lost[worker_id],
                    damage=damage if is_of_all else found.get(worker_id),
                    row=rows.get(worker_id, -1),
                    is_told=damage is None and processes.is_told(worker_id),
                    cause=processes.cause_of(worker_id),
                )
            )
        if damage is not None:
            self._renew_arena()
        for worker_id in ended:
            self._start_process(worker_id)

    def _kill_damaged(self) -> None:
        """Kill all workers; if the system refuses the signal, stop them after their batch."""
        self._processes.kill_all()
        if self._processes.refusal is not None:
            self.arena.stop()

    def kill_worker(self, worker_id: int) -> bool:
        """Kill the process of a worker; see Backend."""
        with self._processes.lock:
            return self._processes.kill(worker_id)

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:
        """See Backend."""
        return self._processes.add_watch(watch)

    @property
    def handles(self) -> list[WorkerHandle] | list[RemoteHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return self._processes.handles

    def name_of(self, worker_id: int) -> str:
        """Name a worker in a message."""
        process = self._processes.process_of(worker_id)
        if process is None:
            pid = self.feeder.worker_progress(worker_id)[0]
            if not pid and worker_id < len(self.handles):  # the worker has not written its pid yet
                pid = self.handles[worker_id].pid or 0
            process = f"pid {pid}" if pid else "not started yet"
        return f"worker {worker_id} ({process})"

    @property
    def capacity(self) -> int | None:
        """See Pool."""
        return self._processes.capacity

    @property
    def wanted(self) -> int | None:
        """See Pool."""
        return self._processes.wanted

    def open_error(self, payload: Any) -> WorkerError:
        """Decode what a worker sent in the place of a batch."""
        with interrupt_after():  # decoding continues after an exception, also one of a handler
            found: WorkerError = pickle.loads(payload)
            if found.is_nothing:
                return found
            error = decode(found.error)
        return found._replace(error=not_found(error) if isinstance(error, NotFound) else error)

    # -- ending ----------------------------------------------------------------------------------

    def _limit(self, grace_s: float) -> None:
        self._processes.grace.limit(grace_s)

    def _stop_workers(self) -> None:
        """Let workers finish their samples, then interrupt them, then kill them; reap."""
        self._processes.stop()

    def _release(self) -> bool:
        """Close the descriptors and the template. Batches that the user holds stay valid."""
        self._processes.close()
        return True

    def _kill_workers(self) -> None:
        self._processes.kill_all()


def _is_ready(feeder: Feeder, worker_id: int) -> bool:
    """Whether a worker has said that it runs."""
    try:
        return feeder.worker_progress(worker_id).is_ready
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
