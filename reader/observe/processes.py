"""Checks for worker processes: descriptors, processes, system calls, start method.

Imports the machine, findings, and the remedies of errors. A check of a system call makes the call,
and closes its result. Sources: memfd_create(2), pidfd_open(2), seccomp(2), cgroup-v1/pids.
"""

from __future__ import annotations

import multiprocessing
import os
import re
import resource
from collections.abc import Callable, Iterator

from reader.errors import remedy_for
from reader.observe.finding import Finding
from reader.observe.machine import Machine, number_in, text_in

__all__ = ["kernel", "open_files", "process_count", "start_method", "system_calls"]

_TOO_FEW_FILES, _FEW_FILES = 64, 1024
_TOO_FEW_PROCESSES, _FEW_PROCESSES = 8, 128  # threads count too
_OLDEST_KERNEL = (5, 9)


def open_files(machine: Machine) -> Iterator[Finding]:
    """Compare the limit on open files with the descriptors of workers."""
    soft, hard = machine.soft_limit("NOFILE"), machine.limits["NOFILE"][1]
    if soft is None or soft >= _FEW_FILES:
        said = "no limit" if soft is None else f"{soft} at most"
        yield Finding("ok", "open files", said)
        return
    most = "any number" if hard == resource.RLIM_INFINITY else str(hard)
    yield Finding(
        "error" if soft < _TOO_FEW_FILES else "warning",
        "open files",
        f"{soft} at most: each worker takes 3 of the trainer's, beside those of its libraries",
        f"ulimit -n 65536 (without privileges it may be raised to {most})",
    )


def process_count(machine: Machine) -> Iterator[Finding]:
    """Check how many processes and threads may still be started, by cgroup and user."""
    left = []
    for group in machine.groups("pids"):
        most = number_in(group.folder / "pids.max")
        if most is not None:
            left.append(most - (number_in(group.folder / "pids.current") or 0))
    by_user = machine.soft_limit("NPROC")
    if left and min(left) < _FEW_PROCESSES:
        yield Finding(
            "error" if min(left) < _TOO_FEW_PROCESSES else "warning",
            "processes",
            f"{max(0, min(left))} more may be started in this cgroup, threads included",
            "raise pids.max of the cgroup (docker run --pids-limit), or lower num_workers",
        )
    elif by_user is not None and by_user < _FEW_PROCESSES and os.geteuid() != 0:
        yield Finding(
            "warning",
            "processes",
            f"{by_user} at most for all programs of this user, threads included",
            "raise the limit (ulimit -u), or lower num_workers",
        )
    else:
        said = f"{min(left)} more may be started" if left else "no cgroup limits their number"
        yield Finding("ok", "processes", said)


def kernel(machine: Machine) -> Iterator[Finding]:
    """Compare the kernel with the oldest supported one."""
    release = text_in(machine.proc / "sys/kernel/osrelease") or os.uname().release
    numbers = re.match(r"(\d+)\.(\d+)", release)
    if numbers and (int(numbers[1]), int(numbers[2])) < _OLDEST_KERNEL:
        yield Finding(
            "error",
            "kernel",
            f"Linux {release}, and reader needs 5.9 or later",
            "run on a system with a newer kernel; a container has that of its host",
        )
    else:
        yield Finding("ok", "kernel", f"Linux {release}")


def system_calls(machine: Machine) -> Iterator[Finding]:
    """Make each system call that a loader requires."""
    calls: dict[str, Callable[[], int]] = {
        "memfd_create": lambda: os.memfd_create("reader-doctor"),
        "eventfd": lambda: os.eventfd(0),
        "pidfd_open": lambda: os.pidfd_open(os.getpid()),
    }
    is_noexec = number_in(machine.proc / "sys/vm/memfd_noexec") == 2
    refused = False
    for name, call in calls.items():
        try:
            os.close(call())
        except (OSError, AttributeError) as error:  # Python was built where there was none
            remedy = remedy_for(error, "run on Linux 5.9 or later")
            if name == "memfd_create" and is_noexec:
                remedy = "sysctl vm.memfd_noexec=1: 2 refuses every memory file that could be run"
            refused = True
            yield Finding("error", name, f"the system refuses it: {error}", remedy)
    status = text_in(machine.proc / "self/status") or ""
    has_filter = re.search(r"^Seccomp:\s*[12]", status, re.MULTILINE) is not None
    if not refused:
        said = ", beside a seccomp filter" if has_filter else ""
        yield Finding("ok", "system calls", f"{', '.join(calls)} work{said}")


def start_method(machine: Machine) -> Iterator[Finding]:  # noqa: ARG001  as every check
    """Report the default start method of workers."""
    # reading the default must not fix it
    method = multiprocessing.get_start_method(allow_none=True)
    method = method or multiprocessing.get_all_start_methods()[0]
    if method == "fork":
        yield Finding(
            "note",
            "start method",
            "fork, Python's default before 3.14, is quick; with JAX, gRPC or threads that hold"
            " locks pass start_method='forkserver', or a worker may hang",
        )
    else:
        yield Finding(
            "note",
            "start method",
            f"{method}: datasets are pickled, and a program makes its loaders below"
            ' `if __name__ == "__main__":`',
        )
