"""The part of one loader in shared worker processes: its arena, and the processes in it.

Imports the shared workers and their messages. It belongs to the pool of one iterator, and takes
the lock of the workers where they are started or ended.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
import weakref
from collections.abc import Callable

from reader._core.memory.arena import Arena
from reader.engine.backends.backend import Watch
from reader.engine.backends.grace import BETWEEN_S, INTERRUPTS, Grace
from reader.engine.backends.shared_workers import Life, SharedWorkers
from reader.errors import ConfigError, InternalError
from reader.processes.handle import WorkerHandle, is_readable
from reader.processes.pickling import PickledConfig, pickle_config
from reader.processes.preload import libraries_of
from reader.processes.shared_process import Open
from reader.worker.loop import WorkerConfig

__all__ = ["SharedProcesses"]

_LOOK_S = 0.002  # between two looks whether workers have left an arena, at first
_SLOW_S = 0.02  # and later
# A dataset with one of these keeps what belongs to an epoch, and an iterable one its position: two
# iterators cannot use one copy of it.
_OF_EPOCH = ("set_epoch", "load_state_dict")


class SharedProcesses:
    """The part of one loader in the processes: its arena, and the processes that work in it.

    See Part and Processes.

    Args:
        shared: the processes.
        key: of the loader's config.
    """

    def __init__(self, shared: SharedWorkers, key: int) -> None:
        self.arena: Arena | None = None
        self.key = key
        self.grace = Grace()
        self.number = shared.number_part()
        self._shared = shared
        self._config: WorkerConfig | None = None
        self._pickled: PickledConfig | None = None
        self._lives: dict[int, Life] = {}
        self._last: dict[int, Life] = {}  # that were reaped
        self._pidfds: dict[int, int] = {}  # duplicates: others may close theirs
        self._numbers: set[int] = set()
        self._sent: dict[int, Life] = {}  # the processes that got its config
        self._is_ready: Callable[[int], bool] = lambda _: False
        self._watch: weakref.ref[Watch] | None = None

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
        num_workers: int,  # noqa: ARG002  all of them
        is_ready: Callable[[int], bool],
    ) -> None:
        """Prepare to start processes."""
        self._config, self._is_ready = config, is_ready
        with self.lock:
            self._shared.open(self._libraries)

    def _libraries(self) -> list[str]:
        pickled = self._pickle()
        return (
            []
            if self._config is None
            else libraries_of(self._config, pickled.data, pickled.modules)
        )

    def start(self, worker_id: int, arena: Arena, bell: int, keep_slots: int) -> int:
        """Have a worker's process work in an arena; start one if there is none."""
        if self._config is None:
            raise InternalError("a worker was to be started before its pool was opened")
        shared, key = self._shared, self.key
        shared.open(self._libraries)  # again, if another thread has closed it
        self.arena = arena
        shared.add_part(self)
        shared.drop_gone()
        life = shared.life(worker_id)
        pickled = None
        if not self._may_use(worker_id, life):
            try:
                pickled = self._pickle()
            except ConfigError as error:
                life = self._without(worker_id, life, error)
        order = Open(
            key,
            self.number,
            keep_slots,
            shared.max_bytes,
            shared.loaders,
            0 if pickled is None else 1 + len(pickled.fds),
            self._config.prepare,
            self._config.ranks,
        )
        life.control.send_open(order, arena.fd, bell, pickled)
        if pickled is not None:
            self._sent[worker_id] = life
        life.known[key] = weakref.ref(self)
        self._lives[worker_id] = life
        self._numbers.add(worker_id)
        self._pidfds[worker_id] = os.dup(life.pidfd)
        return self._pidfds[worker_id]

    def _may_use(self, worker_id: int, life: Life) -> bool:
        """Whether a worker has a copy of the config that no other part has used."""
        if self._config is None or self.key not in life.known:
            return False
        user = life.known[self.key]
        if user is None:
            return True
        part = user()
        if part is not None and part.arena is not None and not part.has_given(worker_id):
            return False
        dataset = self._config.dataset
        return self._config.stream is None and not any(hasattr(dataset, n) for n in _OF_EPOCH)

    def has_given(self, worker_id: int) -> bool:
        """Whether a worker has the config that this part uses."""
        return worker_id not in self._sent or self._is_ready(worker_id)

    def _without(self, worker_id: int, life: Life, error: ConfigError) -> Life:
        """Return a life that has the config, which cannot be pickled."""
        if self.key not in life.known:
            return self._renewed(worker_id, error)
        user = life.known[self.key]
        part = None if user is None else user()
        if part is not None and part.arena is not None:
            raise ConfigError(
                f"{error}. Each iterator of a loader on a WorkerPool needs a copy of this dataset:"
                " end or drop the one that there is before you begin another"
            ) from error
        return life  # it takes over the copy of a dropped iterator

    def _renewed(self, worker_id: int, error: ConfigError) -> Life:
        """Start processes that inherit the config, which cannot be pickled."""
        shared = self._shared
        if shared.starter is None or not shared.starter.is_fork:
            raise error
        if shared.is_used_beside(self.key):
            raise ConfigError(
                f"{error}. The workers of this WorkerPool run already, and those that were started"
                " by fork had what was there then: make all loaders of a pool before the first of"
                " them is iterated over, or begin this one while none of the others is in an epoch"
            ) from error
        shared.renew()
        return shared.life(worker_id)

    def _pickle(self) -> PickledConfig:
        if self._config is None:
            raise InternalError("a config was to be pickled before its pool was opened")
        if self._pickled is None:
            is_fork = self._shared.starter is not None and self._shared.starter.is_fork
            remedy = "" if is_fork else "pass start_method='fork' to WorkerPool"
            self._pickled = pickle_config(dataclasses.replace(self._config, prepare=None), remedy)
        return self._pickled

    def has_ended(self, worker_id: int) -> bool:
        """Whether the process of a worker has ended."""
        return is_readable(self._pidfds[worker_id])

    def reap(self, worker_id: int) -> tuple[int, int | None]:
        """Wait for the end of a worker's process; returns its pid and exit code."""
        life = self._lives.pop(worker_id)
        self._shared.note_end(worker_id, life, self)
        self._last[worker_id] = life
        return life.pid, life.exitcode

    def release(self, worker_id: int) -> None:
        """Close the pidfd of a process that was reaped."""
        os.close(self._pidfds.pop(worker_id))

    def is_told(self, worker_id: int) -> bool:
        """Whether the last death needs no report from this loader.

        Another loader reports it, or it was wanted.
        """
        life = self._last[worker_id]
        return life.is_wanted or life.teller is not self

    def cause_of(self, worker_id: int) -> str | None:
        """Return what is known of the end that was reaped last, beside its exit code."""
        return self._shared.cause_of(worker_id)

    def process_of(self, worker_id: int) -> str | None:
        """Name the process of a worker that is none of this machine."""
        return self._shared.process_of(worker_id)

    @property
    def capacity(self) -> int | None:
        """How many workers fit on other machines."""
        return self._shared.capacity

    @property
    def wanted(self) -> int | None:
        """How many tasks in flight keep workers on other machines busy."""
        return self._shared.wanted

    def kill(self, worker_id: int) -> bool:
        """Send SIGKILL to a worker's process; False: it cannot be sent."""
        life = self._lives.get(worker_id)
        return life is not None and self._shared.kill_life(worker_id, life)

    def kill_all(self) -> None:
        """Send SIGKILL to all that work for this loader."""
        for worker_id, life in list(self._lives.items()):
            self._shared.kill_life(worker_id, life)

    @property
    def running(self) -> list[int]:
        """The workers that have a process which was not reaped."""
        return list(self._lives)

    @property
    def handles(self) -> list[WorkerHandle]:
        """A handle of each worker, in the order of their numbers; of the last where it died."""
        return [self._shared.handle(worker_id) for worker_id in sorted(self._numbers)]

    def add_watch(self, watch: Watch) -> Callable[[], list[Watch]]:
        """Note the Watch of this loader; see Backend."""
        self._watch = weakref.ref(watch)
        return self._watches_beside

    @property
    def watch(self) -> Watch | None:
        """The Watch of this loader."""
        return None if self._watch is None else self._watch()

    def _watches_beside(self) -> list[Watch]:
        found = [part.watch for part in self._shared.parts if part is not self]
        return [watch for watch in found if watch is not None]

    def stop(self) -> None:
        """Wait until no process works in the arena; kill those that stay in it."""
        busy = self._stay(self.grace)
        for _ in range(INTERRUPTS):
            if not busy:
                break
            with self.lock:
                for worker_id in busy:
                    self._shared.interrupt_life(worker_id, self._lives[worker_id])
            pause = Grace()
            pause.limit(BETWEEN_S)
            busy = self._stay(pause)
        with self.lock:
            for worker_id in busy:  # its tasks of other loaders are made again
                self._shared.kill_life(worker_id, self._lives[worker_id])
            for worker_id, life in self._sent.items():
                if not self.has_given(worker_id):  # it may or may not have the config
                    life.known.pop(self.key, None)

    def _stay(self, grace: Grace) -> list[int]:
        """Return the workers that are still in the arena when the time is over."""
        pause, look_s = threading.Event(), _LOOK_S
        while busy := [each for each in self.running if self._is_at_work(each)]:
            if grace.left_s <= 0.0:
                break
            began = time.monotonic()
            pause.wait(look_s)
            # a longer wait: this process was stopped
            grace.spend(min(time.monotonic() - began, 2 * look_s))
            look_s = min(_SLOW_S, 1.1 * look_s)
        return busy

    def _is_at_work(self, worker_id: int) -> bool:
        return self._shared.is_at(worker_id, self) and not self.has_ended(worker_id)

    def close(self) -> None:
        """Release the processes, which work for other loaders."""
        for fd in self._pidfds.values():
            os.close(fd)
        self._pidfds.clear()
        if self._pickled is not None:
            self._pickled.close()
            self._pickled = None
        self.arena = None
        self._shared.remove_part(self)
