"""What the system knows of the time of workers: computing, waiting for a core, or blocked.

Imports where /proc is. Sources: proc(5), the kernel's document on scheduler statistics.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from reader.cgroups import PROC

__all__ = [
    "ProcessCounts",
    "RunnableClock",
    "SystemClock",
    "WorkerClock",
    "own_bytes",
    "own_clock",
    "process_counts",
    "system_clock",
    "worker_clock",
]

_PAGE = os.sysconf("SC_PAGE_SIZE")
_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class WorkerClock(NamedTuple):
    """Seconds since a process or thread began.

    Attributes:
        cpu_s: in which it computed; of a process, all of its threads. Of a worker that several
            loaders share: for one of them.
        runnable_s: in which it could have computed, and no core was free.
        others_s: in which it computed for other loaders.
        stored_s: in which its batches were copied into the object store of another machine.
        bounded_s: in which its tasks were held back, since enough bytes were under way from there.
    """

    cpu_s: float
    runnable_s: float
    others_s: float = 0.0
    stored_s: float = 0.0
    bounded_s: float = 0.0

    def since(self, before: WorkerClock) -> WorkerClock:
        """Return what was added since; of the time without a core, one loader's share."""
        cpu_s, others_s = self.cpu_s - before.cpu_s, max(0.0, self.others_s - before.others_s)
        share = cpu_s / (cpu_s + others_s) if others_s > 0 else 1.0
        runnable_s = (self.runnable_s - before.runnable_s) * share
        stored_s, bounded_s = self.stored_s - before.stored_s, self.bounded_s - before.bounded_s
        return WorkerClock(cpu_s, runnable_s, others_s, stored_s, bounded_s)


class RunnableClock:
    """How long the thread that makes it could have computed, and had no core; read in 2 us."""

    def __init__(self) -> None:
        self._file = -1
        with contextlib.suppress(OSError):
            self._file = os.open(_own_schedstat(), os.O_RDONLY | os.O_CLOEXEC)

    def read_ns(self) -> int:
        """Return the nanoseconds so far; 0: the system does not tell, or the thread has ended."""
        try:
            return int(os.pread(self._file, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    def close(self) -> None:
        """Close its file, once."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class ProcessCounts(NamedTuple):
    """Counts of a process since it began.

    Attributes:
        major_faults: pages that it had to wait for; swap, or files.
        user_s: seconds in which it computed, the kernel's work for it left out.
        kernel_s: seconds of that work.
    """

    major_faults: int = 0
    user_s: float = 0.0
    kernel_s: float = 0.0

    def since(self, before: ProcessCounts) -> ProcessCounts:
        """Return what was added since; of a process that has ended, nothing."""
        return ProcessCounts(
            max(0, self.major_faults - before.major_faults),
            max(0.0, self.user_s - before.user_s),
            max(0.0, self.kernel_s - before.kernel_s),
        )

    def plus(self, other: ProcessCounts) -> ProcessCounts:
        """Return the counts of both."""
        return ProcessCounts(
            self.major_faults + other.major_faults,
            self.user_s + other.user_s,
            self.kernel_s + other.kernel_s,
        )


class SystemClock(NamedTuple):
    """Seconds of some cores since the machine began: in all, and those in which they were idle."""

    total_s: float
    idle_s: float


def _own_schedstat() -> Path:
    return PROC / str(os.getpid()) / "task" / str(threading.get_native_id()) / "schedstat"


def own_clock() -> WorkerClock | None:
    """Return the clock of the thread that calls; None: the system does not tell."""
    try:
        running, runnable = _own_schedstat().read_text().split()[:2]
        return WorkerClock(int(running) * 1e-9, int(runnable) * 1e-9)
    except (OSError, ValueError):
        return None


def worker_clock(pid: int, thread_id: int | None = None, proc: Path = PROC) -> WorkerClock | None:
    """Return the clock of a process, or of one of its threads; None: it has ended."""
    folder = proc / str(pid)
    is_thread = thread_id is not None and thread_id != pid
    if is_thread:
        folder = folder / "task" / str(thread_id)
    try:
        running, runnable = (folder / "schedstat").read_text().split()[:2]
        cpu_s = int(running) * 1e-9
        if not is_thread:  # that is the main thread's
            fields = (folder / "stat").read_text().rpartition(") ")[2].split()
            cpu_s = max(cpu_s, (int(fields[11]) + int(fields[12])) * _TICK_S)
    except (OSError, ValueError, IndexError):
        return None
    return WorkerClock(cpu_s, int(runnable) * 1e-9)


def system_clock(proc: Path = PROC, cores: Collection[int] | None = None) -> SystemClock | None:
    """Return the clock of some cores together; None: the system does not tell.

    Args:
        proc: where /proc is.
        cores: their numbers; None: all.
    """
    ticks = [0] * 8
    try:
        for line in (proc / "stat").read_text().splitlines():
            name, *numbers = line.split()
            is_one = name[3:].isdecimal() and cores is not None and int(name[3:]) in cores
            if name.startswith("cpu") and (is_one if cores is not None else name == "cpu"):
                ticks = [a + int(b) for a, b in zip(ticks, numbers)]
    except (OSError, ValueError):
        return None
    return SystemClock(sum(ticks) * _TICK_S, (ticks[3] + ticks[4]) * _TICK_S)


def own_bytes(pid: int, proc: Path = PROC) -> int:
    """Return the bytes of memory that a process has and shares with no file; 0: it has ended."""
    try:
        words = (proc / str(pid) / "statm").read_text().split()
        return (int(words[1]) - int(words[2])) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0


def process_counts(pid: int, proc: Path = PROC) -> ProcessCounts:
    """Return what the system counts of a process and all its threads; zeros: it has ended."""
    try:
        fields = (proc / str(pid) / "stat").read_text().rpartition(") ")[2].split()
        return ProcessCounts(int(fields[9]), int(fields[11]) * _TICK_S, int(fields[12]) * _TICK_S)
    except (OSError, ValueError, IndexError):
        return ProcessCounts()
