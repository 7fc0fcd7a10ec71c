"""Worker processes that several loaders share: they are started, reaped and closed here.

Imports the processes of a pool, what starts them and their messages. One lock guards them; a
process that died is started again by the first loader that notices, and the others join it.
"""

from __future__ import annotations

import dataclasses
import os
import weakref
from collections.abc import Callable
from typing import Protocol

from reader._core.interpreter.signals import Finalized, interrupt_after
from reader._core.memory.arena import Arena, fork_generation
from reader._core.wire.wake_words import WakeWords
from reader.engine.backends.backend import Watch
from reader.engine.backends.grace import EXIT_S, GRACE_S, await_ends
from reader.engine.backends.worker_processes import WorkerProcesses
from reader.errors import InternalError, refusal
from reader.processes import pool_registry
from reader.processes.handle import WorkerHandle
from reader.processes.process import InheritedFd
from reader.processes.shared_process import Control, DropConfig, SharedJob, Stop
from reader.processes.template import memory_file
from reader.worker.loop import WorkerConfig

__all__ = ["Life", "Member", "Part", "SharedWorkers"]


class Member(Protocol):
    """A loader that shares the processes."""

    worker_config: WorkerConfig

    @property
    def is_in_use(self) -> bool:
        """Whether an iterator takes batches."""

    def close_soon(self, grace_s: float | None = None) -> None:
        """End its part in the background."""

    def close(self, grace_s: float | None = None) -> None:
        """End its part, and wait for it."""


class Part(Protocol):
    """The part of one loader in the processes, for one arena.

    `key`: of the loader's config; `number`: its own, of all parts that there are; `arena`: of its
    batches; None before the first worker is started, and when it is closed.
    """

    key: int
    number: int
    arena: Arena | None

    @property
    def watch(self) -> Watch | None:
        """The Watch of this loader; None: there is none."""

    def has_given(self, worker_id: int) -> bool:
        """Whether a worker has the config that this part uses."""


