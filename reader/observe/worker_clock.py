"""What the system knows of the time of workers: computing, waiting for a core, or blocked.

Imports where /proc is. Sources: proc(5), the kernel's document on scheduler statistics.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from reader.cgroups import PROC

__all__ = ["SystemClock", "WorkerClock", "system_clock", "worker_clock"]

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")


class WorkerClock(NamedTuple):
    """Seconds since a process or thread began.

    Attributes:
        cpu_s: in which it computed; of a process, all of its threads.
        runnable_s: in which it could have computed, and no core was free.
    """

    cpu_s: float
    runnable_s: float


class SystemClock(NamedTuple):
    """Seconds of all cores since the machine began: in all, and those in which they were idle."""

    total_s: float
    idle_s: float


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


def system_clock(proc: Path = PROC) -> SystemClock | None:
    """Return the clock of all cores; None: the system does not tell."""
    try:
        line = (proc / "stat").read_text().split("\n", 1)[0]
        ticks = [int(each) for each in line.split()[1:9]]
    except (OSError, ValueError):
        return None
    return SystemClock(sum(ticks) * _TICK_S, (ticks[3] + ticks[4]) * _TICK_S)
