"""The remote workers of a pool, behind the protocol of its processes.

Imports the lander and what starts processes. See Processes. In the place of a pidfd a worker has a
pipe; its other end closes when the actor or the lander ends.
"""

from __future__ import annotations

import functools
import os
import pickle
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from typing import Any

from reader._core.interpreter.signals import interrupt_after
from reader._core.memory.arena import Arena
from reader._core.wire.wake_words import WakeWords
from reader.cluster.lander import Kill, LanderJob
from reader.cluster.line import Capacity, Ended, InFlight, LaunchRequest, Started
from reader.cluster.ray_backend import Ray
from reader.cluster.worker_calls import CallResult, WorkerCall
from reader.engine.backends.worker_processes import WorkerProcesses
from reader.errors import InternalError, ReaderError
from reader.processes.handle import RemoteHandle, is_readable
from reader.processes.process import InheritedFd
from reader.processes.remote_config import RemoteConfig, pickle_remote
from reader.processes.shared_process import Control, Stop
from reader.processes.template import memory_file
from reader.stores.fetch_stats import uses_of
from reader.stores.remote_readers import RemoteReaders, add_remote_readers, remove_remote_readers
from reader.worker.loop import WorkerConfig

__all__ = ["RemoteProcesses"]

_GRACE_S = 0.4  # for the lander, which runs no user code, to end its actors
_LANDER = 0  # its number among the processes
_PATIENCE_S, _PAUSE_S = 1.0, 0.01  # for answers of workers
_MOST_NBYTES = 4096  # of the text about an end: less than a pipe takes at once


_pause = threading.Event()


