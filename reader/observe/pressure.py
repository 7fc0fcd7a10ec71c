"""Memory pressure: how long tasks waited for memory, and how often a limit was reached.

Imports the machine. It reads files under /proc and /sys and keeps no state. Sources: the kernel's
documents on pressure stall information, cgroup-v1/memory and cgroup-v2.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reader.observe.machine import Machine, text_in

__all__ = ["MemoryPressure", "memory_pressure"]


class MemoryPressure(NamedTuple):
    """Counts since the machine, or the group, began.

    Attributes:
        stall_s: seconds in which a task waited for memory; None: unknown.
        events: how often a limit of the groups was reached: memory.max or memory.high, in version 1
            the limit.
    """

    stall_s: float | None
    events: int


def memory_pressure(machine: Machine) -> MemoryPressure:
    """Return the memory pressure of groups and machine.

    Stalls are those of the nearest group that reports them; version 1 has none, and then they are
    the machine's. Events are those of all groups, since each counts only its own limit.
    """
    stall_s: float | None = None
    events = 0
    for group in machine.groups("memory"):
        events += _events(group.folder)
        if stall_s is None:
            stall_s = _stall_s(group.folder / "memory.pressure")
    if stall_s is None:
        stall_s = _stall_s(machine.proc / "pressure/memory")
    return MemoryPressure(stall_s, events)


def _stall_s(path: Path) -> float | None:
    try:
        for line in (text_in(path) or "").splitlines():
            if line.startswith("some "):
                return int(line.rpartition("total=")[2]) * 1e-6
    except (OSError, ValueError):  # the kernel has PSI switched off
        pass
    return None


def _events(folder: Path) -> int:
    try:
        failures = text_in(folder / "memory.failcnt")
        if failures is not None:
            return int(failures)
        lines = (text_in(folder / "memory.events.local") or "").splitlines()
        words = (line.split() for line in lines)
        return sum(int(pair[1]) for pair in words if pair[0] in ("high", "max"))
    except (OSError, ValueError, IndexError):
        return 0
