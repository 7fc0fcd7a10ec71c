"""The trainer's side of the template: a fresh process that forks workers like those of spawn.

Imports multiprocessing's contexts and the messages of `template_process`. The pool that opened a
template owns it; one thread at a time asks it for workers.
"""

from __future__ import annotations

import contextlib
import errno
import io
import multiprocessing
import os
import pickle
import select
import signal
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from multiprocessing import forkserver, popen_fork, reduction, resource_tracker, spawn, util
from multiprocessing.context import SpawnProcess, set_spawning_popen
from multiprocessing.process import BaseProcess
from typing import Any

from reader.processes.handle import is_readable, send_signal
from reader.processes.main_module import is_imported
from reader.processes.template_process import (
    ASK,
    MAX_FDS,
    READY,
    REPLY,
    STATUS,
    inherited_fd,
    recv_fds,
)

__all__ = [
    "Template",
    "TemplateEnded",
    "default_method_left_alone",
    "memory_file",
    "pidfd_of",
]

_COMMAND = """
import os, pickle, sys
with os.fdopen({head}, "rb") as head:
    sys.path[:], modules = pickle.load(head)
from reader.processes.template_process import serve
serve({control}, {trainer}, {tracker}, modules)
"""


class TemplateEnded(Exception):
    """The template has ended: it was killed, or a module that it imported ended it."""


