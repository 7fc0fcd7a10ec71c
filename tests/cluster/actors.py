"""The actors of this process's cluster: other clusters of the machine are left alone."""

from __future__ import annotations

import contextlib
from typing import Any

import psutil

__all__ = ["actors", "lander_of"]


def actors() -> list[int]:
    """The processes of remote workers."""
    found = []
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if process.cmdline()[:1] and process.cmdline()[0].startswith("ray::RemoteWorker"):
                found.append(process.pid)
    return found


def lander_of(loader: Any) -> int:
    """The process beside this one that brings the batches of a loader."""
    pid: int = loader._engine._cache.newest._processes._processes[0].pid
    return pid
