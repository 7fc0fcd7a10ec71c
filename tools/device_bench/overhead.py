"""The time of the trainer's thread for a batch on a device, beyond a batch on the CPU.

    python -m tools.device_bench.overhead

Under torch, one copy a batch. The framework's own calls are timed apart. Batches are ready when
they are asked for; the roads take turns. Medians of the thread's CPU time in `next()`.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import threading
import time
from functools import partial
from typing import Any

import numpy as np

from tests.device.accelerator import ACCELERATOR, accelerator
from tests.device.build import library
from tests.device.simdev import LIBRARY
from tools.turns import in_turns, medians

PAUSE_S = 1.5e-3  # between steps: the workers are done then
ROUNDS = 9
CALLS = "copy record is_done await_in_consumer wait".split()


class Samples:
    """Some floats and a number: a batch of 64 is a slot that is copied in one piece."""

    def __len__(self) -> int:
        return 64 * 400

    def __getitem__(self, index: int) -> Any:
        return np.zeros(8, np.float32), index


def measure() -> dict[str, float]:
    """Return the figures."""
    sim = accelerator()
    sim.set(delay_us=0)
    from reader import DataLoader
    from reader.frameworks.torch_device import TorchDevice

    spent = [0.0]
    for name in CALLS:
        _time(TorchDevice, name, spent)
    pause = threading.Event()
    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "framework": "torch"}

    def turn(loader: Any) -> dict[str, float]:
        took_us: list[float] = []
        calls_us: list[float] = []
        steps = iter(loader)
        while True:
            pause.wait(PAUSE_S)
            before, began = spent[0], time.thread_time()
            batch = next(steps, None)
            took = time.thread_time() - began
            if batch is None:
                return {"own": statistics.median(took_us), "calls": statistics.median(calls_us)}
            calls_us.append((spent[0] - before) * 1e6)
            took_us.append(took * 1e6 - calls_us[-1])

    with (
        DataLoader(Samples(), batch_size=64, places="cpu", **options) as cpu,
        DataLoader(Samples(), batch_size=64, places=sim.name(0), **options) as device,
    ):
        roads = {"cpu": partial(turn, cpu), "device": partial(turn, device)}
        found = medians(in_turns(roads, ROUNDS, warm_ups=1))  # in the first, caches are cold
    own = {f"{road}_us": figures["own"] for road, figures in found.items()}
    return {**own, "calls_us": found["device"]["calls"]}


def _time(device: Any, name: str, spent: list[float]) -> None:
    whole = getattr(device, name)

    def timed(self: Any, *arguments: Any) -> Any:
        began = time.thread_time()
        try:
            return whole(self, *arguments)
        finally:
            spent[0] += time.thread_time() - began

    setattr(device, name, timed)


def main() -> int:
    """Measure, in a child process where the simulation must be built first."""
    if os.environ.get(ACCELERATOR, "simdev") == "simdev" and LIBRARY not in os.environ:
        environment = {**os.environ, LIBRARY: str(library("torch"))}
        command = [sys.executable, "-W", "ignore", "-m", "tools.device_bench.overhead"]
        return subprocess.run(command, check=False, env=environment).returncode
    found = measure()
    more = found["device_us"] - found["cpu_us"]
    print(
        f"next(): {found['cpu_us']:.1f} us for the CPU; for a device {more:.1f} us more, and"
        f" {found['calls_us']:.1f} us in calls of torch"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
