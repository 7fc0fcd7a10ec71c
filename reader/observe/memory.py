"""Checks of memory: how much is left for batches, and what makes it short or slow.

Imports the machine, findings and memory limits. Each check reads files and changes nothing.
Sources: proc(5), the kernel's documents on vm sysctls and transparent huge pages.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

from reader.available_memory import available_bytes, meminfo_bytes, total_bytes
from reader.observe.finding import Finding
from reader.observe.machine import Machine, in_bytes, number_in, text_in

__all__ = [
    "file_memory",
    "huge_pages",
    "killed",
    "locked_memory",
    "memory",
    "overcommit",
    "shared_mount",
    "swap",
]

_SHORT = 0.1  # of all memory
_MUCH_SWAP = 0.05  # of all memory
_SMALL_MOUNT = 1 << 30
_MUCH_LOCKED = 1 << 30  # a few slots for each worker
_SMALL_SPACE = 16 << 30  # address space: torch alone takes several GiB
_UNASKED = ("always", "within_size", "force")  # policies that give huge pages unasked


def memory(machine: Machine) -> Iterator[Finding]:
    """Compare available memory with total memory, by machine and cgroup."""
    total = total_bytes(machine.proc, machine.cgroup)
    if total is None:
        yield Finding("note", "memory", "the system does not tell how much there is")
        return
    available = available_bytes(machine.proc, machine.cgroup)
    all_of_it = meminfo_bytes("MemTotal", machine.proc)
    what = "of the machine" if total == all_of_it else "that a memory cgroup allows"
    found = f"{in_bytes(available)} available of {in_bytes(total)} {what}"
    if available < _SHORT * total:
        yield Finding(
            "warning",
            "memory",
            f"{found}: batches made ahead may not fit, and the kernel may kill workers",
            "free memory or raise the limit; else lower num_workers, prefetch_factor or batch_size",
        )
    else:
        yield Finding("ok", "memory", found)


def killed(machine: Machine) -> Iterator[Finding]:
    """Check whether the kernel has killed processes of these groups because memory was short."""
    count = 0
    for group in machine.groups("memory"):
        name = "memory.oom_control" if group.version == 1 else "memory.events"
        for line in (text_in(group.folder / name) or "").splitlines():
            if line.startswith("oom_kill "):
                count = max(count, int(line.split()[1]))
    if count:
        yield Finding(
            "note",
            "killed processes",
            f"the kernel has killed {count} in this memory cgroup since it was made: a worker that"
            " ends by SIGKILL is most often one of these",
        )
    else:
        yield Finding("ok", "killed processes", "none for want of memory, as far as cgroups tell")


def swap(machine: Machine) -> Iterator[Finding]:
    """Check whether memory is in swap, which makes batches late."""
    total, free = (meminfo_bytes(name, machine.proc) for name in ("SwapTotal", "SwapFree"))
    machine_total = meminfo_bytes("MemTotal", machine.proc)
    if total is None or free is None or machine_total is None:
        yield Finding("note", "swap", "the system does not tell whether it is in use")
    elif total - free > _MUCH_SWAP * machine_total:
        yield Finding(
            "warning",
            "swap",
            f"{in_bytes(total - free)} of {in_bytes(total)} in use: memory was short, and what is"
            " read back from there comes late",
            "free memory, then empty it: swapoff -a && swapon -a",
        )
    elif total > free:
        yield Finding("ok", "swap", f"{in_bytes(total - free)} of {in_bytes(total)} in use")
    else:
        yield Finding("ok", "swap", "not in use")


def overcommit(machine: Machine) -> Iterator[Finding]:
    """Check whether the kernel refuses memory that is reserved and maybe never used."""
    mode = number_in(machine.proc / "sys/vm/overcommit_memory")
    if mode is None:
        yield Finding("note", "overcommit", "the system does not tell how it counts memory")
    elif mode == 2:
        yield Finding(
            "warning",
            "overcommit",
            "vm.overcommit_memory=2: a fork is charged with all of the trainer's memory, used or"
            " not, and fails beyond CommitLimit of /proc/meminfo",
            "sysctl vm.overcommit_memory=0, or start_method='forkserver'",
        )
    else:
        yield Finding("ok", "overcommit", "the kernel counts memory when it is used")


def huge_pages(machine: Machine) -> Iterator[Finding]:
    """Check whether memory files get huge pages unasked."""
    path = machine.sys / "kernel/mm/transparent_hugepage/shmem_enabled"
    policy = (text_in(path) or "").partition("[")[2].partition("]")[0]
    if policy in _UNASKED:
        yield Finding(
            "note",
            "huge pages",
            f"{policy!r} for shared memory: small batches take 2 MiB, and first writes may be"
            f" slower; 'advise' in {path} gives huge pages to large batches alone",
        )
    else:
        yield Finding("ok", "huge pages", f"{policy or 'unknown'!r} for shared memory")


def shared_mount(machine: Machine) -> Iterator[Finding]:
    """Check the size of /dev/shm, which other loaders need."""
    try:
        found = os.statvfs(machine.dev / "shm")
    except FileNotFoundError:
        yield Finding(
            "note", "/dev/shm", "there is none: reader needs none, and PyTorch's own loader does"
        )
        return
    nbytes = found.f_frsize * found.f_blocks
    if nbytes < _SMALL_MOUNT:
        yield Finding(
            "note",
            "/dev/shm",
            f"{in_bytes(nbytes)}: reader does not use it, and PyTorch's own loader needs more"
            " (docker run --shm-size)",
        )
    else:
        yield Finding("ok", "/dev/shm", f"{in_bytes(nbytes)}, which reader does not use")


def locked_memory(machine: Machine) -> Iterator[Finding]:
    """Check the limit on locked memory, which copies to a GPU use."""
    limit = machine.soft_limit("MEMLOCK")
    has_gpu = any((machine.dev / name).exists() for name in ("nvidia0", "kfd"))
    if limit is None or limit >= _MUCH_LOCKED:
        yield Finding("ok", "locked memory", "no limit" if limit is None else in_bytes(limit))
    elif has_gpu:
        yield Finding(
            "note",
            "locked memory",
            f"{in_bytes(limit)} at most, which most drivers do not heed; raise it (ulimit -l) where"
            " stats()['devices'] shows a lock_failure",
        )
    else:
        yield Finding(
            "ok", "locked memory", f"{in_bytes(limit)} at most, which matters with a GPU alone"
        )


def file_memory(machine: Machine) -> Iterator[Finding]:
    """Check the limits on file size and address space, which apply to memory files."""
    size, space = machine.soft_limit("FSIZE"), machine.soft_limit("AS")
    if size is not None:
        yield Finding(
            "warning",
            "file size",
            f"files of {in_bytes(size)} at most: all batches of a loader lie in one memory file",
            "raise the limit (ulimit -f unlimited)",
        )
    if space is not None and space < _SMALL_SPACE:
        yield Finding(
            "warning",
            "address space",
            f"{in_bytes(space)} at most: a loader reserves an eighth of it for its batches",
            "raise the limit (ulimit -v unlimited); limit memory by a cgroup instead",
        )
    if size is None and (space is None or space >= _SMALL_SPACE):
        yield Finding("ok", "file size", "memory files and address space are not limited")
