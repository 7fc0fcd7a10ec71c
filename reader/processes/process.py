"""A worker process: how the trainer starts it, and what runs in it.

Imports the contexts of multiprocessing, the core, the loop and template. The pool's starter makes a
`WorkerSetup` in the trainer; the worker gets it by fork or by pickle, with its descriptors.
"""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import importlib
import multiprocessing
import os
import select
import signal
import sys
import threading
from multiprocessing import forkserver, reduction, util
from multiprocessing.context import BaseContext
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, Protocol

from reader._core.interpreter.signals import Finalized, ignore_interrupts, interrupt_after
from reader._core.memory.arena import Arena
from reader._core.wire.channel import WorkerChannel, watch_trainer
from reader.available_memory import available_bytes
from reader.errors import InternalError, ReaderError, refusal, workers_option
from reader.log import log as _log
from reader.processes.main_module import has_lost_file
from reader.processes.pickling import PickledConfig, pickle_config, unpickle_config
from reader.processes.preload import libraries_of
from reader.processes.python_stack import offer_stack
from reader.processes.template import (
    Template,
    TemplateEnded,
    default_method_left_alone,
    memory_file,
)
from reader.worker import loop
from reader.worker.interruption import interrupt_when

__all__ = [
    "InheritedFd",
    "Job",
    "ProcessStarter",
    "WorkerSetup",
    "drop_process",
    "read_file",
    "refused",
    "release_process",
]


_MANY_FDS = 200  # multiprocessing's forkserver passes 256, a few of which are its own and ours
_END_MS = 1000  # from the end of a forkserver's sockets to the end of its process

# Starting a process walks multiprocessing's set of children. Also guards `_kept`; no other lock is
# taken while it is held.
_table_lock = threading.Lock()

# Workers that were started and not released yet. If the garbage collector freed one, it would run
# multiprocessing's code that closes it, which a signal may interrupt.
_kept: set[BaseProcess] = set()


def _renew() -> None:
    """Renew the lock in a forked child, which has neither the thread that holds it nor workers."""
    global _table_lock
    _table_lock = threading.Lock()
    _kept.clear()


os.register_at_fork(after_in_child=_renew)


def release_process(process: BaseProcess) -> None:
    """Release Python's objects of a process that has ended and is joined.

    `process.close()` would take the handle away by which another thread, where somebody starts a
    process of theirs, may just ask whether this one has ended: before Python 3.11.5 that raises an
    AttributeError there.
    """
    with _table_lock:
        multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
        handle = process._popen  # type: ignore[attr-defined]
        if handle is not None:
            handle.close()
        _kept.discard(process)


def drop_process(process: BaseProcess) -> None:
    """Drop a process from those that multiprocessing waits for when the interpreter exits."""
    with _table_lock:
        multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]
        _kept.discard(process)


@dataclasses.dataclass(frozen=True)
class InheritedFd:
    """A descriptor of the trainer that the worker gets too; a forked worker inherits it."""

    fd: int

    def __reduce__(self) -> tuple[Any, ...]:
        return _take_over, (reduction.DupFd(self.fd),)


def _take_over(duplicate: Any) -> InheritedFd:
    return InheritedFd(duplicate.detach())


class Job(Protocol):
    """The work of a worker process."""

    def work(self, worker_id: int) -> None:
        """Make batches until the worker must stop."""


@dataclasses.dataclass(frozen=True)
class WorkerSetup:
    """Everything a worker process starts from."""

    worker_id: int
    trainer: InheritedFd  # pidfd of the trainer
    job: Job


@dataclasses.dataclass(frozen=True)
class LoaderJob:
    """Makes the batches of one loader."""

    arena: Arena | InheritedFd  # under fork the mapping is inherited
    bell: InheritedFd
    keep_slots: int
    config: loop.WorkerConfig | None  # under fork
    pickled: InheritedFd | None  # otherwise: a memory file with the pickled config
    held: tuple[InheritedFd, ...] = ()  # the descriptors in the pickled config

    def work(self, worker_id: int) -> None:
        """Make batches until the pool stops."""
        inherited = self.arena
        arena = inherited.adopt() if isinstance(inherited, Arena) else Arena.attach(inherited.fd)
        channel = WorkerChannel(arena, worker_id, self.bell.fd, self.keep_slots, available_bytes)
        interrupt_when(lambda: channel.is_stopped and not channel.is_resting)
        try:
            config = self.config or self._unpickle()
        except BaseException as error:
            channel.fail(loop.carried(error))
        else:
            loop.run(channel, config, worker_id)

    def _unpickle(self) -> loop.WorkerConfig:
        if self.pickled is None:
            raise InternalError("a worker was started with neither a config nor a pickled one")
        return unpickle_config(read_file(self.pickled.fd), [held.fd for held in self.held])


