"""A remote worker that several programs share: a named Ray actor that outlives each of them.

Imports the remote worker and the loops of several loaders. It belongs to the process that Ray
started for it, and ends with the last program that uses it. A program that was killed does not say
so: it is dropped when its signs of life stop while others' go on.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reader.cluster.remote_worker import CallTimes, Place, RemoteWorker, Sent
from reader.errors import ReaderError
from reader.worker.shared_loops import SharedLoops

__all__ = ["BEAT_S", "PoolWorker"]

BEAT_S = 5.0  # between a program's signs of life
_MISSED = 4  # a program without a sign of life during this many of another's is gone


class PoolWorker:
    """Makes the batches of one worker of each program, in the order of their calls.

    Args:
        worker_id: from 0; the same for all of them.
    """

    def __init__(self, worker_id: int) -> None:
        self._worker_id = worker_id
        self._loops = SharedLoops(worker_id, lambda _: None)
        self._users: dict[str, RemoteWorker] = {}
        self._missed: dict[str, Counter[str]] = {}  # by user: others' signs since its own
        self._worked_ns = 0  # time in calls of all programs
        self._seen_ns: dict[str, int] = {}  # by user: `_worked_ns` at the end of its last call
        self._calls = 0  # begun so far
        self._is_busy = False
        threading.Thread(target=self._watch, daemon=True, name="reader-lease").start()

    def start(
        self, user: str, theirs: str, config: Any, in_flight: int
    ) -> tuple[CallTimes, Place, list[Sent]]:
        """Begin to work for a program; returns the result of RemoteWorker.start."""
        with self._calling():
            self._drop(user)
            made = RemoteWorker(theirs, config, self._worker_id, in_flight, self._loops)
            self._users[user], self._missed[user] = made, Counter()
            self._seen_ns[user] = self._worked_ns
            return made.start()

    def work(self, user: str, tasks: list[tuple[Any, ...]]) -> tuple[CallTimes, list[Sent]]:
        """Do tasks of a program; see RemoteWorker.work."""
        with self._calling():
            if user not in self._users:
                raise ReaderError("the worker has let go of a program that it had not heard of")
            times, answers = self._users[user].work(tasks)
            others_ns = self._worked_ns - self._seen_ns[user]
            self._worked_ns += times.ended_ns - times.begun_ns
            self._seen_ns[user] = self._worked_ns
            return times._replace(others_ns=others_ns), answers

    def call(self, user: str, key: str, data: bytes) -> Any:
        """Make a call of a program; see RemoteWorker.call."""
        with self._calling():
            return self._users[user].call(key, data) if user in self._users else None

    def beat(self, user: str) -> None:
        """Note a program's sign of life, and drop programs without one."""
        with self._calling():
            for other, missed in list(self._missed.items()):
                if other != user:
                    missed[user] += 1
                    if missed[user] > _MISSED:
                        self._drop(other)
            if user in self._missed:
                self._missed[user].clear()

    def release(self, user: str) -> None:
        """Stop working for a program; the process ends after the last one."""
        import ray

        with self._calling():
            self._drop(user)
            if not self._users:
                ray.actor.exit_actor()

    def _drop(self, user: str) -> None:
        found = self._users.pop(user, None)
        self._missed.pop(user, None)
        self._seen_ns.pop(user, None)
        if found is not None:
            found.close()

    @contextlib.contextmanager
    def _calling(self) -> Iterator[None]:
        """Count as busy within the block."""
        self._calls += 1
        self._is_busy = True
        try:
            yield
        finally:
            self._is_busy = False

    def _watch(self) -> None:
        """End the process when no calls come any more: all programs were killed."""
        pause = threading.Event()
        seen, since = -1, time.monotonic()
        while True:
            pause.wait(BEAT_S / 2)
            if self._is_busy or self._calls != seen:
                seen, since = self._calls, time.monotonic()
            elif time.monotonic() - since > _MISSED * BEAT_S:
                os._exit(0)
