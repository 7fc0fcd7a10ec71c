"""Gigabytes a second of batches that JAX copies to a GPU: of our loader, and of arrays as they are.

    python -m tools.device_bench.jax_copies

Prints one JSON: for each work the epoch of a loader, and `jax.device_put` of one array again and
again, from memory as it comes, and from memory that is page-locked as the slots of torch are.
"""

from __future__ import annotations

import importlib
import json
import mmap
import os
import time
from typing import Any

import numpy as np

from tools.device_bench.pictures import SHAPES, Pictures

BATCHES = 100


def main() -> None:
    """Measure all works."""
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    jax: Any = importlib.import_module("jax")

    from reader import DataLoader
    from reader.frameworks.page_locking import page_locker

    device = jax.devices("gpu")[0]
    found: dict[str, dict[str, float]] = {}
    for name, (size, nbytes) in SHAPES.items():
        pictures: Any = Pictures(BATCHES * size, nbytes)
        options: dict[str, Any] = {"num_workers": 8, "persistent_workers": True}
        with DataLoader(
            pictures,
            batch_size=size,
            places="gpu:0",
            framework="jax",
            start_method="forkserver",
            **options,
        ) as loader:
            for _ in range(2):
                began = time.perf_counter()
                for batch in loader:
                    last = batch
                jax.block_until_ready(last)
                took_s = time.perf_counter() - began
        found[name] = {"epoch_gb_s": BATCHES * size * nbytes / took_s / 1e9}
        array = np.frombuffer(mmap.mmap(-1, size * nbytes), np.uint8)
        array[:] = 1
        found[name]["array_gb_s"] = _rate(jax, array, device)
        locker = page_locker("gpu")
        if locker is not None and locker.lock(array.ctypes.data, array.nbytes) is None:
            found[name]["locked_gb_s"] = _rate(jax, array, device)
            locker.unlock(array.ctypes.data)
    print(json.dumps(found))


def _rate(jax: Any, array: Any, device: Any) -> float:
    for number in range(25):
        if number == 5:
            began = time.perf_counter()
        jax.block_until_ready(jax.device_put(array, device))
    return float(array.nbytes * 20 / (time.perf_counter() - began) / 1e9)


if __name__ == "__main__":
    main()
