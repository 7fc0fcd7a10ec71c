"""Find the processes that one launcher started together: the ranks of a training.

Imports the standard library alone; torch is asked if it is imported. Reads the environment and
/proc at each call, and keeps no state.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["launch"]

# variables with the number of processes, and those that distinguish concurrent launches
_LAUNCHERS = (
    ("WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT")),
    ("PADDLE_TRAINERS_NUM", ("PADDLE_TRAINER_ENDPOINTS",)),
    ("SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # ranks of one host have one parent
_START_TIME = 19  # field of /proc/PID/stat after the name (proc(5))


def launch() -> str:
    """Return a name that the ranks of one launch on this host share.

    A process that is no rank shares it with no other.
    """
    for world, names in _LAUNCHERS:
        facts = [os.environ.get(name, "") for name in names]
        if _is_many(world) and all(facts):
            return f"{world} {facts}"
    if any(map(_is_many, _MPI)):
        return _process(os.getppid())
    parent = multiprocessing.parent_process()
    if parent is not None and parent.pid is not None and _is_torch_rank():
        return _process(parent.pid)  # torch.multiprocessing.spawn, for instance
    return _process(os.getpid())


def _is_many(name: str) -> bool:
    count = os.environ.get(name, "")
    return count.isdecimal() and int(count) > 1


def _is_torch_rank() -> bool:
    distributed: Any = sys.modules.get("torch.distributed")
    return (
        distributed is not None
        and distributed.is_available()
        and distributed.is_initialized()
        and distributed.get_world_size() > 1
    )


def _process(pid: int) -> str:
    """Return a name that distinguishes a process from a later one with the same pid."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        fields = []
    return f"{pid} {fields[_START_TIME : _START_TIME + 1]}"
