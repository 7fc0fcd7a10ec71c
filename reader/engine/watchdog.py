"""Log a sample that takes very long while the loop waits for it, and kill a worker that hangs.

Imports the tasks, backends, their log of times, and the stacks of workers. A Watchdog belongs to
the supervisor of one epoch, and looks only while that waits, or that of a loader with the same
workers: there is no thread, and no cost while batches come.
"""

from __future__ import annotations

import threading
import time
from typing import Any, NamedTuple

import numpy as np

from reader._core.epoch.tasks import TaskTable
from reader._core.wire.times_log import FIELDS
from reader.engine.backends.backend import Backend, WorkerActivity, WorkerStatus
from reader.errors import shown
from reader.log import log as _log
from reader.processes.python_stack import stack_of_process, stack_of_thread
from reader.worker.bad_sample import BadKey, own_keys

__all__ = ["Hung", "Watchdog"]

_RECORD = np.dtype(list(FIELDS))
_LOOKS = 8  # looks in the time after which a sample is logged
_LEAST_S = 0.02
_TICK_S = 1.0  # the most between two checks whether this process was stopped
_MOST_S = 5.0
_MOST = 0.5  # share of a batch's time from which on its slowest sample is named


class Hung(NamedTuple):
    """A sample that took longer than `hang_after`; its worker was killed.

    Attributes:
        row: of the sample in its batch; -1: unknown.
        seconds: that it had taken.
        limit_s: that it may take.
        stack: of the worker; "": unknown.
    """

    row: int
    seconds: float
    limit_s: float
    stack: str


