"""What limits a row: the parts of a batch's time, in all processes, and the largest one.

Runs epochs of ours in this process, and reads what the kernel counts of it and its workers. Imports
the loaders, the meter and the rows.
"""

from __future__ import annotations

import os
import resource
import time
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import numpy as np

from tools.bench.loaders import open_loader
from tools.bench.meter import cpu_ns_of, descendants, fields_of, view_of
from tools.bench.report import duration
from tools.bench.rows import Row
from tools.turns import grid

COPIED = 256 << 20  # bytes that each process copies to measure the memory
MOSTLY = 0.7  # of what there is: the limit, then


@dataclass(frozen=True)
class Profile:
    """Where the time of a row's batches goes; each figure is of one batch.

    Attributes:
        us: Wall time, in microseconds; nothing of the batch is read.
        trainer_us, workers_us: CPU time of the trainer, and of all its workers.
        sleeps: How often the trainer waited, and its workers.
        nbytes: Bytes of the batch.
        copy_us: What as many processes need to copy as many bytes from memory to memory.
        cores: Processors there are.
        workers: Worker processes.
    """

    us: float
    trainer_us: float
    workers_us: float
    sleeps: float
    nbytes: int
    copy_us: float
    cores: int
    workers: int

    @property
    def limit(self) -> str:
        """Name the largest part: memory bandwidth, the trainer, the workers, or waiting."""
        if self.copy_us >= MOSTLY * self.us:
            return "bandwidth"
        if self.trainer_us >= MOSTLY * self.us:
            return "trainer"
        if self.trainer_us + self.workers_us >= MOSTLY * self.us * min(
            self.cores, max(self.workers, 1)
        ):
            return "interpreter"
        return "wake-ups"


def profile(row: Row, seconds: float) -> Profile:
    """Run our epochs on a row for about this many seconds, and measure the parts of their time."""
    work, workers = row.work, int(row.options["num_workers"])
    dataset = work.dataset(work.shortest * work.batch_size)
    opened = open_loader(row, row.contestants[0], dataset)
    try:
        nbytes = 0
        for batch in opened:
            nbytes = sum(memoryview(view_of(batch)(field)).nbytes for field in fields_of(batch))
            break
        for _ in opened:
            pass
        batches, before = 0, _counts()
        begun = time.perf_counter_ns()
        while not batches or time.perf_counter_ns() - begun < seconds * 1e9:
            for _ in opened:
                batches += 1
        us = (time.perf_counter_ns() - begun) / 1e3 / batches
        trainer_us, workers_us, sleeps = (
            (after - first) / batches for after, first in zip(_counts(), before, strict=True)
        )
    finally:
        opened.close()
    cores = len(os.sched_getaffinity(0))
    rate = copy_rate(max(workers, 1))
    return Profile(us, trainer_us, workers_us, sleeps, nbytes, nbytes / rate * 1e6, cores, workers)


def _counts() -> tuple[float, float, float]:
    """Return CPU microseconds of this process and of its children, and how often all waited."""
    own = resource.getrusage(resource.RUSAGE_SELF)
    trainer = (own.ru_utime + own.ru_stime) * 1e6
    sleeps = float(own.ru_nvcsw)
    children = descendants()
    for child in children:
        sleeps += child.num_ctx_switches().voluntary
    return trainer, sum(cpu_ns_of(children).values()) / 1e3, sleeps


def copy_rate(processes: int) -> float:
    """Return the bytes per second that this many processes copy together."""
    with get_context("fork").Pool(processes) as pool:
        return float(sum(pool.map(_copy, [COPIED] * processes, chunksize=1)))


def _copy(nbytes: int) -> float:
    source, target = np.ones(nbytes, np.uint8), np.zeros(nbytes, np.uint8)
    best = 0.0
    for _ in range(5):
        begun = time.perf_counter()
        np.copyto(target, source)
        best = max(best, nbytes / (time.perf_counter() - begun))
    return best


def render(profiles: dict[str, Profile]) -> str:
    """Return a table: a line for each row, with its limit."""
    head = ["row", "batch", "trainer", "workers", "copy alone", "waits", "limit"]
    lines: list[list[Any]] = [head]
    for name, each in profiles.items():
        times = (each.us, each.trainer_us, each.workers_us, each.copy_us)
        lines.append([name, *map(duration, times), f"{each.sleeps:.1f}", each.limit])
    return "\n".join(grid(lines))