class Template:
    """Starts a process that imports `modules` and then forks workers.

    A worker starts as under spawn or forkserver: it has imported no module of the user, and has no
    object of the trainer. Only the libraries are imported once, not once per worker.

    Args:
        method: "spawn" or "forkserver": the start method that workers see.
        trainer: pidfd of this process.
        modules: names of libraries; for forkserver, the user's list of preloads is added.
        imports_main: whether workers import this process's main module if they can.

    Raises:
        OSError: the system refuses another process, or descriptors.
    """

    def __init__(
        self, method: str, trainer: int, modules: Sequence[str], imports_main: bool = True
    ) -> None:
        self.method = method
        self.imports_main = imports_main
        self._is_ready = False
        names = [*modules, *(_preloads() if method == "forkserver" else [])]
        tracker: Any = resource_tracker.getfd()
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        head = -1
        try:
            with theirs:
                head = memory_file("reader-template", pickle.dumps((_import_path(), names)))
                fds = {
                    "head": head,
                    "control": theirs.fileno(),
                    "trainer": trainer,
                    "tracker": tracker,
                }
                self._pid = _spawn(_COMMAND.format(**fds), list(fds.values()))
            self._pidfd = os.pidfd_open(self._pid)
        except BaseException:
            ours.close()
            raise
        finally:
            if head >= 0:
                os.close(head)
        self._sock = ours

    def await_ready(self) -> None:
        """Wait until the libraries are imported. Ctrl-C interrupts the wait.

        Raises:
            TemplateEnded: the template ended instead.
        """
        if not self._is_ready and self._receive(len(READY))[0] != READY:
            raise TemplateEnded
        self._is_ready = True

    def Process(  # noqa: N802  the name in multiprocessing's contexts
        self, target: Callable[..., Any], args: tuple[Any, ...], name: str
    ) -> BaseProcess:
        """Return a process, as a context of multiprocessing does; its `start` forks it.

        `start` raises TemplateEnded, or the OSError that the template met.
        """
        return _Process(self, target=target, args=args, name=name)

    def fork(self, data: bytes, fds: Sequence[int]) -> tuple[int, int, int]:
        """Fork a worker that unpickles `data` and gets duplicates of `fds`.

        Returns:
            Its pid, its pidfd, and the reading end of the pipe for its exit status.

        Raises:
            TemplateEnded, OSError.
        """
        self.await_ready()
        pickled = memory_file("reader-worker", data)
        try:
            status, status_end = os.pipe()
            try:
                with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                    self._send([pickled, status_end, *fds])
            finally:
                os.close(status_end)
        finally:
            os.close(pickled)
        try:
            pid, pidfd = self._forked()
        except BaseException:
            os.close(status)
            raise
        return pid, pidfd, status

    def _send(self, fds: list[int]) -> None:
        """Send the descriptors that a worker starts from, at most MAX_FDS in a message."""
        for first in range(0, len(fds), MAX_FDS):
            chunk = fds[first : first + MAX_FDS]
            socket.send_fds(self._sock, [ASK.pack(first, len(fds))], chunk)

    def _forked(self) -> tuple[int, int]:
        reply, received = self._receive(REPLY.size)
        if len(reply) < REPLY.size:
            raise TemplateEnded
        pid, number = REPLY.unpack(reply)
        if number:
            raise OSError(number, os.strerror(number))
        if not received:  # this process reached its limit of descriptors
            os.kill(pid, signal.SIGKILL)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return pid, received[0]

    def close(self) -> None:
        """Kill and reap it; its workers continue. Exit statuses that it has not sent are lost."""
        if self._pidfd < 0:
            return
        self._sock.close()
        with contextlib.suppress(OSError):  # if signals are refused, the closed socket ends it
            send_signal(self._pidfd, self._pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # an os.wait of the user reaped it
            os.waitpid(self._pid, 0)
        os.close(self._pidfd)
        self._pidfd = -1

    def _receive(self, nbytes: int) -> tuple[bytes, list[int]]:
        """Wait for a message; an empty one means that the template has ended."""
        poll = select.poll()
        poll.register(self._sock, select.POLLIN)
        poll.register(self._pidfd, select.POLLIN)  # the user's forks may keep the socket open
        fd = self._sock.fileno()
        if fd not in (ready for ready, _ in poll.poll()):
            return b"", []
        with contextlib.suppress(ConnectionResetError):
            return recv_fds(self._sock, nbytes)
        return b"", []


def pidfd_of(worker: BaseProcess) -> int:
    """Return a pidfd of a started process; the caller closes it.

    Raises:
        ProcessLookupError: the process has ended and was reaped.
    """
    popen = worker._popen  # type: ignore[attr-defined]
    if isinstance(popen, _Popen):
        return os.dup(popen.pidfd)
    return os.pidfd_open(worker.pid or 0)


def memory_file(name: str, data: bytes) -> int:
    """Return a descriptor of a memory file with `data`, at its start."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        view = memoryview(data)
        while view:
            view = view[os.write(fd, view[: 1 << 30]) :]
        os.lseek(fd, 0, os.SEEK_SET)
    except BaseException:
        os.close(fd)
        raise
    return fd


class _Process(SpawnProcess):
    """A worker that a template forks."""

    def __init__(self, template: Template, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._template: Any = template
        self._start_method = template.method

    def _Popen(self, process_obj: Any) -> Any:  # type: ignore[override]  # noqa: N802
        template, self._template = self._template, None
        return _Popen(process_obj, template)


class _DupFd:
    """A descriptor within a pickle; its number in the worker is another one."""

    def __init__(self, index: int) -> None:
        self._index = index

    def detach(self) -> int:
        return inherited_fd(self._index)


class _Popen(popen_fork.Popen):
    """multiprocessing's object of a started process; its status comes from the template."""

    DupFd = _DupFd

    def __init__(self, process_obj: Any, template: Template) -> None:
        self._template = template
        self._fds: list[int] = []
        self._lock = threading.Lock()  # one thread reads the status, once
        super().__init__(process_obj)

    def duplicate_for_child(self, fd: int) -> int:
        self._fds.append(fd)
        return len(self._fds) - 1

    def _launch(self, process_obj: Any) -> None:
        stream = io.BytesIO()
        spawning: Any = self
        set_spawning_popen(spawning)
        try:
            data = spawn.get_preparation_data(process_obj.name)
            if not self._template.imports_main or not is_imported():
                data.pop("init_main_from_path", None)
                data.pop("init_main_from_name", None)
            reduction.dump(data, stream)
            reduction.dump(process_obj, stream)
        finally:
            set_spawning_popen(None)
        self.pid, self.pidfd, self.sentinel = self._template.fork(stream.getvalue(), self._fds)
        close_fds = util.close_fds  # type: ignore[attr-defined]
        self.finalizer = util.Finalize(self, close_fds, (self.pidfd, self.sentinel))

    def poll(self, flag: int = os.WNOHANG) -> int | None:
        with self._lock:
            timeout = 0 if flag == os.WNOHANG else None
            if self.returncode is None and is_readable(self.sentinel, timeout):
                status = os.read(self.sentinel, STATUS.size)
                if status:
                    self.returncode = STATUS.unpack(status)[0]
                elif is_readable(self.pidfd, timeout):  # the template was killed before it
                    self.returncode = 255
            code: int | None = self.returncode
            return code


@contextlib.contextmanager
def default_method_left_alone() -> Iterator[None]:
    """Restore Python's default start method afterwards: starting a process fixes it."""
    method: Any = multiprocessing.get_start_method(allow_none=True)
    try:
        yield
    finally:
        if method is None:
            multiprocessing.set_start_method(None, force=True)  # noqa: TID251  as it was


def _import_path() -> list[str]:
    with default_method_left_alone():
        data: dict[str, Any] = spawn.get_preparation_data("template")
    path: list[str] = data["sys_path"]
    return path


def _preloads() -> list[str]:
    """Return the user's preloads for multiprocessing's forkserver, without the main module."""
    server = getattr(forkserver, "_forkserver", None)
    names = getattr(server, "_preload_modules", None) or []
    return [name for name in names if name != "__main__"]


def _spawn(command: str, fds: list[int]) -> int:
    """Start a fresh interpreter, in which Ctrl-C is blocked from the first instruction."""
    executable: Any = spawn.get_executable()
    flags = util._args_from_interpreter_flags()  # type: ignore[attr-defined]
    arguments = [executable, *flags, "-c", command]
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        pid: int = util.spawnv_passfds(executable, arguments, fds)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