class RemoteProcesses(WorkerProcesses, RemoteReaders):
    """The lander and the pipes of its workers; see Processes.

    Args:
        backend: where the workers are.
        in_flight: the most tasks of a worker.
        takes_turns: batch n is made by worker n modulo their number.
        is_paced: `wanted` says how many tasks are in flight.
    """

    def __init__(
        self, backend: Ray, in_flight: int, takes_turns: bool, is_paced: bool = False
    ) -> None:
        super().__init__()
        self._is_paced = is_paced
        self._backend = backend
        self._in_flight = in_flight
        self._takes_turns = takes_turns
        self._pipes: dict[int, int] = {}
        self._control: Control | None = None
        self._words: WakeWords | None = None
        self._sent: RemoteConfig | None = None
        self._words_fd = self._config_fd = -1
        self._makes_stale = self._has_parts = False
        self._remote: dict[int, RemoteHandle] = {}
        self._capacity: int | None = None
        self._wanted: int | None = None
        self._ends: dict[int, Ended] = {}  # of workers that were reaped
        self._landers: dict[int, BaseProcess] = {}  # by worker
        self._told: dict[str, bytes] = {}  # calls that each worker makes, by key
        self._answers: dict[str, dict[str, Any]] = {}  # of calls: by key and node
        self._asked = self._answered = 0

    def open(
        self,
        config: WorkerConfig,
        num_workers: int,  # noqa: ARG002
        is_busy: Callable[[int], bool],  # noqa: ARG002  they end with the pool
    ) -> None:
        """Prepare to start workers."""
        self._makes_stale = config.makes_stale
        self._has_parts = config.stream is not None
        add_remote_readers(uses_of(config.dataset), self)
        sent = self._sent = pickle_remote(config)
        with interrupt_after():
            self._config_fd = memory_file("reader-config", sent.data)
            self._words_fd = memory_file("reader-words", bytes(WakeWords.nbytes(1)))
        self._words = WakeWords(self._words_fd, 1)
        self.open_starter(
            None, "spawn", 1, imports_main=False
        )  # the lander opens nothing of the user's

    def start(self, worker_id: int, arena: Arena, bell: int, keep_slots: int) -> int:
        """Have the lander start a worker; returns the pipe that is readable when it has ended."""
        if self._control is None or self.has_lander_ended():
            self._start_lander()
        if self._control is None:
            raise InternalError("a remote worker was to be started without a lander")
        read, write = os.pipe()
        try:
            order = LaunchRequest(worker_id, keep_slots, self._in_flight, self._is_paced)
            self._control.send(order, [arena.fd, bell, write])
        finally:
            os.close(write)
        self._pipes[worker_id] = read
        self._landers[worker_id] = self._processes[_LANDER]
        has_ended, kill = (functools.partial(f, worker_id) for f in (self.has_ended, self.kill))
        self._remote[worker_id] = RemoteHandle(worker_id, has_ended, kill)
        return read

    def has_lander_ended(self) -> bool:
        """Whether the lander is gone."""
        return super().has_ended(_LANDER)

    def _start_lander(self) -> None:
        if self._words is None or self._sent is None:
            raise InternalError("a lander was to be started in a pool that was not opened")
        if self._control is not None:
            super().reap(_LANDER)
            super().release(_LANDER)
            self._control.close()
            os.lseek(self._config_fd, 0, os.SEEK_SET)
        control = Control(self._words, _LANDER)
        job = LanderJob(
            InheritedFd(control.theirs.fileno()),
            InheritedFd(self._words_fd),
            InheritedFd(self._config_fd),
            [InheritedFd(fd) for fd in self._sent.fds],
            self._sent.sizes,
            self._backend.here(),
            self._has_parts,
            self._takes_turns,
            self._makes_stale,
        )
        try:
            self.start_job(_LANDER, job)
        except BaseException:
            control.close()
            raise
        control.theirs.close()
        self._control = control
        for key, data in self._told.items():
            _send(control, WorkerCall(key), data)

    # -- calls of workers, beside batches --------------------------------------------------------

    def tell(self, key: str, call: Callable[[], Any]) -> None:
        """See RemoteReaders."""
        data = pickle.dumps(call, 5)
        with self.lock:
            self._told[key] = data
            if self._control is not None:
                _send(self._control, WorkerCall(key), data)

    def ask(self, key: str, call: Callable[[], Any]) -> list[Any]:
        """See RemoteReaders."""
        control = self._control
        if control is not None:
            self._asked += 1
            number, end = self._asked, time.monotonic() + _PATIENCE_S
            if _send(control, WorkerCall(key, number), pickle.dumps(call, 5)):
                self._hear()
                while self._answered < number and time.monotonic() < end:
                    _pause.wait(_PAUSE_S)
                    self._hear()
        return list(self._answers.get(key, {}).values())

    def has_ended(self, worker_id: int) -> bool:
        """Whether a worker has ended."""
        pipe = self._pipes.get(worker_id)
        return pipe is None or is_readable(pipe)

    def reap(self, worker_id: int) -> tuple[int, int | None]:
        """Reap a worker; returns its pid, and None for an exit code."""
        data = os.read(self._pipes[worker_id], _MOST_NBYTES)
        end = Ended(0, "the process beside this one that brings its batches ended")
        if data:
            end = pickle.loads(data)
        elif self._landers[worker_id] is self._processes.get(_LANDER):
            self._processes[_LANDER].join()  # it is ending, or has ended
        self._ends[worker_id] = end
        self._remote[worker_id].note_end()
        return end.pid, None

    def cause_of(self, worker_id: int) -> str | None:
        """Return the cause of the end that was reaped last."""
        return self._ends[worker_id].cause if worker_id in self._ends else None

    def is_told(self, worker_id: int) -> bool:
        """Whether the lander told of the end that was reaped last."""
        return worker_id in self._ends and self._ends[worker_id].is_told

    def release(self, worker_id: int) -> None:
        """Close the pipe of a worker that has ended."""
        os.close(self._pipes.pop(worker_id))

    def kill(self, worker_id: int) -> bool:
        """Kill a worker."""
        if self._control is None:
            return False
        return self._control.tell(Kill(worker_id))

    def kill_all(self) -> None:
        """Kill the lander, and so all workers."""
        super().kill_all()

    @property
    def running(self) -> list[int]:
        """The workers that were not reaped."""
        return list(self._pipes)

    @property
    def handles(self) -> list[RemoteHandle]:  # type: ignore[override]
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        self._hear()
        return [handle for _, handle in sorted(self._remote.items())]

    def process_of(self, worker_id: int) -> str | None:
        """Name the process of a worker, and its machine."""
        self._hear()
        handle = self._remote.get(worker_id)
        if handle is None or handle.pid is None:
            return "not started yet"
        return f"pid {handle.pid} on {handle.host}"

    @property
    def capacity(self) -> int | None:
        """How many workers the cluster can take; None: it is not known yet."""
        self._hear()
        return self._capacity

    @property
    def wanted(self) -> int | None:
        """How many tasks in flight keep the workers busy; None: it is not known yet."""
        self._hear()
        return self._wanted

    def _hear(self) -> None:
        """Note the messages of the lander."""
        told: CallResult | Capacity | InFlight | Started
        for told in () if self._control is None else self._control.heard():
            if isinstance(told, Capacity):
                self._capacity = told.num_workers
            elif isinstance(told, InFlight):
                self._wanted = told.tasks
            elif isinstance(told, CallResult):
                if told.value is not None:
                    self._answers.setdefault(told.key, {})[told.node] = told.value
                if not told.left:
                    self._answered = max(self._answered, told.number)
            else:
                self._remote[told.worker_id].note_start(told.host, told.pid)

    def stop(self) -> None:
        """Stop the lander and its actors."""
        with self.lock:
            if self._control is not None:
                self._control.tell(Stop())
            self.grace.limit(_GRACE_S)
            self.stop_all()
            for handle in self._remote.values():
                handle.note_end()

    def close(self) -> None:
        """Close the descriptors."""
        remove_remote_readers(self)
        super().close()
        if self._control is not None:
            self._control.close()
            self._control = None
        if self._sent is not None:
            self._sent.close()
        for fd in [*self._pipes.values(), self._words_fd, self._config_fd]:
            if fd >= 0:
                os.close(fd)
        self._pipes.clear()
        self._words_fd = self._config_fd = -1


def _send(control: Control, order: WorkerCall, call: bytes) -> bool:
    """Send the lander a request with its call; False: it does not read, or has ended."""
    fd = memory_file("reader-call", call)
    try:
        control.send(order, [fd])
    except ReaderError:
        return False
    finally:
        os.close(fd)
    return True
