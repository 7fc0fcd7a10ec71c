"""How much memory this machine, or the cgroup around this process, can still give.

Imports the standard library alone and keeps no state: files under /proc and /sys are read each
time. Sources: proc(5), the kernel's cgroup-v1/memory and cgroup-v2 documents.
"""

from __future__ import annotations

from pathlib import Path

__all__ = ["available_bytes"]

_PROC = Path("/proc")
_CGROUP = Path("/sys/fs/cgroup")
_HEADROOM = 16 << 20  # what other processes of the group may need meanwhile


def available_bytes() -> int:
    """Return the bytes that can be allocated before the machine or a memory cgroup is full.

    The smallest of what /proc/meminfo calls available and, for each memory cgroup from this
    process's own to the root, its limit minus what is in use and cannot be reclaimed. Of cgroup v2
    `memory.high` is a limit too: beyond it the kernel stalls the group. A headroom of 16 MiB,
    or 2 % of a cgroup's limit where that is more, is subtracted. Without /proc the groups at the
    root count, which in a container are its own; a file that cannot be read limits nothing.
    """
    found = [_machine_available()]
    try:
        lines = (_PROC / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", "1:memory:/"]
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            for root in (_CGROUP, _CGROUP / "unified"):
                for limit in ("memory.max", "memory.high"):
                    found += _chain(root, path, limit, "memory.current", "inactive_file ")
        elif "memory" in controllers.split(","):
            found += _chain(_CGROUP / "memory", path, "memory.limit_in_bytes",
                            "memory.usage_in_bytes", "total_inactive_file ")  # fmt: skip
    return max(0, min(found))


def _machine_available() -> int:
    try:
        with (_PROC / "meminfo").open() as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) * 1024 - _HEADROOM
    except (OSError, ValueError, IndexError):  # no /proc is mounted, or it is another system's
        pass
    return 1 << 62


def _chain(root: Path, path: str, limit: str, usage: str, reclaimable: str) -> list[int]:
    """Return the free bytes of each group from `path` up to `root` that has a limit."""
    found = []
    group = root / path.lstrip("/")
    if not group.is_dir():  # a container sees its own group as the root
        group = root
    while group.is_relative_to(root):
        available = _group_available(group, limit, usage, reclaimable)
        if available is not None:
            found.append(available)
        group = group.parent
    return found


def _group_available(group: Path, limit: str, usage: str, reclaimable: str) -> int | None:
    try:
        text = (group / limit).read_text().strip()
        if text == "max" or int(text) >= 1 << 60:
            return None
        used = int((group / usage).read_text())
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(reclaimable):
                used -= int(line.split()[1])
        return int(text) - used - max(_HEADROOM, int(text) // 50)
    except (OSError, ValueError):
        return None
