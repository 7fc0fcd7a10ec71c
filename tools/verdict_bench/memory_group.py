"""A memory cgroup for a program, which enters it and sets its limit.

Imports what finds the groups of this process. The process that starts the program makes the group
and removes it when the program has ended; VERDICT_BENCH_CGROUP says to the program where it is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from reader.cgroups import ControlGroup, groups_of
from tools.verdict_bench.works import rest

__all__ = ["VARIABLE", "MemoryGroup", "made_group"]

VARIABLE = "VERDICT_BENCH_CGROUP"
_PATIENCE_S = 10  # that a killed process may take to leave its group


class MemoryGroup:
    """A group as its files are named in version 1 or 2.

    Args:
        folder: of the group.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._processes = folder / "cgroup.procs"
        self._is_old = (folder / "memory.limit_in_bytes").exists()
        self._limit = folder / ("memory.limit_in_bytes" if self._is_old else "memory.max")
        self._used = folder / ("memory.usage_in_bytes" if self._is_old else "memory.current")

    @property
    def is_usable(self) -> bool:
        """Whether this process may set its limit, and enter it."""
        return all(os.access(path, os.W_OK) for path in (self._limit, self._processes))

    def enter(self) -> None:
        """Move this process into it, and with it all processes started from now on."""
        self._processes.write_text(str(os.getpid()))

    def used_bytes(self) -> int:
        """Return the memory of its processes, including files kept in memory."""
        return int(self._used.read_text())

    def limit(self, nbytes: int | None) -> None:
        """Limit the memory of its processes; None: no limit."""
        most = "-1" if self._is_old else "max"
        self._limit.write_text(most if nbytes is None else str(nbytes))

    def remove(self) -> None:
        """End the processes that are left in it, and remove it.

        Raises:
            OSError: they did not leave it in time.
        """
        until = time.monotonic() + _PATIENCE_S
        while True:
            for pid in self._processes.read_text().split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            try:
                self.folder.rmdir()
            except OSError:
                if time.monotonic() > until:
                    raise
                rest(0.02)
            else:
                return


@contextmanager
def made_group(groups: list[ControlGroup] | None = None) -> Iterator[MemoryGroup]:
    """Make a group in the nearest of this process's own in which one may be made; remove it after.

    Where VERDICT_BENCH_CGROUP names a group, that is used, and left as it is.

    Args:
        groups: in which one is tried; None: those around this process.

    Raises:
        OSError: there is none that may be used.
    """
    named = os.environ.get(VARIABLE)
    if named:
        yield _usable(MemoryGroup(Path(named)))
        return
    group = _make(groups_of("memory") if groups is None else groups)
    os.environ[VARIABLE] = str(group.folder)
    try:
        yield group
    finally:
        del os.environ[VARIABLE]
        group.remove()


def _make(groups: list[ControlGroup]) -> MemoryGroup:
    for around in groups:
        folder = around.folder / f"verdict-bench-{os.getpid()}"
        try:
            folder.mkdir()
        except OSError:
            continue
        try:
            return _usable(MemoryGroup(folder))
        except OSError:  # as of version 2, where the one around it gives it no memory controller
            folder.rmdir()
    raise OSError("there is no memory cgroup in which one may be made")


def _usable(group: MemoryGroup) -> MemoryGroup:
    if not group.is_usable:
        raise OSError(f"{group.folder} is no memory cgroup that may be limited and entered")
    return group
