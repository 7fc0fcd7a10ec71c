"""How much memory this machine, or the cgroup around this process, has and can still give.

Imports the groups and the standard library, and keeps no state: files under /proc and /sys are read
each time. Sources: proc(5), the kernel's cgroup-v1/memory and cgroup-v2 documents.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from reader.cgroups import CGROUP, PROC, ControlGroup, groups_of

__all__ = ["MemoryLimit", "available_bytes", "meminfo_bytes", "tightest_limit", "total_bytes"]

_HEADROOM = 16 << 20  # what other processes of the group may need meanwhile
# by version: the files with a limit, the one of what is in use, and the lines of memory.stat that
# say how much of that can be reclaimed: of the files' pages those in active use, too, as
# MemAvailable counts them; a dataset that is mapped may fill a group with such
_FILES = {
    1: (
        ("memory.limit_in_bytes",),
        "memory.usage_in_bytes",
        ("total_inactive_file", "total_active_file"),
    ),
    2: (("memory.max", "memory.high"), "memory.current", ("inactive_file", "active_file")),
}


class MemoryLimit(NamedTuple):
    """What can still be allocated within one limit.

    Attributes:
        available_bytes: before the limit is reached; below 0: it is.
        limit_bytes: how much there may be in all.
        file: which says so; None: it is the machine's memory.
    """

    available_bytes: int
    limit_bytes: int
    file: Path | None


def available_bytes(proc: Path = PROC, root: Path = CGROUP) -> int:
    """Return the bytes that can be allocated before the machine or a memory cgroup is full.

    The smallest of what /proc/meminfo calls available and, for each memory cgroup from this
    process's own to the root, its limit minus what is in use and cannot be reclaimed. Of cgroup v2
    `memory.high` is a limit too: beyond it the kernel stalls the group. A headroom of 16 MiB,
    or 2 % of a cgroup's limit where that is more, is subtracted. Without /proc the groups at the
    root count, which in a container are its own; a file that cannot be read limits nothing.

    Args:
        proc: where /proc is.
        root: where the file system of the groups is.
    """
    return max(0, _tightest_limit(proc, root).available_bytes)


def tightest_limit(proc: Path = PROC, root: Path = CGROUP) -> MemoryLimit:
    """Return the limit that is reached first: see `available_bytes`."""
    found = _tightest_limit(proc, root)
    if found.file is None:
        found = found._replace(limit_bytes=meminfo_bytes("MemTotal", proc) or 1 << 62)
    return found


def _tightest_limit(proc: Path, root: Path) -> MemoryLimit:
    """As `tightest_limit`, without how much memory the machine has in all."""
    machine = meminfo_bytes("MemAvailable", proc)
    left = 1 << 62 if machine is None else machine - _HEADROOM
    found = [MemoryLimit(left, 1 << 62, None)]
    for group in groups_of("memory", proc, root):
        limits = _limits(group)
        used = _used(group) if limits else None
        if used is not None:
            for file, limit in limits:
                left = limit - used - max(_HEADROOM, limit // 50)
                found.append(MemoryLimit(left, limit, file))
    return min(found, key=lambda limit: limit.available_bytes)


def total_bytes(proc: Path = PROC, root: Path = CGROUP) -> int | None:
    """Return the machine's memory, or the smallest limit of a memory cgroup; None: not known.

    Args:
        proc: where /proc is.
        root: where the file system of the groups is.
    """
    machine = meminfo_bytes("MemTotal", proc)
    found = [] if machine is None else [machine]
    for group in groups_of("memory", proc, root):
        found += [limit for _, limit in _limits(group)]
    return min(found, default=None)


def meminfo_bytes(name: str, proc: Path = PROC) -> int | None:
    """Return what /proc/meminfo says of one kind of memory; None: nothing."""
    try:
        with (proc / "meminfo").open() as file:
            for line in file:
                if line.startswith(f"{name}:"):
                    return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):  # no /proc is mounted, or it is another system's
        pass
    return None


def _limits(group: ControlGroup) -> list[tuple[Path, int]]:
    """Return the limits that a group has, each with the file that says so."""
    found = []
    for name in _FILES[group.version][0]:
        try:
            text = (group.folder / name).read_text().strip()
            if text != "max" and int(text) < 1 << 60:
                found.append((group.folder / name, int(text)))
        except (OSError, ValueError):
            continue
    return found


def _used(group: ControlGroup) -> int | None:
    """Return the bytes of a group that cannot be reclaimed."""
    _, usage, reclaimable = _FILES[group.version]
    try:
        used = int((group.folder / usage).read_text())
        for line in (group.folder / "memory.stat").read_text().splitlines():
            name, _, nbytes = line.partition(" ")
            if name in reclaimable:
                used -= int(nbytes)
    except (OSError, ValueError):
        return None
    return used
