"""The machine as checks see it: system folders, and the limits of this process.

Imports the groups and the standard library, and keeps no state: files are read each time. Sources:
proc(5), cgroups(7), getrlimit(2).
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from reader.cgroups import CGROUP, PROC, ControlGroup, groups_of

__all__ = ["Machine", "in_bytes", "number_in", "text_in"]

_LIMITS = ("AS", "FSIZE", "MEMLOCK", "NOFILE", "NPROC")


def _limits() -> dict[str, tuple[int, int]]:
    return {name: resource.getrlimit(getattr(resource, f"RLIMIT_{name}")) for name in _LIMITS}


@dataclass(frozen=True)
class Machine:
    """The machine as this process sees it; tests make one from other folders.

    Args:
        proc, sys, dev: where /proc, /sys and /dev are.
        cgroup: where the file system of the control groups is.
        environ: the variables of the environment.
        processors: how many the machine has.
        affinity: how many processors this process may run on.
        limits: of the process, soft and hard, by the ends of their names: "NOFILE".
    """

    proc: Path = PROC
    sys: Path = Path("/sys")
    dev: Path = Path("/dev")
    cgroup: Path = CGROUP
    environ: Mapping[str, str] = field(default_factory=lambda: os.environ)
    processors: int = field(default_factory=lambda: os.cpu_count() or 1)
    affinity: int = field(default_factory=lambda: len(os.sched_getaffinity(0)))
    limits: Mapping[str, tuple[int, int]] = field(default_factory=_limits)

    def groups(self, controller: str) -> list[ControlGroup]:
        """Return the groups of a controller, from this process's own to the root."""
        return groups_of(controller, self.proc, self.cgroup)

    def soft_limit(self, name: str) -> int | None:
        """Return a limit of this process; None: there is none."""
        soft = self.limits[name][0]
        return None if soft == resource.RLIM_INFINITY else soft


def text_in(path: Path) -> str | None:
    """Return the stripped text of a file; None: it does not exist.

    Raises:
        OSError: it exists and cannot be read.
    """
    try:
        return path.read_text(errors="replace").strip()
    except (FileNotFoundError, NotADirectoryError):
        return None


def number_in(path: Path) -> int | None:
    """Return the number in a file; None: it does not exist, or says "max".

    Raises:
        OSError: it exists and cannot be read.
        ValueError: it is no number.
    """
    text = text_in(path)
    if text is None or text == "max":
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{path} holds {text!r}, which is no number") from None


def in_bytes(nbytes: int) -> str:
    """Return a number of bytes in readable units, such as "1.5 GiB"."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if nbytes >= size:
            return f"{round(nbytes / size, 1):g} {unit}"
    return f"{nbytes} bytes"