class ProcessStarter(Finalized):
    """Starts the worker processes of a pool: the first ones, and replacements.

    Args:
        config: of each worker; not kept. None: they get it later.
        start_method: of multiprocessing; None: Python's own default.
        imports_main: whether their configs may refer to the main module. If not, they do not import
            it: that would run a program without a guard again.

    Raises:
        ConfigError: the config cannot be pickled, and the method needs it.
        ReaderError: the system refuses memory or descriptors.
    """

    _has_pool = False
    _template: Template | None = None
    _pickled: PickledConfig | None = None
    _pickled_fd: int | None = None
    _trainer = -1

    def __init__(
        self, config: loop.WorkerConfig | None, start_method: str | None, imports_main: bool = True
    ) -> None:
        if start_method is None:
            # reading the default method must not fix it for the whole process
            start_method = multiprocessing.get_start_method(allow_none=True)
            start_method = start_method or multiprocessing.get_all_start_methods()[0]
        self._context: BaseContext = multiprocessing.get_context(start_method)
        self._method = start_method
        self._imports_main = imports_main
        self._libraries: list[str] = []
        try:
            if start_method != "fork" and config is not None:
                self._pickled = pickle_config(config)
                self._libraries = libraries_of(config, self._pickled.data, self._pickled.modules)
            with interrupt_after():  # in between nobody would know of a descriptor
                if self._pickled is not None:
                    self._pickled_fd = memory_file("reader-config", self._pickled.take())
                self._trainer = os.pidfd_open(os.getpid())
            if start_method == "fork":
                importlib.import_module("numpy.random")  # else each worker does, and seeds it
        except BaseException as error:
            self.close()
            if isinstance(error, OSError):
                raise refused("worker processes", error) from error
            raise

    @property
    def _held(self) -> list[int]:
        """The descriptors that workers get."""
        return [] if self._pickled is None else self._pickled.fds

    @property
    def is_fork(self) -> bool:
        """Whether workers inherit the trainer's objects."""
        return self._method == "fork"

    @property
    def needs_template(self) -> bool:
        """Whether multiprocessing cannot start a worker by itself.

        Forkserver passes on a limited number of descriptors. A process that it or spawn starts
        imports the main module, and fails if its file does not exist (<stdin>).
        """
        holds_many = self._method == "forkserver" and len(self._held) > _MANY_FDS
        return holds_many or (
            self._method != "fork" and (has_lost_file() or not self._imports_main)
        )

    def preload(self, libraries: list[str]) -> None:
        """Let a template import these libraries too."""
        self._libraries = libraries

    def open_template(self) -> None:
        """Start a template that forks the workers, unless the trainer forks them; wait for it.

        Raises:
            ReaderError: the system refuses another process.
        """
        if self._method == "fork":
            return
        try:
            with interrupt_after():
                self._template = Template(
                    self._method, self._trainer, self._libraries, self._imports_main
                )
            self._template.await_ready()
        except TemplateEnded:
            self._drop_template()
        except OSError as error:
            raise refused("the process that starts workers", error) from error

    def job(self, config: loop.WorkerConfig, arena: Arena, bell: int, keep_slots: int) -> Job:
        """Return the job of a worker of one loader. `config`: the same for all workers."""
        is_fork = self._pickled_fd is None
        return LoaderJob(
            arena=arena if is_fork else InheritedFd(arena.fd),
            bell=InheritedFd(bell),
            keep_slots=keep_slots,
            config=config if is_fork else None,
            pickled=None if self._pickled_fd is None else InheritedFd(self._pickled_fd),
            held=tuple(InheritedFd(fd) for fd in self._held),
        )

    def start_job(self, worker_id: int, job: Job) -> BaseProcess:
        """Start a worker process, in which Ctrl-C is blocked from the first instruction.

        Raises:
            ReaderError: the system or Python refuses another process.
        """
        setup = WorkerSetup(worker_id, InheritedFd(self._trainer), job)
        if self._template is not None:
            try:
                return _start(self._template, setup)
            except TemplateEnded:
                self._drop_template()
                if not self._imports_main:  # multiprocessing's process would import it
                    self.open_template()
                    return self.start_job(worker_id, job)
        return _start(self._context, setup)

    def close(self) -> None:
        """Kill the template, and close the workers' descriptors. Call it after the workers' end."""
        with interrupt_after():  # else one may be closed twice, as another file's
            if self._template is not None:
                self._template.close()
            if self._pickled is not None:
                self._pickled.close()
            for fd in (self._pickled_fd, self._trainer):
                if fd is not None and fd >= 0:
                    os.close(fd)
            self._template, self._pickled_fd, self._trainer = None, None, -1

    def leave_to_pool(self) -> None:
        """Leave it to a pool to close it."""
        self._has_pool = True

    def finalize(self) -> None:
        """Close it if an interrupt came before a pool got it.

        With a pool, the thread that closes the pool still uses it, and closes it.
        """
        if not self._has_pool:
            self.close()

    def _drop_template(self) -> None:
        if self._imports_main:
            _log.warning(
                "the process that preloads libraries for workers ended; each worker now imports"
                " them itself, and starts slower"
            )
        if self._template is not None:
            self._template.close()
        self._template = None