class Watchdog:
    """Looks at the samples that workers are at.

    Args:
        backend: of the workers.
        table: the tasks of the epoch; a task notes there that its worker hung.
        epoch: its number, for messages.
        slow_s: seconds after which a sample is logged, once; None: never.
        hung_s: seconds after which its worker is killed; None: never.

    Attributes:
        own_pause_s: how long a wait may last before the next look; None: there is none.
    """

    def __init__(
        self,
        backend: Backend,
        table: TaskTable,
        epoch: int,
        slow_s: float | None,
        hung_s: float | None,
    ) -> None:
        self._backend, self._table, self._epoch = backend, table, epoch
        self._clock_s = backend.feeder.clock_s  # while this process is stopped no worker is slow
        self._slow_s, self._hung_s = slow_s, hung_s
        limits = [limit for limit in (slow_s, hung_s) if limit is not None]
        self.own_pause_s = min(_MOST_S, max(_LEAST_S, min(limits) / _LOOKS)) if limits else None
        if self.own_pause_s is not None:
            backend.feeder.watch_pauses(min(_TICK_S, self.own_pause_s))
        # worker -> its process, the batch and the row that it is at, and since when
        self._seen: dict[int, tuple[tuple[int | None, int | None, int], float]] = {}
        self._told: set[tuple[int, int | None, int]] = set()
        self._looking = threading.Lock()  # loaders that share workers may wait in several threads
        self._find_beside = backend.add_watch(self)

    @property
    def pause_s(self) -> float | None:
        """How long a wait may last before the next look, for any loader with these workers."""
        found = [self.own_pause_s, *(watch.own_pause_s for watch in self._find_beside())]
        return min((pause for pause in found if pause is not None), default=None)

    def look(self) -> None:
        """Log slow samples, and kill workers that hang, also at samples of other loaders.

        A loader that waits for a shared worker may wait for a sample of another one, whose program
        does not look meanwhile.
        """
        for watch in (self, *self._find_beside()):
            watch.look_once()

    def look_once(self) -> None:
        """Look at the samples of this loader, unless another thread does."""
        if self._looking.acquire(blocking=False):
            try:
                self._look()
            finally:
                self._looking.release()

    def _look(self) -> None:
        now = self._clock_s()
        for status in self._backend.statuses():
            if status.activity not in (WorkerActivity.BUSY, WorkerActivity.STARTING):
                self._seen.pop(status.worker_id, None)
                continue
            at = status.pid, status.batch, status.sample
            seen, since = self._seen.get(status.worker_id, (None, now))
            if seen != at:
                # the first sample of a batch is not older than the batch
                is_of_batch = status.batch is not None and status.sample <= 0
                since = now - status.since_s if is_of_batch else now
                self._seen[status.worker_id] = at, since
            self._judge(status, now - since)

    def tell_made(self, number: int, took_s: float) -> None:
        """Log the batch that the thread that iterates has just made, and its slow sample.

        Samples of `__getitems__` are not known one by one.
        """
        ended_ns = time.monotonic_ns()
        batch, took = f"batch {number} of epoch {self._epoch}", f"took {took_s:.1f} s"
        records = np.frombuffer(self._backend.feeder.times.last(1), _RECORD)
        # a failed batch has no record: this one is of an earlier batch
        if len(records) and records[0]["begun_ns"] >= ended_ns - (took_s + _LEAST_S) * 1e9:
            keys = own_keys(self._table.keys_of(int(records[0]["seq"])))
            slowest_s, row = int(records[0]["slowest_ns"]) * 1e-9, int(records[0]["slowest_row"])
            if len(keys) == 1:
                slowest_s, row = int(records[0]["fetch_ns"]) * 1e-9, 0
            if slowest_s >= _MOST * took_s:
                sample = _sample(keys, row, batch)
                _log.warning("%s took %.1f s, and its batch %.1f s", sample, slowest_s, took_s)
                return
            if keys:
                batch += f" (dataset indices {shown(keys)})"
        _log.warning("%s %s", batch, took)

    def _judge(self, status: WorkerStatus, seconds: float) -> None:
        key = status.worker_id, status.batch, status.sample
        hung_s = self._hung_s
        if hung_s is not None and seconds >= hung_s and status.batch is not None:
            if status.batch not in self._table or self._table[status.batch].hung is not None:
                return
            stack = _stack(status)
            now = self._backend.statuses()[status.worker_id]
            if (now.pid, now.batch, now.sample) != (status.pid, status.batch, status.sample):
                return  # the worker continued meanwhile
            self._table[status.batch].note_hung(Hung(status.sample, seconds, hung_s, stack))
            if self._backend.kill_worker(status.worker_id):
                end = ", which is ended and replaced"
                _log.warning("%s", self._said(status, seconds, stack, end))
            return
        if self._slow_s is not None and seconds >= self._slow_s and key not in self._told:
            self._told.add(key)
            _log.warning("%s", self._said(status, seconds, _stack(status)))

    def _said(self, status: WorkerStatus, seconds: float, stack: str, end: str = "") -> str:
        """Return a text: which worker is at which sample, since when, where in the code."""
        batch, row = status.batch, status.sample
        who = self._backend.name_of(status.worker_id)
        if status.activity is WorkerActivity.STARTING:
            text = f"{who} has been starting for {seconds:.1f} s so far"
            return f"{text}. It is here:\n{stack}" if stack else text
        keys = [] if batch is None else own_keys(self._table.keys_of(batch))
        where = f"batch {batch} of epoch {self._epoch}"
        what = where if row < 0 else _sample(keys, row, where)
        text = f"{what} has taken {seconds:.1f} s so far, by {who}{end}"
        return f"{text}. It is here:\n{stack}" if stack else text


def _sample(keys: list[Any], row: int, batch: str) -> str:
    """Name a sample by its key, if its batch has keys, and by its row."""
    if row >= len(keys):
        return f"sample {row} of {batch}"
    key = keys[row]
    name = f"index {shown(key)}"
    if type(key) is BadKey:
        name = f"index {shown(key.key)}, or one in its place,"
    return f"the sample at {name} (row {row} of {batch})"


def _stack(status: WorkerStatus) -> str:
    if status.pid is None or status.host is not None:
        return ""
    if status.thread_id is None or status.thread_id == status.pid:
        return stack_of_process(status.pid)
    return stack_of_thread(status.thread_id)
