"""Looks at remote workers from their node: at their current batch, or the last one before death.

Imports the core; not Ray. The lander's own actor, one on each node where a batch is slow or a
worker died. It maps the memory of each worker, which survives the worker's death. It refuses other
memory and that of other users, since a pid may be used again.
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

    def attach(self, worker_id: int, pid: int, arena: int) -> None:
        """Begin to look at a worker.

        Args:
            worker_id: its number.
            pid: its process.
            arena: the descriptor of its memory there.

        Raises:
            OSError: the process is gone, or the system refuses the mapping.
        """
        fd = open_regular(f"/proc/{pid}/fd/{arena}", os.O_RDWR)
        link = Path(f"/proc/self/fd/{fd}").readlink()
        if os.fstat(fd).st_uid != os.geteuid() or not str(link).startswith(f"/memfd:{FILE_NAME} "):
            os.close(fd)
            raise ProcessLookupError(errno.ESRCH, f"process {pid} is another one now, with {link}")
        self._arenas[worker_id] = pid, Arena.attach(fd)

    def look(self, worker_id: int, pid: int) -> tuple[int, int, int, float] | None:
        """Return a worker's current or last batch; see `progress_of`. KeyError: unknown worker."""
        found, arena = self._arenas[worker_id]
        if found != pid:
            raise KeyError(worker_id)
        return progress_of(arena)