def _start(context: BaseContext | Template, setup: WorkerSetup) -> BaseProcess:
    process: BaseProcess = context.Process(  # type: ignore[union-attr]
        target=main, args=(setup,), name=f"reader-worker-{setup.worker_id}"
    )
    # the mask is inherited, across exec too; the worker unblocks SIGINT once it ignores it
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        with _table_lock, default_method_left_alone():
            if not isinstance(context, Template):
                _check_pipes()
            process.start()
            _kept.add(process)
    except AssertionError as error:
        raise ReaderError(
            f"worker processes cannot be started here: {error}. Start this process with"
            " daemon=False, or use num_workers=0 without pool="
        ) from error
    except (EOFError, ConnectionError) as error:
        raise _ended_meanwhile(context, setup.worker_id, error) from error
    except (OSError, ValueError) as error:  # ValueError: forkserver passes no more descriptors
        raise refused(f"worker process {setup.worker_id}", error) from error
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return process


def _ended_meanwhile(
    context: BaseContext | Template, worker_id: int, error: Exception
) -> ReaderError:
    """Return the error for a process that ended while it started a worker.

    It may have forked a worker or not. Such a worker ends with the arena, which the pool stops
    because of this error. A replacement would share its rings.
    """
    is_server = isinstance(context, BaseContext) and context.get_start_method() == "forkserver"
    if is_server:
        _await_end_of_forkserver()
    what = "the forkserver of multiprocessing, which forks it," if is_server else "it"
    words = f"{type(error).__name__}: {error}"
    return ReaderError(
        f"worker process {worker_id} cannot be started: {what} ended meanwhile ({words}). Something"
        " killed it: the kernel does where memory is short, and logs that (dmesg). Iterate over the"
        " loader again, which starts another"
    )


def _await_end_of_forkserver() -> None:
    """Wait until multiprocessing can see that its forkserver ended, or for a second if it runs on.

    The kernel closes the sockets of a killed process a moment before its parent can see its end.
    Until then multiprocessing takes the server for running and starts no other one.
    """
    pid = getattr(getattr(forkserver, "_forkserver", None), "_forkserver_pid", None)
    if pid is None:
        return
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:  # it ended and was waited for, or the system refuses a descriptor
        return
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        poll.poll(_END_MS)
    finally:
        os.close(pidfd)


def _check_pipes() -> None:
    """Raise OSError if a process cannot get its two pipes.

    Python itself would leak the first pipe if the second is refused.
    """
    fds: list[int] = []
    try:
        fds += os.pipe()
        fds += os.pipe()
    finally:
        for fd in fds:
            os.close(fd)


def refused(what: str, error: Exception) -> ReaderError:
    """Return the error for a process that the system refuses to start."""
    hint = f"lower {workers_option()}, or raise the limit on processes (ulimit -u) or memory"
    return refusal(what, "cannot be started", error, hint)


def main(setup: WorkerSetup) -> None:
    """Run a worker. Does not return and prints nothing: the trainer reports."""
    status = 1
    try:
        try:
            _work(setup)
            status = 0
        finally:  # after any exception: the trainer sees the end and the exit status
            os._exit(status)  # no interpreter shutdown: libraries loaded in the trainer stay quiet
    finally:  # the signal that interrupts a sample came just now
        os._exit(status)


def _work(setup: WorkerSetup) -> None:
    ignore_interrupts()  # the trainer alone answers Ctrl-C
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    watch_trainer(setup.trainer.fd)
    offer_stack()
    with contextlib.suppress(OSError), Path("/proc/self/comm").open("w") as comm:
        comm.write(f"reader-w{setup.worker_id}")
    gc.freeze()  # a collection here must not write to, and so copy, the trainer's pages
    try:
        setup.job.work(setup.worker_id)
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
    util._exit_function()  # type: ignore[attr-defined]  # joins children of the user's code


def read_file(fd: int) -> bytearray:
    """Return the content of a memory file, and close it."""
    size = os.fstat(fd).st_size
    data = bytearray()
    while len(data) < size:
        data += os.pread(fd, min(size - len(data), 1 << 30), len(data))
    os.close(fd)
    return data
