"""The control groups around this process: the folders of their files.

Imports the standard library alone and keeps no state: files under /proc and /sys are read each
time. Sources: cgroups(7), the kernel's documents on cgroup-v1 and cgroup-v2.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

__all__ = ["CGROUP", "PROC", "ControlGroup", "groups_of"]

PROC = Path("/proc")
CGROUP = Path("/sys/fs/cgroup")


class ControlGroup(NamedTuple):
    """A folder with the files of a group, and the version (1 or 2) that says how they are named."""

    folder: Path
    version: int


def groups_of(controller: str, proc: Path = PROC, root: Path = CGROUP) -> list[ControlGroup]:
    """Return the groups that may limit this process, each before the one that it lies in.

    A container sees its own group as the root, which counts where the group's path leads nowhere,
    and where /proc does not name it.

    Args:
        controller: such as "memory" or "cpu".
        proc: where /proc is.
        root: where the file system of the groups is.
    """
    try:
        lines = (proc / "self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/", f"1:{controller}:/"]
    found = []
    for line in lines:
        _, names, path = line.split(":", 2)
        if names == "":
            for top in (root, root / "unified"):
                found += _chain(top, path, 2)
        elif controller in names.split(","):
            found += _chain(root / controller, path, 1)
    return found


def _chain(top: Path, path: str, version: int) -> list[ControlGroup]:
    folder = top / path.lstrip("/")
    if not folder.is_dir():
        folder = top
    found = []
    while folder.is_relative_to(top):
        found.append(ControlGroup(folder, version))
        folder = folder.parent
    return found
