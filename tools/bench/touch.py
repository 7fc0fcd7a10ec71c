"""The consumer's side of every measurement: read one byte of each page of each field.

The same lines serve every contestant. A framework's tensor is first seen as a NumPy array over
the same bytes, and what that and the reading cost by themselves is measured apart, over warm
private memory, so that it can be taken off. Imports numpy alone.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

PAGE = 4096

# Shows a field's bytes without copying them, as an object with the buffer protocol.
View = Callable[[Any], Any]


def fields_of(batch: Any) -> list[Any]:
    """Return the arrays or tensors of a batch, in order, whatever holds them."""
    if isinstance(batch, dict):
        children = list(batch.values())
    elif isinstance(batch, (list, tuple)):
        children = list(batch)
    else:
        return [batch]
    if not any(isinstance(child, (dict, list, tuple)) for child in children):
        return children
    return [field for child in children for field in fields_of(child)]


def touch(batch: Any, view: View) -> None:
    """Read one byte of every page of every field of `batch`."""
    for field in fields_of(batch):
        memoryview(view(field)).cast("B")[::PAGE].tobytes()


def as_is(field: Any) -> Any:
    """Show a NumPy array's bytes."""
    return field


def through_numpy(field: Any) -> Any:
    """Show a torch tensor's bytes."""
    return field.numpy()


def through_dlpack(field: Any) -> Any:
    """Show the bytes of a tensor whose own ``numpy()`` would copy them."""
    return np.from_dlpack(field)


def touching_cost(
    batch: Any, view: View, clone: Callable[[Any], Any], seconds: float
) -> tuple[float, float]:
    """Measure `touch` alone, over warm private copies of the fields of `batch`.

    Returns:
        Microseconds of wall time and of this process's CPU for one batch.
    """
    copies = [clone(field) for field in fields_of(batch)]
    touch(copies, view)
    count = 0
    cpu = time.process_time_ns()
    start = now = time.perf_counter_ns()
    while now - start < seconds * 1e9 or count < 5:
        touch(copies, view)
        count += 1
        now = time.perf_counter_ns()
    cpu = time.process_time_ns() - cpu
    return (now - start) / count / 1e3, cpu / count / 1e3
