"""Worker processes that several loaders share, and the part of each loader in them.

Imports the processes of a pool, what starts them and their messages. One lock guards both; a
process that died is started again by the first loader that notices, and the others join it.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from reader._core.interpreter.signals import Finalized, interrupt_after
from reader._core.memory.arena import Arena, fork_generation
from reader._core.wire.wake_words import WakeWords
from reader.engine.backends.worker_processes import GRACE_S, WorkerProcesses, is_readable
from reader.errors import ConfigError, InternalError, refusal
from reader.processes import pool_registry
from reader.processes.handle import WorkerHandle
from reader.processes.pickling import PickledConfig, pickle_config
from reader.processes.preload import libraries_of
from reader.processes.process import InheritedFd
from reader.processes.shared_process import Control, Forget, Open, SharedJob, Stop
from reader.processes.template import memory_file
from reader.worker.loop import WorkerConfig

__all__ = ["Member", "SharedProcesses", "SharedWorkers"]

_LOOK_S = 0.002  # between two looks at workers that are to leave an arena


class Member(Protocol):
    """A loader that shares the processes."""

    workers: WorkerConfig

    @property
    def is_in_use(self) -> bool:
        """Whether an iterator takes batches."""

    def close(self) -> None:
        """End its part, and wait for it."""


@dataclasses.dataclass(eq=False)
class _Life:
    """A worker process from its start to its end.

    `known`: the loaders whose configs it has; `is_wanted`: this package ended it; `teller`: the
    loader that tells of its end: the one of which it was making a batch.
    """

    pid: int
    pidfd: int
    control: Control
    known: set[int]
    exitcode: int | None = None
    is_reaped: bool = False
    is_wanted: bool = False
    teller: SharedProcesses | None = None


class SharedWorkers(WorkerProcesses, Finalized):
    """The processes; started when a first loader needs them.

    Args:
        count: of workers.
        start_method: of multiprocessing; None: Python's own default.
        max_bytes: of memory for the batches of all loaders; None: what the machine has.
    """

    def __init__(self, count: int, start_method: str | None, max_bytes: int | None) -> None:
        super().__init__()
        self.count = count
        self.max_bytes = max_bytes
        self._start_method = start_method
        self._members: dict[int, weakref.ref[Member]] = {}
        self._next_key = 0
        self._begin()

    def _begin(self) -> None:
        """Have no processes; those of a parent are not this process's."""
        self._generation = fork_generation()
        self._lives: dict[int, _Life] = {}
        self._parts: list[weakref.ref[SharedProcesses]] = []
        self._words: WakeWords | None = None
        self._words_fd = -1
        self.is_closing = False

    # -- loaders ---------------------------------------------------------------------------------

    def join(self, member: Member) -> int:
        """Note a loader; returns the key of its config."""
        key, self._next_key = self._next_key, self._next_key + 1
        self._members[key] = weakref.ref(member)
        return key

    def part(self, key: int) -> SharedProcesses:
        """Return the part of a loader, for one pool."""
        if self._generation != fork_generation():
            WorkerProcesses.__init__(self)
            self._begin()
        return SharedProcesses(self, key)

    def configs(self) -> dict[int, WorkerConfig]:
        """Return the configs of all loaders that there are, by key."""
        found = {key: each() for key, each in list(self._members.items())}
        return {key: member.workers for key, member in found.items() if member is not None}

    def forget_gone(self) -> None:
        """Have the workers let go of the configs of loaders that are gone."""
        gone = [key for key, each in list(self._members.items()) if each() is None]
        for key in gone:
            del self._members[key]
            for life in self._lives.values():
                if key in life.known:
                    life.known.discard(key)
                    life.control.send(Forget(key))

    def is_used_beside(self, key: int) -> bool:
        """Whether another loader than that one takes batches now."""
        found = [each() for other, each in list(self._members.items()) if other != key]
        return any(member is not None and member.is_in_use for member in found)

    def add_part(self, part: SharedProcesses) -> None:
        """Note the part of a loader, which has an arena."""
        if part not in self.parts:
            self._parts.append(weakref.ref(part))
        self._share_budget()

    def remove_part(self, part: SharedProcesses) -> None:
        """Forget the part of a loader, which has none any more."""
        self._parts = [each for each in self._parts if each() not in (None, part)]
        self._share_budget()

    @property
    def parts(self) -> list[SharedProcesses]:
        """The parts of the loaders."""
        return [part for each in self._parts if (part := each()) is not None]

    def _share_budget(self) -> None:
        if self.max_bytes is None:
            return
        arenas = [part.arena for part in self.parts if part.arena is not None]
        for arena in arenas:
            others = [other for other in arenas if other is not arena]
            arena.share_budget(others or None, self.max_bytes)

    # -- processes -------------------------------------------------------------------------------

    def open(self, find_libraries: Callable[[], list[str]]) -> None:
        """Prepare to start processes, unless they are prepared.

        `find_libraries` returns those of the first loader: a template imports them once for all.
        """
        if self.starter is not None:
            return
        try:
            nbytes = WakeWords.nbytes(self.count)
            self._words_fd = memory_file("reader-words", bytes(nbytes))
            self._words = WakeWords(self._words_fd, self.count)
        except OSError as error:
            raise refusal("the memory that wakes workers", "cannot be had", error) from error
        pool_registry.add(self)
        self.open_starter(None, self._start_method, self.count, find_libraries)

    def life(self, worker: int) -> _Life:
        """Return the life of a worker, which is started where it has none. Call with the lock."""
        life = self._lives.get(worker)
        if life is not None and self.has_ended(worker):
            self.settle(worker, life)
            life = None
        return self._start(worker) if life is None else life

    def _start(self, worker: int) -> _Life:
        if self.starter is None or self._words is None:
            raise InternalError("a shared worker was to be started by a pool that is not open")
        configs = self.configs() if self.starter.is_fork else {}
        with interrupt_after():
            control = Control(self._words, worker)
            try:
                job = SharedJob(
                    InheritedFd(control.theirs.fileno()),
                    InheritedFd(self._words_fd),
                    self.count,
                    configs,
                )
                pidfd = self.start_job(worker, job)
            except BaseException:
                control.close()
                raise
            control.theirs.close()
            life = _Life(self._handles[worker].pid or 0, pidfd, control, set(configs))
            self._lives[worker] = life
        return life

    def settle(self, worker: int, life: _Life, teller: SharedProcesses | None = None) -> None:
        """Reap a process that has ended, or is about to, once.

        `teller`: tells of its end, where it was making no batch.
        """
        if life.is_reaped:
            return
        life.is_reaped = True
        busy = [part for part in self.parts if part.is_busy(worker)]
        life.teller = busy[0] if busy else teller
        if self._lives.get(worker) is life:
            del self._lives[worker]
            life.pid, life.exitcode = self.reap(worker)
            self.release(worker)
            life.control.close()

    def kill_life(self, worker: int, life: _Life) -> bool:
        """End a worker's process, if it is that one; False: the signal cannot be sent."""
        if self._lives.get(worker) is not life:
            return True
        life.is_wanted = True
        return self.kill(worker)

    def renew(self) -> None:
        """End all processes, so that those started next inherit what there is now."""
        for worker, life in list(self._lives.items()):
            life.is_wanted = True
            life.control.send(Stop())
            self.kill(worker)
            self.settle(worker, life)

    def handle(self, worker: int) -> WorkerHandle:
        """Return the handle of a worker, or of the last process that it had."""
        return self._handles[worker]

    @property
    def pids(self) -> list[int]:
        """Of the processes, in the order of the workers."""
        return [life.pid for _, life in sorted(self._lives.items())]

    # -- ending ----------------------------------------------------------------------------------

    def close(self) -> None:
        """End the part of each loader and then the processes; wait for it. Idempotent."""
        if self._generation != fork_generation():
            return
        members = [each() for each in list(self._members.values())]
        for member in members:
            if member is not None:
                member.close()
        self._finish()

    def _finish(self) -> None:
        self.is_closing = True
        try:
            with self.lock:
                for life in self._lives.values():
                    life.is_wanted = True
                    life.control.send(Stop())
                self.end_all()
                for life in self._lives.values():
                    life.is_reaped = True
                    life.control.close()
                self._lives.clear()
                self._close_descriptors()
        finally:
            pool_registry.remove(self)
            self.is_closing = False

    def _close_descriptors(self) -> None:
        WorkerProcesses.close(self)
        self.starter = self._words = None
        fd, self._words_fd = self._words_fd, -1
        if fd >= 0:
            os.close(fd)

    def finalize(self) -> None:
        """End the processes, where nobody has, without waiting."""
        if self._generation != fork_generation() or self.starter is None:
            return
        pool_registry.add(self)  # the garbage collector has cleared weak references to it
        self.is_closing = True
        try:
            pool_registry.start_closing(self._finish)
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            self._finish()


