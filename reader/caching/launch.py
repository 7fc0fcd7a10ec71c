"""Which processes one launcher has started together: the ranks of a training.

Imports the standard library alone; torch is asked where it is imported. Reads the environment and
/proc at each call, and keeps no state.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from typing import Any

__all__ = ["launch"]

# how many processes there are, and what distinguishes a launch from all others of that time
_LAUNCHERS = (
    ("WORLD_SIZE", ("MASTER_ADDR", "MASTER_PORT")),
    ("PADDLE_TRAINERS_NUM", ("PADDLE_TRAINER_ENDPOINTS",)),
    ("SLURM_NTASKS", ("SLURM_JOB_ID", "SLURM_STEP_ID")),
)
_MPI = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE")  # whose ranks of one host have one parent
_START_TIME = 19  # of what /proc/PID/stat has behind the name (proc(5))


def launch() -> str:
    """Return what the ranks of one launch on this host have in common.

    A process that is no rank has it in common with no other.
    """
    for world, names in _LAUNCHERS:
        told = [os.environ.get(name, "") for name in names]
        if _is_many(world) and all(told):
            return f"{world} {told}"
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
    """Return what distinguishes a process from a later one of the same number."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        fields = []
    return f"{pid} {fields[_START_TIME : _START_TIME + 1]}"
