"""Reads the clocks and counters of one process around an epoch, and what its tree weighs.

Everything comes from the kernel: clocks, getrusage and /proc. Runs in a contestant's process;
imports nothing but the standard library and `touch`.
"""

from __future__ import annotations

import gc
import os
import resource
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.touch import View, touch


@dataclass(frozen=True)
class Reading:
    """Counters of this process at one moment, all its threads together."""

    wall_ns: int
    cpu_ns: int
    minor_faults: int
    voluntary_switches: int

    @classmethod
    def now(cls) -> Reading:
        """Read them."""
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return cls(time.perf_counter_ns(), time.process_time_ns(), usage.ru_minflt, usage.ru_nvcsw)


@dataclass(frozen=True)
class Epoch:
    """What one epoch cost, for each batch of the window in its middle.

    Attributes:
        us: Wall time, in microseconds.
        cpu_us: CPU of the trainer's process, in microseconds.
        minor_faults: Minor page faults of the trainer's process.
        voluntary_switches: Voluntary context switches of the trainer's process.
        first_us: From ``iter()`` to the first batch of the epoch.
        pss_mb: Memory of trainer and workers at the window's end, shared pages counted once.
        batches: How many batches the epoch had.
    """

    us: float
    cpu_us: float
    minor_faults: float
    voluntary_switches: float
    first_us: float
    pss_mb: float
    batches: int

    def as_json(self) -> dict[str, float]:
        """Return its figures by name."""
        return asdict(self)


def run_epoch(
    loader: Iterable[Any], batches: int, in_flight: int, view: View, is_touching: bool
) -> Epoch:
    """Consume one epoch of `batches` batches and measure the window in its middle.

    The window leaves out the first batches, which idle workers made at their leisure, and the
    last `in_flight`, which are handed out while nothing new is being made.
    """
    low = max(in_flight, batches // 20)
    high = batches - 1 - in_flight
    # Batches come out in bursts of one from each worker: count whole bursts.
    high -= (high - low) % in_flight
    if high <= low:
        raise ValueError(f"an epoch of {batches} batches has no window: {low} to {high}")
    gc.collect()
    opening = closing = None
    pss_mb = 0.0
    count = 0
    begin = time.perf_counter_ns()
    first_ns = 0
    batch: Any = None
    for count, batch in enumerate(loader, start=1):
        if count == 1:
            first_ns = time.perf_counter_ns() - begin
        if is_touching:
            touch(batch, view)
        if count == low:
            opening = Reading.now()
        elif count == high:
            closing = Reading.now()
            pss_mb = tree_pss_mb()
    if opening is None or closing is None or count != batches:
        raise RuntimeError(f"an epoch of {batches} batches handed out {count}")
    window = high - low
    return Epoch(
        us=(closing.wall_ns - opening.wall_ns) / window / 1e3,
        cpu_us=(closing.cpu_ns - opening.cpu_ns) / window / 1e3,
        minor_faults=(closing.minor_faults - opening.minor_faults) / window,
        voluntary_switches=(closing.voluntary_switches - opening.voluntary_switches) / window,
        first_us=first_ns / 1e3,
        pss_mb=pss_mb,
        batches=batches,
    )


def descendants(pid: int) -> list[int]:
    """Return the processes below `pid`, deepest last."""
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in task.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *descendants(child)]
    return found


def tree_pss_mb() -> float:
    """Return the proportional memory of this process and those below it, in megabytes."""
    total = 0
    for pid in (os.getpid(), *descendants(os.getpid())):
        try:
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total * 1024 / 1e6
