"""Reports of programs of peer tests: results as JSON, and held resources.

Imports NumPy and the standard library; knows tensors by what they can do. Holds nothing.
"""

from __future__ import annotations

import collections.abc
import gc
import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np


def tell(result: Any) -> None:
    """Print the result of the program: one line of JSON."""
    print(json.dumps(result), flush=True)


def describe(value: Any) -> Any:
    """Describe a batch, for comparing across processes: kinds, dtypes, shapes, every value."""
    name = type(value).__name__
    if name in ("Tensor", "DenseTensor"):
        array = np.asarray(value)
        if name == "DenseTensor":
            return [name, str(value._place()), str(value._dtype()), *_content(array)]
        kept = str(value.place), value.stop_gradient, value.persistable
        return [name, str(value.dtype), *kept, *_content(array)]
    if isinstance(value, np.ndarray):
        return ["ndarray", str(value.dtype), *_content(value)]
    if isinstance(value, collections.abc.Mapping):
        return [name, {str(key): describe(child) for key, child in value.items()}, list(value)]
    if isinstance(value, (list, tuple)):
        return [name, [describe(child) for child in value]]
    if isinstance(value, bytes):
        return [name, value.hex()]
    return [name, repr(value)]


def _content(array: np.ndarray[Any, Any]) -> list[Any]:
    if array.size <= 64:
        return [list(array.shape), repr(array.tolist())]
    data = np.ascontiguousarray(array).tobytes()
    return [list(array.shape), hashlib.sha256(data).hexdigest()]


def outcome(function: Callable[[], Any]) -> Any:
    """Call; return the described result, or the exception's types and text."""
    try:
        return ["returned", describe(function())]
    except Exception as error:
        kinds = {kind.__name__ for kind in type(error).__mro__}
        return ["raised", type(error).__name__, str(error), sorted(kinds)]


def held() -> dict[str, int]:
    """Count what this process holds: children, threads, descriptors, files of shared memory."""
    own = f"paddle_{os.getpid()}_"
    workers = children()
    prefixes = (own, *(f"paddle_{worker}_" for worker in workers))
    return {
        "processes": len(workers),
        "threads": len(os.listdir("/proc/self/task")),
        "descriptors": len(os.listdir("/proc/self/fd")),
        "shm": sum(name.startswith(prefixes) for name in os.listdir("/dev/shm")),
    }


def excess(before: dict[str, int], grace_s: float = 2.0) -> dict[str, int]:
    """Wait until nothing is held beyond `before`, at most `grace_s`; return the excess."""
    deadline = time.monotonic() + grace_s
    while True:
        gc.collect()
        now = held()
        more = {key: now[key] - count for key, count in before.items() if now[key] > count}
        if not more or time.monotonic() > deadline:
            return more
        time.sleep(0.05)


def children() -> list[int]:
    """The processes that this one started and that live."""
    found = []
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                with open(f"/proc/{entry}/stat", encoding="utf-8", errors="replace") as file:
                    fields = file.read().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[1]) == os.getpid() and fields[0] != "Z":
                found.append(int(entry))
    return found


def numbers(batch: Any) -> list[Any]:
    """The values of a batch's first tensor, as a flat list."""
    first = batch[0] if isinstance(batch, (list, tuple)) else batch
    return np.asarray(first).reshape(-1).tolist()


def is_optimized() -> bool:
    """Whether `python -O` runs this."""
    return sys.flags.optimize > 0
