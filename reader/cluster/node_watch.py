"""Looks at remote workers from their node: at what they are, or were when they died.

Imports the core; not Ray. An actor of the lander's own, one on each node on which a batch takes
long or a worker died. It maps the memory of each worker, which stays when that is killed; what is
no such memory, or another user's, is refused: a process may have a number that another had.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path

from reader._core.memory.arena import Arena
from reader._core.memory.arena_view import FILE_NAME
from reader._core.wire.relay import progress_of
from reader.files import open_regular

__all__ = ["NodeWatch"]


class NodeWatch:
    """Looks at the workers of one node."""

    def __init__(self) -> None:
        self._arenas: dict[int, tuple[int, Arena]] = {}

    def attach(self, worker: int, pid: int, arena: int) -> None:
        """Look at a worker from now on.

        Args:
            worker: its number.
            pid: its process.
            arena: the descriptor of its memory there.

        Raises:
            OSError: the process is gone, or the system refuses that.
        """
        fd = open_regular(f"/proc/{pid}/fd/{arena}", os.O_RDWR)
        link = Path(f"/proc/self/fd/{fd}").readlink()
        if os.fstat(fd).st_uid != os.geteuid() or not str(link).startswith(f"/memfd:{FILE_NAME} "):
            os.close(fd)
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is another one now, with {link}")
        self._arenas[worker] = pid, Arena.attach(fd)

    def look(self, worker: int, pid: int) -> tuple[int, int, int, float] | None:
        """Return what a worker is at, or was when it died; see `progress_of`. KeyError: unknown."""
        found, arena = self._arenas[worker]
        if found != pid:
            raise KeyError(worker)
        return progress_of(arena)
