"""Checks of processors: how many workers can use, and what slows them.

Imports the machine and findings; threadpoolctl where it is installed. Each check reads files and
changes nothing. Sources: the kernel's documents on cgroup-v2, sched-bwc, cpufreq and numa.
"""

from __future__ import annotations

import platform
import re
from collections.abc import Iterator

from reader.cores import core_quota
from reader.observe.finding import Finding
from reader.observe.machine import Machine, text_in

__all__ = [
    "cores",
    "frequency",
    "instructions",
    "nodes",
    "quota_of",
    "stopped_s",
    "thread_pools",
    "throttling",
    "usable_cores",
]

_OFTEN = 0.05  # share of periods that makes batches late
# of OpenMP, MKL and OpenBLAS; the other two heed the first where theirs is not set
_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def cores(machine: Machine) -> Iterator[Finding]:
    """Compare the CPU quota with the visible processors."""
    quota, seen, all_cores = quota_of(machine), machine.affinity, machine.processors
    if quota is not None and quota < seen:
        yield Finding(
            "warning",
            "cores",
            f"a cgroup gives the time of {quota:g} of {seen} processors; libraries start threads"
            " for all of them",
            f"pass at most num_workers={max(1, int(quota))} and set OMP_NUM_THREADS=1, or raise the"
            " quota (docker run --cpus)",
        )
    elif seen < all_cores:
        yield Finding(
            "note",
            "cores",
            f"{seen} of {all_cores} processors may be used: choose num_workers by"
            " len(os.sched_getaffinity(0)), for os.cpu_count() counts all",
        )
    elif seen == 1:
        yield Finding(
            "note", "cores", "1 processor: workers and the training step take turns on it"
        )
    else:
        yield Finding("ok", "cores", f"{seen} processors, without a quota")


def throttling(machine: Machine) -> Iterator[Finding]:
    """Check how often the cgroup was throttled by its quota."""
    worst, counts = 0.0, (0, 0)
    for group in machine.groups("cpu"):
        stat = _pairs(text_in(group.folder / "cpu.stat"))
        periods, throttled = stat.get("nr_periods", 0), stat.get("nr_throttled", 0)
        if periods and throttled / periods > worst:
            worst, counts = throttled / periods, (throttled, periods)
    if worst > _OFTEN:
        yield Finding(
            "warning",
            "throttling",
            f"the cgroup was stopped in {worst:.0%} of its periods ({counts[0]} of {counts[1]}):"
            " more threads ran than its quota of processors allows",
            "lower num_workers, set OMP_NUM_THREADS=1, or raise the quota",
        )
    elif counts[0]:
        yield Finding(
            "note",
            "throttling",
            f"the cgroup was stopped in {counts[0]} of {counts[1]} periods: for a moment more"
            " threads ran than its quota of processors allows",
        )
    else:
        yield Finding("ok", "throttling", "no cgroup was stopped for using up a quota")


def thread_pools(machine: Machine) -> Iterator[Finding]:
    """Check how many threads a dataset's libraries start in each worker."""
    usable = usable_cores(machine)
    for name in _THREADS:
        value = machine.environ.get(name, "").split(",")[0].strip()
        if value.isdecimal() and int(value) > usable:
            yield Finding(
                "warning",
                "thread pools",
                f"{name}={value}, and {usable:g} processors: each worker starts so many threads",
                f"export {name}=1: workers are what computes side by side",
            )
            return
    value = machine.environ.get(_THREADS[0], "").strip()
    if value:
        yield Finding("ok", "thread pools", f"{_THREADS[0]}={value}{_loaded_pools()}")
    elif machine.affinity > 1:  # libraries ignore a quota
        yield Finding(
            "note",
            "thread pools",
            "each worker that computes by BLAS or OpenMP (torch excepted) starts"
            f" {machine.affinity} threads unless OMP_NUM_THREADS=1 is exported{_loaded_pools()}",
        )
    else:
        yield Finding("ok", "thread pools", "one processor: libraries start no threads")


def frequency(machine: Machine) -> Iterator[Finding]:
    """Check the frequency governor of the processors."""
    governors = {
        text
        for path in sorted((machine.sys / "devices/system/cpu").glob("cpu[0-9]*"))
        if (text := text_in(path / "cpufreq/scaling_governor")) is not None
    }
    if "powersave" in governors:
        yield Finding(
            "note",
            "frequency",
            "governor: powersave, under which short work may find slow processors; performance"
            " keeps them quick (cpupower frequency-set -g performance)",
        )
    else:
        said = ", ".join(sorted(governors)) or "not told by the system"
        yield Finding("ok", "frequency", f"governor: {said}")


def nodes(machine: Machine) -> Iterator[Finding]:
    """Count the NUMA nodes: a worker on another node than the trainer's writes remote memory."""
    found = len(list((machine.sys / "devices/system/node").glob("node[0-9]*")))
    if found > 1:
        yield Finding(
            "note",
            "NUMA nodes",
            f"{found}: numactl --cpunodebind=N --membind=N keeps trainer, workers and batches"
            " beside a device of node N",
        )
    else:
        yield Finding("ok", "NUMA nodes", "memory is equally near to all processors")


def instructions(machine: Machine) -> Iterator[Finding]:
    """Check for the instructions that copying and resizing can use."""
    if platform.machine() != "x86_64":
        yield Finding(
            "note",
            "instructions",
            f"a processor of kind {platform.machine()}, on which reader is not tested yet",
        )
        return
    line = re.search(r"^flags\s*:(.*)$", text_in(machine.proc / "cpuinfo") or "", re.MULTILINE)
    flags = line[1].split() if line else []
    has = [name for name in ("avx2", "avx512f", "avx512vbmi") if name in flags]
    if not flags:
        yield Finding("note", "instructions", "/proc/cpuinfo does not tell which there are")
    elif "avx2" not in has:
        yield Finding(
            "note", "instructions", "without AVX2, images are resized and colors changed slower"
        )
    else:
        yield Finding("ok", "instructions", ", ".join(has))


def usable_cores(machine: Machine) -> float:
    """Return how many processors this process may use, by affinity and quota."""
    quota = quota_of(machine)
    return float(machine.affinity) if quota is None else min(float(machine.affinity), quota)


def stopped_s(machine: Machine) -> float:
    """Return the seconds in which a cgroup was throttled by its quota so far."""
    worst = 0.0
    for group in machine.groups("cpu"):
        stat = _pairs(text_in(group.folder / "cpu.stat"))
        nanos = stat.get("throttled_time", 0) + 1000 * stat.get("throttled_usec", 0)
        worst = max(worst, nanos * 1e-9)
    return worst


def quota_of(machine: Machine) -> float | None:
    """Return the CPU quota of the groups, in processors; None: no quota."""
    return core_quota(machine.proc, machine.cgroup)


def _pairs(text: str | None) -> dict[str, int]:
    """Return the numbers of a file with a name and a number on each line."""
    lines = (line.split() for line in (text or "").splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) == 2 and words[1].isdecimal()}


def _loaded_pools() -> str:
    """Report the thread counts of the libraries that this process has loaded."""
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return ""
    pools = [f"{pool['prefix']} {pool['num_threads']}" for pool in threadpool_info()]
    return f"; loaded here: {', '.join(pools)}" if pools else ""
