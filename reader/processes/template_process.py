"""The template process: a fresh interpreter that imports the workers' libraries and forks them.

Imports the standard library, numpy and the core's watch; it runs none of the user's own modules.
The process runs `serve` alone. Its children return from `serve` as workers, and never return to it.
"""

from __future__ import annotations

import array
import contextlib
import errno
import gc
import io
import os
import pickle
import select
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from multiprocessing import process, resource_tracker, spawn, util
from pathlib import Path
from typing import Any

import numpy.random  # imported once; each worker seeds it

from reader._core.interpreter.signals import ignore_interrupts
from reader._core.wire.channel import watch_trainer

__all__ = ["ASK", "MAX_FDS", "READY", "REPLY", "STATUS", "inherited_fd", "recv_fds", "serve"]

MAX_FDS = 250  # per message: a little below the kernel's limit of 253
READY = b"ready"
ASK = struct.Struct("qq")  # of a worker's descriptors: how many are sent so far, how many in all
REPLY = struct.Struct("qq")  # pid, errno: one of them is 0
STATUS = struct.Struct("q")  # exit status as multiprocessing counts: -signal, or the code

_fds: list[int] = []  # the descriptors that the trainer sent to this worker, by pickled index


def inherited_fd(index: int) -> int:
    """Return the descriptor that the trainer sent as number `index` with this worker."""
    return _fds[index]


def recv_fds(sock: socket.socket, nbytes: int, flags: int = 0) -> tuple[bytes, list[int]]:
    """Receive a message and its descriptors, marked close-on-exec. `flags`: of recvmsg.

    `socket.recv_fds` ignores its flags.
    """
    found = array.array("i")
    space = socket.CMSG_SPACE(MAX_FDS * found.itemsize)
    data, parts, _, _ = sock.recvmsg(nbytes, space, flags | socket.MSG_CMSG_CLOEXEC)
    for level, kind, part in parts:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            found.frombytes(part[: len(part) // found.itemsize * found.itemsize])
    return data, list(found)


class _Children:
    """The live workers: each one's pidfd, pid and the pipe for its exit status."""

    def __init__(self) -> None:
        self._by_fd: dict[int, tuple[int, int]] = {}
        self.poll = select.poll()

    def add(self, pidfd: int, pid: int, status: int) -> None:
        self._by_fd[pidfd] = pid, status
        self.poll.register(pidfd, select.POLLIN)

    def reap(self, pidfd: int) -> None:
        """Reap a worker that has ended, and send its exit status to the trainer."""
        self.poll.unregister(pidfd)
        pid, status = self._by_fd.pop(pidfd)
        exitcode = 255
        with contextlib.suppress(ChildProcessError):
            exitcode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        with contextlib.suppress(OSError):  # the trainer has closed its end
            os.write(status, STATUS.pack(exitcode))
        os.close(status)
        os.close(pidfd)

    def close(self) -> None:
        """In a worker, close the template's descriptors: a pipe open here would never end."""
        for pidfd, (_, status) in self._by_fd.items():
            os.close(pidfd)
            os.close(status)
        self._by_fd.clear()


def serve(control: int, trainer: int, tracker: int, modules: Sequence[str]) -> None:
    """Import `modules`, then fork a worker for each message, until the trainer closes or ends.

    Args:
        control: socket to the trainer. It asks for a worker by one ASK per MAX_FDS descriptors: a
            memory file with the pickles, the pipe for the exit status, and the inherited ones.
        trainer: pidfd of the trainer; stays open while this process and its workers live.
        tracker: descriptor of multiprocessing's resource tracker.
        modules: names to import; a failed import is left to the workers.
    """
    ignore_interrupts()  # the trainer alone answers Ctrl-C; workers and their children inherit it
    on_child = signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # if ignored, exit statuses are lost
    watch_trainer(trainer)
    resource_tracker._resource_tracker._fd = tracker  # type: ignore[attr-defined]
    with contextlib.suppress(OSError), Path("/proc/self/comm").open("w") as comm:
        comm.write("reader-template")
    gc.disable()  # nothing here becomes garbage; collections would take a tenth of the time
    for name in modules:
        with contextlib.suppress(Exception):
            import_module(name)
    gc.freeze()
    children = _Children()
    fds: list[int] = []  # those received so far for the next worker
    with socket.socket(fileno=control) as sock:
        sock.send(READY)
        children.poll.register(control, select.POLLIN)
        while True:
            for fd, _ in children.poll.poll():
                if fd != control:
                    children.reap(fd)
                    continue
                message, some = recv_fds(sock, ASK.size)
                if not message:
                    return
                before, count = ASK.unpack(message)
                if before == 0:
                    _close(fds)  # of an unfinished request
                fds += some
                if before + MAX_FDS < count:
                    continue
                if len(fds) < count:  # this process may open no more descriptors
                    _close(fds)
                    sock.send(REPLY.pack(0, errno.EMFILE))
                    continue
                if _fork(sock, children, fds):
                    signal.signal(signal.SIGCHLD, on_child)
                    _be_worker(fds, trainer)


def _fork(sock: socket.socket, children: _Children, fds: list[int]) -> bool:
    """Fork; return True in the worker. Sends the trainer the pid and a pidfd, or an errno."""
    try:
        with warnings.catch_warnings():
            # Python 3.12 warns of threads: those of BLAS handle a fork, and the watch is this
            # package's
            warnings.simplefilter("ignore")
            pid = os.fork()
    except OSError as error:
        sock.send(REPLY.pack(0, error.errno or 1))
        pid = -1
    if pid == 0:
        children.close()
        sock.close()
        return True
    if pid > 0:
        try:
            pidfd = os.pidfd_open(pid)
            children.add(pidfd, pid, os.dup(fds[1]))
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            sock.send(REPLY.pack(0, error.errno or 1))
        else:
            socket.send_fds(sock, [REPLY.pack(pid, 0)], [pidfd])
    _close(fds)
    return False


def _close(fds: list[int]) -> None:
    while fds:
        os.close(fds.pop())


def _be_worker(fds: list[int], trainer: int) -> None:
    """Run as a spawned process from its first line on. Does not return."""
    status = 1
    try:
        gc.enable()
        numpy.random.seed()  # as in a fresh interpreter; `random` does so by itself
        data, pipe, *_fds[:] = fds
        os.close(pipe)
        status = _bootstrap(_read(data), trainer)
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # the user's main module raised: report as Python does
    finally:
        with contextlib.suppress(Exception):
            util._flush_std_streams()  # type: ignore[attr-defined]
        os._exit(status)


def _read(fd: int) -> io.BytesIO:
    size = os.fstat(fd).st_size
    data = bytearray()
    while len(data) < size:
        data += os.pread(fd, size - len(data), len(data))
    os.close(fd)
    return io.BytesIO(data)


def _bootstrap(stream: io.BytesIO, trainer: int) -> int:
    current: Any = process.current_process()
    current._inheriting = True  # refuse a main module without a guard, as multiprocessing does
    try:
        spawn.prepare(pickle.load(stream))
        worker = pickle.load(stream)
    finally:
        del current._inheriting
    status: int = worker._bootstrap(parent_sentinel=trainer)
    return status
