"""The simulated accelerator as a program sees it: loaded under torch or Paddle, and counted.

Imports the standard library; `on_torch` and `on_paddle` import their framework. They are called in
a program of its own, which the fixtures of this folder start: the simulation lasts as long as its
process, and what is wrong may end that.
"""

from __future__ import annotations

import ctypes
import os
import types
from typing import Any

__all__ = ["LIBRARY", "Simdev", "locks_pages", "on_paddle", "on_torch"]

LIBRARY = "SIMDEV_LIBRARY"  # names the library that the program loads
_COUNTS = "copies bytes staged host_waits faults allocs frees used streams events".split()
_COUNTS += ["last_from", "small_us"]


class Simdev:
    """The simulation in this process.

    Args:
        path: of the library that the framework has loaded.
    """

    def __init__(self, path: str) -> None:
        self._c = ctypes.CDLL(path)
        self._c.simdev_pin.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        self._c.simdev_unpin.argtypes = [ctypes.c_void_p]
        self._c.simdev_count.restype = ctypes.c_uint64
        self._c.simdev_set.argtypes = [ctypes.c_char_p, ctypes.c_long]

    kind = "simdev"
    _busy: Any = None

    def name(self, number: int) -> str:
        """Return the name of a device."""
        return f"simdev:{number}"

    def work(self, place: str) -> None:
        """Keep the current stream of a device busy, for as long as a copy takes; under torch."""
        import torch

        if self._busy is None:
            self._busy = torch.zeros(64, device="cpu").pin_memory()
        self._busy.to(place, non_blocking=True)

    def work_ms(self, copy_ms: int) -> int:
        """Return how long `work` takes, where a copy takes `copy_ms`."""
        return copy_ms

    def delay(self) -> None:
        """Do nothing: copies are late by themselves."""

    def counts(self) -> dict[str, int]:
        """Return the counts so far: copies, staged ones, waits of the host, faults, memory."""
        return {name: int(self._c.simdev_count(name.encode())) for name in _COUNTS}

    def faults(self) -> list[str]:
        """Return the faults, a hundred at most."""
        found: list[str] = []
        text = ctypes.create_string_buffer(1000)
        while not self._c.simdev_fault(ctypes.c_size_t(len(found)), text, ctypes.c_size_t(1000)):
            found.append(text.value.decode())
        return found

    def pin(self, address: int, nbytes: int) -> int:
        """Register memory of the host; returns 0, or CUDA's number of the error."""
        return int(self._c.simdev_pin(address, nbytes))

    def unpin(self, address: int) -> int:
        """Undo `pin`."""
        return int(self._c.simdev_unpin(address))

    def set(self, **values: int) -> None:
        """Change how it works.

        `delay_us`, `jitter_us`: of copies from the host. `mib_per_s` of them; 0: no limit.
        `holds_pages`: what is registered from now on is the pages that lie there then.
        """
        for name, value in values.items():
            self._c.simdev_set(name.encode(), value)

    def synchronize(self) -> None:
        """Wait for all streams, without being counted."""
        self._c.simdev_synchronize()


def on_torch() -> Simdev:
    """Give torch the device "simdev"."""
    import torch

    path = os.environ[LIBRARY]
    torch.ops.load_library(path)  # type: ignore[no-untyped-call]
    module: Any = types.ModuleType("torch.simdev")
    module.is_available = lambda: True
    module.device_count = lambda: int(os.environ.get("SIMDEV_DEVICES", "4"))
    module.current_device = lambda: torch.accelerator.current_device_index()
    module._is_in_bad_fork = lambda: False
    module.manual_seed_all = lambda _seed: None
    torch._register_device_module("simdev", module)  # type: ignore[no-untyped-call]
    return Simdev(path)


def on_paddle() -> Simdev:
    """Import Paddle with the device "simdev"; it must not be imported yet."""
    path = os.environ[LIBRARY]
    os.environ["CUSTOM_DEVICE_ROOT"] = os.path.dirname(path)
    import paddle  # noqa: F401  loads what lies there

    return Simdev(path)


def locks_pages(sim: Simdev) -> None:
    """Have the loader lock the pages that copies to "simdev" read."""
    from reader.frameworks.page_locking import set_page_locker

    set_page_locker("simdev", SimdevLocker(sim))


class SimdevLocker:
    """Locks pages by the simulated driver; see reader.frameworks.page_locking.PageLocker."""

    def __init__(self, sim: Simdev) -> None:
        self._sim = sim

    def lock(self, address: int, nbytes: int) -> str | None:
        """See PageLocker."""
        error = self._sim.pin(address, nbytes)
        return f"error {error}" if error else None

    def unlock(self, address: int) -> None:
        """See PageLocker."""
        error = self._sim.unpin(address)
        if error:
            raise RuntimeError(f"error {error}")
