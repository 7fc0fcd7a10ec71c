"""The accelerator that a program of these tests runs on: simulated, or a GPU.

Imports nothing of a framework until it is asked for. ACCELERATOR in the environment names it,
"simdev" or "cuda"; both offer what Simdev does, as far as a real device can tell it.
"""

from __future__ import annotations

import os
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.device.simdev import Simdev, locks_pages, on_paddle, on_torch

__all__ = ["ACCELERATOR", "Cuda", "accelerator", "refused_locks"]

ACCELERATOR = "ACCELERATOR"
_CYCLES_PER_US = 2000


def accelerator(framework: str = "torch") -> Simdev | Cuda:
    """Give a framework the accelerator, with page-locking; called once, at a program's start.

    Args:
        framework: "torch"; or "paddle", for which there is the simulated one alone.
    """
    if framework == "paddle":
        sim = on_paddle()
        locks_pages(sim)
        return sim
    if os.environ.get(ACCELERATOR, "simdev") == "cuda":
        return Cuda()
    sim = on_torch()
    locks_pages(sim)
    return sim


class Cuda:
    """A GPU under torch: copies of the loader are made late by work that is put before them."""

    kind = "cuda"

    def __init__(self) -> None:
        import torch

        from reader.frameworks import torch_device

        self._torch = torch
        self._waits = 0
        self._delay_us = self._jitter_us = 0
        self._noise = random.Random(1)
        torch.zeros(1, device="cuda")
        torch.cuda.set_sync_debug_mode("warn")
        warnings.simplefilter("always")
        warnings.showwarning = self._count
        device: Any = torch_device.TorchDevice
        copy_fields, wait = device._copy_fields, device.wait

        def copy_late(made: Any, *arguments: Any) -> Any:
            self._sleep(self._delay_us + self._noise.randint(0, self._jitter_us))
            return copy_fields(made, *arguments)

        def wait_counted(made: Any, event: Any) -> None:
            self._waits += 1
            wait(made, event)

        device._copy_fields, device.wait = copy_late, wait_counted

    def _count(self, message: Any, *_: Any, **__: Any) -> None:
        self._waits += "synchroniz" in str(message)

    def _sleep(self, us: int) -> None:
        if us:
            sleep: Any = self._torch.cuda._sleep
            sleep(us * _CYCLES_PER_US)

    def name(self, number: int) -> str:
        """Return the name of a device; with fewer devices, names repeat."""
        return f"cuda:{number % self._torch.cuda.device_count()}"

    def counts(self) -> dict[str, int]:
        """Return the waits of the host so far, and the bytes of tensors on the devices."""
        count = self._torch.cuda.device_count()
        used = sum(self._torch.cuda.memory_allocated(each) for each in range(count))
        return {"host_waits": self._waits, "used": used}

    def faults(self) -> list[str]:
        """Return nothing: a GPU ends the program."""
        return []

    def set(self, delay_us: int = 0, jitter_us: int = 0) -> None:
        """Set by how much a copy of the loader is late, at least, and more at random."""
        self._delay_us, self._jitter_us = delay_us, jitter_us

    def work(self, place: str) -> None:
        """Keep the current stream of a device busy for a millisecond."""
        with self._torch.cuda.device(place):
            self._sleep(1000)

    def work_ms(self, copy_ms: int) -> int:
        """Return how long `work` takes."""
        return 1

    def delay(self) -> None:
        """Delay the next work of the current stream by the time of a loader's copy."""
        self._sleep(self._delay_us)

    def synchronize(self) -> None:
        """Wait for all devices, without being counted."""
        before = self._waits
        for each in range(self._torch.cuda.device_count()):
            self._torch.cuda.synchronize(each)
        self._waits = before


@contextmanager
def refused_locks(sim: Simdev | Cuda, reason: str) -> Iterator[None]:
    """Have all page-locking fail in this block."""
    from reader.frameworks.page_locking import page_locker, set_page_locker

    kind = "gpu" if sim.kind == "cuda" else sim.kind
    before = page_locker(kind)
    set_page_locker(kind, _Refusing(reason))
    yield
    set_page_locker(kind, before)


class _Refusing:
    def __init__(self, reason: str) -> None:
        self._reason = reason

    def lock(self, address: int, nbytes: int) -> str | None:
        """See reader.frameworks.page_locking.PageLocker."""
        return self._reason

    def unlock(self, address: int) -> None:
        """See PageLocker."""
