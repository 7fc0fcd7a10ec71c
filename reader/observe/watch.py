"""A thread that samples a loader during a loop: clocks, memory, and batches.

Imports the clocks and Observed. The thread samples ten times a second, more often in the first
second, when workers start, and less often with very many workers. Its samples belong to it until
`stop`.
"""

from __future__ import annotations

import os
import threading
import time
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.wire.times_log import FIELDS, NOTE, NOTED, TimesLog
from reader.engine.backends.backend import WorkerActivity
from reader.errors import start_thread
from reader.observe.machine import Machine
from reader.observe.observed import Observed, clock_of, name_of
from reader.observe.pressure import memory_pressure
from reader.observe.processors import stopped_s
from reader.worker_clock import (
    ProcessCounts,
    WorkerClock,
    own_bytes,
    process_counts,
    system_clock,
)

__all__ = ["RECORD_FIELDS", "MemorySample", "SystemCounts", "Watch", "system_counts"]

# of a batch: those of the log; then when its copy was issued and seen to be done, when the user got
# it, and when the last view of its memory was gone; to which place it was copied, -1: to none
RECORD_FIELDS = (*FIELDS, *((name, "i8") for name in NOTED), ("place", "i4"))

_EVERY_S, _AT_FIRST_S, _FIRST_S = 0.1, 0.01, 1.0
_REST = 50  # pause, as a multiple of the time of a sample
_FETCHES_S = 0.25  # between looks at what is fetched from stores
_FETCHES = ("bytes", "given", "wait_s", "transfer_s", "evicted")
_MOST_RECORDS = 1 << 16  # 9 MiB of them
_MOST_SAMPLES = 1 << 14
_MOST_NOTES = 1 << 14  # parts of them
_LOGGED = np.dtype(list(FIELDS))


class MemorySample(NamedTuple):
    """Bytes of memory at a moment.

    Attributes:
        at_ns: when, by `time.monotonic_ns`.
        trainer: of the program itself.
        workers: private memory of its worker processes.
        batches: memory of batches.
    """

    at_ns: int
    trainer: int
    workers: int
    batches: int


class SystemCounts(NamedTuple):
    """Seconds and counts of the system since it began; see `Measured` for most of them.

    `trainer`: of this process.
    """

    idle_s: float | None
    stopped_s: float
    memory_stall_s: float | None
    memory_events: int
    trainer: ProcessCounts


def system_counts(machine: Machine) -> SystemCounts:
    """Return the system's current counts."""
    try:
        stopped = stopped_s(machine)
    except (OSError, ValueError):
        stopped = 0.0
    clock = system_clock(machine.proc, os.sched_getaffinity(0))
    pressure = memory_pressure(machine)
    return SystemCounts(
        None if clock is None else clock.idle_s,
        stopped,
        pressure.stall_s,
        pressure.events,
        process_counts(os.getpid(), machine.proc),
    )


