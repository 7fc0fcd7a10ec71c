"""How much of the processors' time this process may use: by affinity, and by quota.

Imports the groups and the standard library, and keeps no state. Sources: sched_getaffinity(2), the
kernel's documents on cgroup-v1 and cgroup-v2 (cpu.cfs_quota_us, cpu.max).
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from reader.cgroups import CGROUP, PROC, ControlGroup, groups_of

__all__ = ["core_quota", "local_ranks", "usable_cores"]


def usable_cores(proc: Path = PROC, root: Path = CGROUP) -> float:
    """Return how many processors' time this process may use; at least a part of one.

    Args:
        proc: where /proc is.
        root: where the file system of the groups is.
    """
    affinity = float(len(os.sched_getaffinity(0)))
    with contextlib.suppress(OSError, ValueError):  # as without a quota
        quota = core_quota(proc, root)
        return affinity if quota is None else min(affinity, quota)
    return affinity


def local_ranks() -> int:
    """Return how many ranks of one training this machine has, as the launcher says; else 1."""
    for name in ("LOCAL_WORLD_SIZE", "PADDLE_LOCAL_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"):
        count = os.environ.get(name, "")
        if count.isdecimal() and int(count) > 0:
            return int(count)
    return 1


def core_quota(proc: Path = PROC, root: Path = CGROUP) -> float | None:
    """Return how many processors' time the control groups give; None: that of all.

    Raises:
        OSError: a file of the groups cannot be read.
        ValueError: it holds something else than a quota.
    """
    found = [_quota_of(group) for group in groups_of("cpu", proc, root)]
    return min((quota for quota in found if quota is not None), default=None)


def _quota_of(group: ControlGroup) -> float | None:
    names = ("cpu.cfs_quota_us", "cpu.cfs_period_us") if group.version == 1 else ("cpu.max",)
    path = group.folder / names[0]
    try:
        words = [word for name in names for word in (group.folder / name).read_text().split()]
    except FileNotFoundError:
        return None
    if not words or words[0] in ("max", "-1"):
        return None
    try:
        return int(words[0]) / int(words[1])
    except (ValueError, IndexError, ZeroDivisionError):
        raise ValueError(f"{path} holds {' '.join(words)!r}, which is no quota") from None
