"""The doctor: every check of the machine and the environment, one after the other.

Imports the checks. To add one, write a function that takes a `Machine` and yields findings, and
name it in `CHECKS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence

from reader.observe import memory, packages, processes, processors, trial
from reader.observe.finding import Finding
from reader.observe.machine import Machine

__all__ = ["CHECKS", "Check", "examine"]

Check = Callable[[Machine], Iterable[Finding]]

CHECKS: tuple[Check, ...] = (
    packages.python,
    packages.versions,
    packages.namesake,
    packages.core,
    packages.images,
    packages.opencv,
    packages.paddle,
    processors.cores,
    processors.throttling,
    processors.thread_pools,
    processors.frequency,
    processors.nodes,
    processors.instructions,
    memory.memory,
    memory.killed,
    memory.swap,
    memory.overcommit,
    memory.file_memory,
    memory.huge_pages,
    memory.locked_memory,
    memory.shared_mount,
    processes.kernel,
    processes.system_calls,
    processes.open_files,
    processes.process_count,
    processes.start_method,
    trial.trial_run,
)


def examine(machine: Machine | None = None, checks: Sequence[Check] = CHECKS) -> list[Finding]:
    """Return the findings of all checks. Takes about a second, most of it for the trial run.

    Args:
        machine: None: this process's machine.
        checks: the checks, in order.
    """
    here = Machine() if machine is None else machine
    return [finding for check in checks for finding in _found(check, here)]


def _found(check: Check, machine: Machine) -> Iterator[Finding]:
    try:
        yield from check(machine)
    except (OSError, ValueError) as error:  # a file that cannot be read, or has invalid content
        name = getattr(check, "__name__", "check").replace("_", " ")
        yield Finding("note", name, f"could not be looked at: {error}")