class Watch:
    """Samples a loader from `start` to `stop`.

    Attributes:
        records: of the last 65536 batches delivered meanwhile; their fields are RECORD_FIELDS.
        memory: samples of the memory.
        computed_s: seconds in which workers computed; None: no worker was seen.
        runnable_s: seconds in which workers had no core; None: no worker was seen.
        others_s: seconds in which workers computed for other loaders.
        stored_s: seconds in which their batches were copied into stores of other machines.
        bounded_s: seconds of workers in which their tasks were held back, because as many bytes as
            allowed were in flight.
        processes: counts of the workers' processes.
        clock_errors: how far times of workers on other machines may be off, in seconds, by machine.
        fetched: what was added to the numbers of `stats()["fetch"]`; None: there are none.
        limit: bytes that caches of shards keep at most.
    """

    def __init__(self, loader: Observed, times: TimesLog) -> None:
        self.fetched: dict[str, float] | None = None
        self.limit = 0
        self._fetches: dict[str, Any] = {}  # the last numbers
        self._fetches_s = 0.0  # when they were asked for
        self.memory: list[MemorySample] = []
        self.clock_errors: dict[str, float] = {}
        self._loader = loader
        self._times = times
        self._seen = times.count
        self._parts: list[tuple[int, bytes]] = []  # the number of the first, and records
        self._noted: list[bytes] = []
        self._next_note = times.ask()
        self._ends = threading.Event()
        self._first: dict[Any, WorkerClock] = {}  # by `name_of` a worker, as the others
        self._last: dict[Any, WorkerClock] = {}
        self._found_at: dict[Any, int] = {}  # how many batches there were when it was found
        self._at_work: set[Any] = set()  # workers that have begun a batch
        self._counts: dict[int, tuple[ProcessCounts, ProcessCounts]] = {}  # first and last
        self._thread = threading.Thread(target=self._run, name="reader-profile", daemon=True)

    def start(self) -> None:
        """Begin to sample. Workers that are busy now have worked before."""
        self._look()
        self._look_at_fetches()
        start_thread(self._thread, "the thread of a profile")

    def stop(self) -> None:
        """Sample for the last time, and wait for the thread."""
        self._ends.set()
        self._thread.join()
        self._look()
        self._look_at_fetches()
        self._times.let()

    @property
    def records(self) -> npt.NDArray[Any]:
        """The batches that were delivered, in the order of their delivery."""
        parts = [(first, np.frombuffer(part, _LOGGED)) for first, part in self._parts]
        made = np.zeros(sum(len(part) for _, part in parts), np.dtype(list(RECORD_FIELDS)))
        made["place"] = -1
        if not parts:
            return made
        logged = np.concatenate([part for _, part in parts])
        for name in logged.dtype.names or ():
            made[name] = logged[name]
        numbers = np.concatenate([first + np.arange(len(part)) for first, part in parts])
        notes = np.frombuffer(b"".join(self._noted), np.dtype(list(NOTE)))
        at = np.minimum(np.searchsorted(numbers, notes["number"]), len(numbers) - 1)
        is_kept = numbers[at] == notes["number"]
        for kind, name in enumerate(NOTED):
            own = is_kept & (notes["kind"] == kind)
            made[name][at[own]] = notes["at_ns"][own]
            if name == "issued_ns":
                made["place"][at[own]] = notes["place"][own]
        return made

    @property
    def computed_s(self) -> float | None:
        """See `Watch`."""
        return sum(each.cpu_s for each in self._clocks) or None

    @property
    def runnable_s(self) -> float | None:
        """See `Watch`."""
        return sum(each.runnable_s for each in self._clocks) if self._last else None

    @property
    def others_s(self) -> float:
        """See `Watch`."""
        return sum(each.others_s for each in self._clocks)

    @property
    def stored_s(self) -> float:
        """See `Watch`."""
        return sum(each.stored_s for each in self._clocks)

    @property
    def bounded_s(self) -> float:
        """See `Watch`."""
        return sum(each.bounded_s for each in self._clocks)

    @property
    def _clocks(self) -> list[WorkerClock]:
        return [last.since(self._first[at]) for at, last in self._last.items()]

    @property
    def processes(self) -> ProcessCounts:
        """See `Watch`."""
        found = ProcessCounts()
        for first, last in self._counts.values():
            found = found.plus(last.since(first))
        return found

    def _run(self) -> None:
        begun = time.monotonic()
        every_s = _AT_FIRST_S
        while not self._ends.wait(every_s):
            computed_s = time.thread_time()
            self._look()
            if time.monotonic() - self._fetches_s >= _FETCHES_S:
                self._look_at_fetches()
            computed_s = time.thread_time() - computed_s
            # sampling many workers takes long: it must not keep the GIL from the consumer
            every_s = _AT_FIRST_S if time.monotonic() - begun < _FIRST_S else _EVERY_S
            every_s = max(every_s, _REST * computed_s)

    def _look(self) -> None:
        self._take_records()
        processes = set()
        statuses = self._loader._observed_workers()
        for status in statuses:
            if status.host is None and status.pid is not None and status.pid != os.getpid():
                processes.add(status.pid)
            clock, at = clock_of(status), name_of(status)
            if clock is None:
                continue
            error_s = 0.0 if status.counts is None else status.counts.clock_error_s
            if status.host is not None and error_s:  # 0: no batch yet
                self.clock_errors[status.host] = error_s
            found_at = self._found_at.setdefault(at, self._times.count)
            is_at_work = status.activity is WorkerActivity.BUSY
            if is_at_work or self._times.count > found_at + 2 * len(statuses):
                self._at_work.add(at)
            self._first.setdefault(at, clock)
            if at not in self._at_work:
                self._first[at] = clock  # exclude the CPU time of its start
            self._last[at] = clock
        for pid in processes:
            counts = process_counts(pid)
            first, last = self._counts.get(pid, (counts, counts))
            self._counts[pid] = (first, max(last, counts))  # zeros if it has ended
        if len(self.memory) < _MOST_SAMPLES:
            arena = (self._loader._observed_stats() or {}).get("arena") or {}
            self.memory.append(
                MemorySample(
                    time.monotonic_ns(),
                    own_bytes(os.getpid()),
                    sum(map(own_bytes, processes)),
                    int(arena["owned_bytes"]) if arena.get("is_open") else 0,
                )
            )

    def _look_at_fetches(self) -> None:
        found = self._loader._observed_fetches()
        self._fetches_s = time.monotonic()
        if found is None or not found["is_running"]:
            return
        last, self._fetches, self.limit = self._fetches, found, found["limit"]
        if self.fetched is None:
            self.fetched = dict.fromkeys(_FETCHES, 0)
        elif last:
            if found["requests"] < last["requests"]:  # another process, which begins at 0
                last = dict.fromkeys(_FETCHES, 0)
            for name in _FETCHES:
                self.fetched[name] += max(0, found[name] - last[name])

    def _take_records(self) -> None:
        taken, self._seen = self._times.after(self._seen)
        if taken:
            self._parts.append((self._seen - len(taken) // _LOGGED.itemsize, taken))
            nbytes = _LOGGED.itemsize * _MOST_RECORDS
            while sum(len(part) for _, part in self._parts) > nbytes and len(self._parts) > 1:
                del self._parts[0]
        notes, self._next_note = self._times.noted(self._next_note)
        if notes:
            self._noted.append(notes)
            while len(self._noted) > _MOST_NOTES:
                del self._noted[0]
