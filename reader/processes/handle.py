"""Handles of workers, with the attributes and methods of a `multiprocessing.Process`.

Imports the errors. A handle outlives the process and the pool; the pool notes the
exit code when it reaps the process, and any thread of the trainer may read it.
"""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess

from reader._core.interpreter.signals import interrupt_after
from reader.errors import ReaderError

__all__ = ["RemoteHandle", "ThreadHandle", "WorkerHandle", "is_readable", "send_signal"]

_STEP_S = 0.05  # Ctrl-C waits at most this long


def is_readable(fd: int, timeout_ms: int | None = 0) -> bool:
    """Whether a descriptor is readable, as a pidfd of an ended process is. None: wait for that."""
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(timeout_ms))


def send_signal(pidfd: int, pid: int, number: int) -> None:
    """Send a signal to a process that this one has not reaped, if it runs.

    Uses kill where a sandbox forbids pidfd_send_signal. That is safe while the pidfd is not
    readable: until then the pid belongs to the process.

    Raises:
        OSError: the system refuses both.
    """
    try:
        signal.pidfd_send_signal(pidfd, number)
    except ProcessLookupError:
        return
    except OSError:
        if not is_readable(pidfd):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)


class WorkerHandle:
    """A worker process, alive or not.

    Args:
        process: a started process.
    """

    def __init__(self, process: BaseProcess) -> None:
        self.pid = process.pid
        self.host: str | None = None  # this machine
        self.name = process.name
        self.daemon = True  # it never outlives its trainer
        self._process: BaseProcess | None = process
        self._exitcode: int | None = None
        self._ended = threading.Event()

    @property
    def thread_id(self) -> int | None:
        """The system's number of its main thread."""
        return self.pid

    def note_end(self, exitcode: int | None) -> None:
        """Note the exit code of the process: the pool has reaped it."""
        self._exitcode = exitcode
        self._process = None
        self._ended.set()

    @property
    def exitcode(self) -> int | None:
        """The exit code, minus the number of a signal that ended it; None while it lives."""
        process = self._process
        if process is not None and self._has_ended(0):
            with interrupt_after():  # an Event that is interrupted may stay locked
                self._ended.wait(1.0)  # a pool that is being closed calls note_end at once
            return self._exitcode if self._ended.is_set() else process.exitcode
        return self._exitcode

    def is_alive(self) -> bool:
        """Whether it runs."""
        return not self._has_ended(0)

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, `timeout` seconds at most."""
        self._has_ended(timeout)

    def terminate(self) -> None:
        """Send SIGTERM, if it runs."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL, if it runs."""
        self._send(signal.SIGKILL)

    def _send(self, number: int) -> None:
        if self._process is not None and self.pid is not None and not self._has_ended(0):
            os.kill(self.pid, number)

    def _has_ended(self, timeout: float | None) -> bool:
        deadline = math.inf if timeout is None else time.monotonic() + timeout
        while True:
            left_s = max(0.0, deadline - time.monotonic())
            with interrupt_after():  # between the two the descriptor would be lost
                if self._ends_within(min(left_s, _STEP_S)):
                    return True
            if left_s == 0.0:
                return False

    def _ends_within(self, timeout_s: float) -> bool:
        if self._process is None or self.pid is None:
            return True
        try:
            fd = os.pidfd_open(self.pid)
        except ProcessLookupError:
            return True
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            return bool(poll.poll(timeout_s * 1000))
        finally:
            os.close(fd)

    def __repr__(self) -> str:
        state = f"exit code {self._exitcode}" if self._process is None else "running"
        return f"<reader worker {self.name} (pid {self.pid}), {state}>"


class ThreadHandle:
    """A worker thread of this process, as a WorkerHandle. It cannot be terminated from outside.

    Args:
        thread: a started thread.
    """

    def __init__(self, thread: threading.Thread) -> None:
        self.pid = os.getpid()
        self.host: str | None = None
        self.name = thread.name
        self.daemon = True
        self._thread = thread

    @property
    def thread_id(self) -> int | None:
        """The system's number of the thread."""
        return self._thread.native_id

    @property
    def exitcode(self) -> int | None:
        """None while it lives, 0 after."""
        return None if self._thread.is_alive() else 0

    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._thread.is_alive()

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, `timeout` seconds at most."""
        self._thread.join(timeout)

    def terminate(self) -> None:
        """Do nothing if the thread has ended.

        Raises:
            ReaderError: it runs.
        """
        if self.is_alive():
            raise ReaderError(
                f"{self.name} is a thread and cannot be ended from outside; close its loader, or"
                ' use worker_type="process"'
            )

    def kill(self) -> None:
        """As `terminate`."""
        self.terminate()

    def __repr__(self) -> str:
        return f"<reader worker {self.name}, {'running' if self.is_alive() else 'ended'}>"


class RemoteHandle:
    """A worker process on another machine, as a WorkerHandle. Its exit code is unknown.

    Args:
        worker_id: its number.
        has_ended: returns whether it has ended.
        kill: kills it.

    Attributes:
        pid: on its machine; None: it has not started yet.
        host: its machine.
    """

    def __init__(
        self, worker_id: int, has_ended: Callable[[], bool], kill: Callable[[], object]
    ) -> None:
        self.pid: int | None = None
        self.host: str | None = None
        self.name = f"remote-{worker_id}"
        self.daemon = True
        self.thread_id: int | None = None  # it has no thread here
        self.exitcode: int | None = None
        self._ended = threading.Event()
        self._look = has_ended
        self._kill = kill

    def note_start(self, host: str, pid: int) -> None:
        """Note where the process runs, once it does."""
        self.host, self.pid = host, pid

    def note_end(self) -> None:
        """Note that the pool has released the process."""
        self._ended.set()

    def is_alive(self) -> bool:
        """Whether it runs, or has not started yet."""
        return not (self._ended.is_set() or self._look())

    def join(self, timeout: float | None = None) -> None:
        """Wait until the pool has released it, `timeout` seconds at most."""
        with interrupt_after():  # an Event that is interrupted may stay locked
            self._ended.wait(timeout)

    def terminate(self) -> None:
        """End it at once."""
        if self.is_alive():
            self._kill()

    def kill(self) -> None:
        """End it at once."""
        self.terminate()

    def __repr__(self) -> str:
        where = "not started" if self.pid is None else f"pid {self.pid} on {self.host}"
        return f"<reader worker {self.name} ({where}), {'running' if self.is_alive() else 'ended'}>"