class SharedProcesses:
    """The part of one loader in the processes: its arena, and which of them work in it.

    See Processes.

    Args:
        shared: the processes.
        key: of the loader's config.

    Attributes:
        arena: of its batches.
        is_busy: whether a worker makes one, or was making one when it ended.
    """

    def __init__(self, shared: SharedWorkers, key: int) -> None:
        self.arena: Arena | None = None
        self._shared = shared
        self._key = key
        self._config: WorkerConfig | None = None
        self._pickled: PickledConfig | None = None
        self._lives: dict[int, _Life] = {}
        self._last: dict[int, _Life] = {}  # that were reaped
        self._pidfds: dict[int, int] = {}  # duplicates: others may close theirs
        self._numbers: set[int] = set()
        self.is_busy: Callable[[int], bool] = lambda _: False

    @property
    def lock(self) -> threading.Lock:
        """Of all processes."""
        return self._shared.lock

    @property
    def refusal(self) -> OSError | None:
        """Of a signal to a worker."""
        return self._shared.refusal

    def open(
        self,
        config: WorkerConfig,
        start_method: str | None,  # noqa: ARG002  the pool's
        workers: int,  # noqa: ARG002  all of them
        is_busy: Callable[[int], bool],
    ) -> None:
        """Prepare to start processes."""
        self._config, self.is_busy = config, is_busy
        with self.lock:
            self._shared.open(self._libraries)

    def _libraries(self) -> list[str]:
        pickled = self._pickle()
        return (
            []
            if self._config is None
            else libraries_of(self._config, pickled.data, pickled.modules)
        )

    def start(self, worker: int, arena: Arena, bell: int, keep_slots: int) -> int:
        """Have the worker's process work in an arena, and start it where there is none."""
        if self._config is None:
            raise InternalError("a worker was to be started before its pool was opened")
        shared, key = self._shared, self._key
        self.arena = arena
        shared.add_part(self)
        shared.forget_gone()
        life = shared.life(worker)
        pickled = None
        if key not in life.known:
            try:
                pickled = self._pickle()
            except ConfigError as error:
                life = self._renewed(worker, error)
        budget, prepare = shared.max_bytes, self._config.prepare
        order = Open(key, keep_slots, budget, pickled is not None, prepare)
        life.control.send_open(order, arena.fd, bell, pickled)
        life.known.add(key)
        self._lives[worker] = life
        self._numbers.add(worker)
        self._pidfds[worker] = os.dup(life.pidfd)
        return self._pidfds[worker]

    def _renewed(self, worker: int, error: ConfigError) -> _Life:
        """Start processes that inherit the config, which cannot be pickled."""
        shared = self._shared
        if shared.starter is None or not shared.starter.is_fork:
            raise error
        if shared.is_used_beside(self._key):
            raise ConfigError(
                f"{error}. The workers of this WorkerPool run already, and those that were started"
                " by fork had what was there then: make all loaders of a pool before the first of"
                " them is iterated over, or begin this one while none of the others is in an epoch"
            ) from error
        shared.renew()
        return shared.life(worker)

    def _pickle(self) -> PickledConfig:
        if self._config is None:
            raise InternalError("a config was to be pickled before its pool was opened")
        if self._pickled is None:
            self._pickled = pickle_config(dataclasses.replace(self._config, prepare=None))
        return self._pickled

    def has_ended(self, worker: int) -> bool:
        """Whether the process of a worker has ended."""
        return is_readable(self._pidfds[worker])

    def reap(self, worker: int) -> tuple[int, int | None]:
        """Wait for the end of a worker's process; returns its pid and exit code."""
        life = self._lives.pop(worker)
        self._shared.settle(worker, life, self)
        self._last[worker] = life
        return life.pid, life.exitcode

    def release(self, worker: int) -> None:
        """Close the pidfd of a process that was reaped."""
        os.close(self._pidfds.pop(worker))

    def is_told(self, worker: int) -> bool:
        """Whether another loader tells of the end that was reaped last, or nobody has to."""
        life = self._last[worker]
        return life.is_wanted or life.teller is not self

    def cause_of(self, worker: int) -> str | None:
        """Return what is known of the end that was reaped last, beside its exit code."""
        return self._shared.cause_of(worker)

    def kill(self, worker: int) -> bool:
        """Send SIGKILL to a worker's process; False: it cannot be sent."""
        life = self._lives.get(worker)
        return life is not None and self._shared.kill_life(worker, life)

    def kill_all(self) -> None:
        """Send SIGKILL to all that work for this loader."""
        for worker, life in list(self._lives.items()):
            self._shared.kill_life(worker, life)

    @property
    def running(self) -> list[int]:
        """The workers that have a process which was not reaped."""
        return list(self._lives)

    @property
    def handles(self) -> list[WorkerHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return [self._shared.handle(worker) for worker in sorted(self._numbers)]

    def end(self) -> None:
        """Wait until no process works in the arena any more; end those that stay in it."""
        pause = threading.Event()
        deadline = time.monotonic() + GRACE_S
        while (busy := [each for each in self.running if self.is_busy(each)]) and (
            time.monotonic() < deadline
        ):
            pause.wait(_LOOK_S)
        with self.lock:
            for worker in busy:  # what it had of other loaders is made again
                self._shared.kill_life(worker, self._lives[worker])

    def close(self) -> None:
        """Let go of the processes, which work for others."""
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()
        if self._pickled is not None:
            self._pickled.close()
            self._pickled = None
        self.arena = None
        self._shared.remove_part(self)