@dataclasses.dataclass(eq=False)
class Life:
    """A worker process from its start to its end.

    `known`: the loaders whose configs it has, and the part that uses each, None: it was inherited
    and is unused; `is_wanted`: this package ended it; `teller`: the loader that reports its end:
    the one for which it worked.
    """

    pid: int
    pidfd: int
    control: Control
    known: dict[int, weakref.ref[Part] | None]
    exitcode: int | None = None
    is_reaped: bool = False
    is_wanted: bool = False
    teller: Part | None = None

    def note_wanted(self) -> None:
        """Note that this package ends it: no loader reports its end."""
        self.is_wanted = True

    def note_reaped(self, teller: Part | None = None) -> None:
        """Note that its process is reaped now, or by another thread."""
        self.is_reaped, self.teller = True, teller

    def end(self, pid: int, exitcode: int | None) -> None:
        """Note how the process ended, and close its pipe."""
        self.pid, self.exitcode = pid, exitcode
        self.control.close()

    def stop(self) -> None:
        """Ask the process to end after the sample that it works on."""
        self.note_wanted()
        self.control.tell(Stop())


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
        self._next_part = 1  # 0: none
        self._begin()

    def _begin(self) -> None:
        """Begin without processes; those of a parent belong to the parent."""
        self._generation = fork_generation()
        self._lives: dict[int, Life] = {}
        self._parts: list[weakref.ref[Part]] = []
        self._words: WakeWords | None = None
        self._words_fd = -1
        self.is_closing = False

    # -- loaders ---------------------------------------------------------------------------------

    def join(self, member: Member) -> int:
        """Note a loader; returns the key of its config."""
        key, self._next_key = self._next_key, self._next_key + 1
        self._members[key] = weakref.ref(member)
        return key

    def number_part(self) -> int:
        """Return the number of a new part; a forked process begins anew."""
        if self._generation != fork_generation():
            WorkerProcesses.__init__(self)
            self._begin()
        number, self._next_part = self._next_part, self._next_part % 0xFFFFFFFF + 1
        return number

    def configs(self) -> dict[int, WorkerConfig]:
        """Return the configs of all loaders that there are, by key."""
        found = {key: each() for key, each in list(self._members.items())}
        return {key: member.worker_config for key, member in found.items() if member is not None}

    def drop_gone(self) -> None:
        """Have the workers drop the configs of loaders that are gone."""
        for key, each in list(self._members.items()):
            if each() is None:
                del self._members[key]
        for life in self._lives.values():
            for key in life.known.keys() - self._members.keys():
                if not life.control.tell(DropConfig(key)):
                    break  # its pipe is full: next time
                del life.known[key]

    def is_used_beside(self, key: int) -> bool:
        """Whether a loader with another key takes batches now."""
        found = [each() for other, each in list(self._members.items()) if other != key]
        return any(member is not None and member.is_in_use for member in found)

    def add_part(self, part: Part) -> None:
        """Note the part of a loader, which has an arena."""
        if part not in self.parts:
            self._parts.append(weakref.ref(part))
        self._share_budget()

    def remove_part(self, part: Part) -> None:
        """Drop the part of a loader."""
        self._parts = [each for each in self._parts if each() not in (None, part)]
        self._share_budget()

    @property
    def parts(self) -> list[Part]:
        """The parts of the loaders."""
        return [part for each in self._parts if (part := each()) is not None]

    def _share_budget(self) -> None:
        if self.max_bytes is None:
            return
        parts = [part for part in self.parts if part.arena is not None]
        idle = max(0, self.loaders - len({part.key for part in parts}))
        arenas = [part.arena for part in parts if part.arena is not None]
        for arena in arenas:
            others = [other for other in arenas if other is not arena]
            arena.share_budget(others, self.max_bytes, idle)

    @property
    def loaders(self) -> int:
        """How many loaders there are."""
        return len(self.configs())

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

    def life(self, worker_id: int) -> Life:
        """Return the life of a worker; starts one if there is none. Call with the lock."""
        life = self._lives.get(worker_id)
        if life is not None and self.has_ended(worker_id):
            self.note_end(worker_id, life)
            life = None
        return self._start(worker_id) if life is None else life

    def _start(self, worker_id: int) -> Life:
        if self.starter is None or self._words is None:
            raise InternalError("a shared worker was to be started by a pool that is not open")
        configs = self.configs() if self.starter.is_fork else {}
        with interrupt_after():
            control = Control(self._words, worker_id)
            self._words.enter(worker_id, 0)
            try:
                job = SharedJob(
                    InheritedFd(control.theirs.fileno()),
                    InheritedFd(self._words_fd),
                    self.count,
                    configs,
                )
                pidfd = self.start_job(worker_id, job)
            except BaseException:
                control.close()
                raise
            control.theirs.close()
            pid = self._handles[worker_id].pid or 0
            life = Life(pid, pidfd, control, dict.fromkeys(configs))
            self._lives[worker_id] = life
        return life

    def note_end(self, worker_id: int, life: Life, teller: Part | None = None) -> None:
        """Reap a process that has ended, or is about to, once.

        `teller`: reports its end, if it worked for no loader.
        """
        if life.is_reaped:
            return
        found = [part for part in self.parts if self.is_at(worker_id, part)]
        life.note_reaped(found[0] if found else teller)
        if self._lives.get(worker_id) is life:
            del self._lives[worker_id]
            pid, exitcode = self.reap(worker_id)
            self.release(worker_id)
            life.end(pid, exitcode)

    def is_at(self, worker_id: int, part: Part) -> bool:
        """Whether a worker runs code for a loader, or ran it when it died."""
        return self._words is not None and self._words.at(worker_id) == part.number

    def kill_life(self, worker_id: int, life: Life) -> bool:
        """Kill a worker's process, if it is that one; False: the signal cannot be sent."""
        if self._lives.get(worker_id) is not life:
            return True
        life.note_wanted()
        return self.kill(worker_id)

    def interrupt_life(self, worker_id: int, life: Life) -> None:
        """Interrupt what a worker runs for a loader that has stopped, if it is that process."""
        if self._lives.get(worker_id) is life:
            self.interrupt(worker_id)

    def renew(self) -> None:
        """End all processes, so that the next ones inherit the current state.

        They finish their samples, of epochs that were left, in 5 s at most.
        """
        for life in self._lives.values():
            life.stop()
        await_ends(self._pidfds.values(), GRACE_S)
        for worker_id, life in list(self._lives.items()):
            self.kill(worker_id)
            self.note_end(worker_id, life)

    def handle(self, worker_id: int) -> WorkerHandle:
        """Return the handle of a worker, or of the last process that it had."""
        return self._handles[worker_id]

    @property
    def pids(self) -> list[int]:
        """The pids of the processes, in the order of the workers."""
        return [life.pid for _, life in sorted(self._lives.items())]

    # -- ending ----------------------------------------------------------------------------------

    def close_soon(self, grace_s: float | None = None) -> None:
        """End the part of each loader in the background, and have the processes end soon after."""
        if self._generation == fork_generation():
            self.grace.limit(GRACE_S if grace_s is None else grace_s)
            for member in self._there():
                member.close_soon(grace_s)

    def close(self, grace_s: float | None = None) -> None:
        """End the part of each loader and then the processes; wait for it. Idempotent."""
        if self._generation != fork_generation():
            return
        self.close_soon(grace_s)
        for member in self._there():
            member.close(grace_s)
        self._close()

    def _there(self) -> list[Member]:
        return [member for each in list(self._members.values()) if (member := each()) is not None]

    def _close(self) -> None:
        self.is_closing = True
        with self.lock:  # also for the registry: the next loader may open it again
            try:
                for life in self._lives.values():
                    life.stop()
                self.stop_all()
                for life in self._lives.values():
                    life.note_reaped()
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
        """Close the processes without waiting, unless they are closed."""
        if self._generation != fork_generation() or self.starter is None:
            return
        pool_registry.add(self)  # the garbage collector has cleared weak references to it
        self.is_closing = True
        self.grace.limit(GRACE_S)
        try:
            pool_registry.start_closing(self._close)
        except RuntimeError:  # the interpreter shuts down and starts no more threads
            self.grace.limit(EXIT_S)
            self._close()
