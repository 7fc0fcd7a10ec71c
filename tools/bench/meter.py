"""The consumer's side of each measurement: reading an epoch, and its cost.

The same lines serve every contestant: read one byte of each page of each field, seen as an array
over the same bytes. Runs in a contestant's process; imports numpy, and psutil for its workers.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from itertools import pairwise
from typing import Any

import numpy as np

PAGE = 4096
SPANS = 16  # of a measured window
_WITHOUT_PAGES = (str, bytes, bool, int, float)


def fields_of(batch: Any) -> list[Any]:
    """Return the arrays or tensors of a batch, in order, out of any containers."""
    if isinstance(batch, dict):
        children = list(batch.values())
    elif isinstance(batch, (list, tuple)):
        children = list(batch)
    else:
        return [batch]
    if not any(isinstance(child, (dict, list, tuple)) for child in children):
        return children
    return [field for child in children for field in fields_of(child)]


def view_of(batch: Any) -> Callable[[Any], Any]:
    """Return an array over the bytes of a field of `batch`, without a copy."""
    fields = [field for field in fields_of(batch) if not isinstance(field, _WITHOUT_PAGES)]
    module = type(fields[0]).__module__.partition(".")[0] if fields else "numpy"
    if module == "torch":
        return lambda field: field.numpy()
    # Paddle's own numpy() copies.
    return np.from_dlpack if module == "paddle" else lambda field: field


def touch(batch: Any, view: Callable[[Any], Any]) -> None:
    """Read one byte of every page of every field of `batch`."""
    for field in fields_of(batch):
        if isinstance(field, _WITHOUT_PAGES):
            continue
        memoryview(view(field)).cast("B")[::PAGE].tobytes()


def windows(batches: int, in_flight: int) -> tuple[int, int, int]:
    """Return the batches after which the clock starts, is read, and stops.

    The first batches, which idle workers made at their leisure, are left out, and the last
    `in_flight`, which are handed out while nothing new is being made. Batches come out in bursts
    of one from each worker, so each window is a number of whole bursts.

    Raises:
        ValueError: An epoch of so few batches has no two windows.
    """
    burst = max(in_flight, 1)
    low = max(burst, batches // 20)
    bursts = (batches - 1 - in_flight - low) // burst
    if bursts < 2:
        raise ValueError(f"an epoch of {batches} batches is too short, {in_flight} are in flight")
    touched = bursts * 2 // 3
    return low, low + touched * burst, low + bursts * burst


def descendants() -> list[Any]:
    """Return the processes that this one started, and those that they did, as psutil sees them."""
    found: list[Any] = import_module("psutil").Process().children(recursive=True)
    return found


def cpu_ns_of(processes: Iterable[Any]) -> dict[int, int]:
    """Return by pid how long each process has computed, all its threads together.

    A process that has ended is left out.
    """
    found = {}
    for process in processes:
        with suppress(OSError):
            # The clock that clock_getcpuclockid(3) names: the kernel counts it in nanoseconds.
            found[process.pid] = time.clock_gettime_ns(~process.pid << 3 | 2)
    return found


def run_epoch(loader: Iterable[Any], batches: int, in_flight: int) -> dict[str, float]:
    """Consume an epoch of `batches` batches and measure two windows of it.

    Returns:
        For each batch, in microseconds: ``us`` of wall time where every page is touched, the
        median of several spans; where none is, ``cpu_us`` of this process, all its threads
        together, and ``all_cpu_us`` of its descendants, too.
    """
    low, middle, high = windows(batches, in_flight)
    burst = max(in_flight, 1)
    gc.collect()
    view: Callable[[Any], Any] | None = None
    # The middle of a few spans: another program that takes the processor spoils one, not all.
    span = max((middle - low) // SPANS // burst, 1) * burst
    stamps: list[int] = []
    cpu_ns = workers_ns = 0
    before: dict[int, int] = {}
    count = 0
    for count, batch in enumerate(loader, start=1):
        if view is None:
            view = view_of(batch)
        if count <= middle:
            touch(batch, view)
        if low <= count <= middle and (count - low) % span == 0:
            stamps.append(time.perf_counter_ns())
        if count == middle:
            before = cpu_ns_of(descendants())
            cpu_ns = time.process_time_ns()
        elif count == high:
            cpu_ns = time.process_time_ns() - cpu_ns
            after = cpu_ns_of(descendants())
            workers_ns = sum(after[pid] - before.get(pid, 0) for pid in after)
    if count != batches:
        raise RuntimeError(f"an epoch of {batches} batches handed out {count}")
    us = statistics.median(b - a for a, b in pairwise(stamps)) / span / 1e3
    measured = (high - middle) * 1e3
    return {"us": us, "cpu_us": cpu_ns / measured, "all_cpu_us": (cpu_ns + workers_ns) / measured}


def time_first(batches: Iterable[Any]) -> float:
    """Return the microseconds from ``iter()`` to the first batch, and read the epoch to its end."""
    start = time.perf_counter_ns()
    iterator = iter(batches)
    next(iterator)
    us = (time.perf_counter_ns() - start) / 1e3
    for _ in iterator:
        pass
    return us
