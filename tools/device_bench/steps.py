"""Steps on a device, under torch and under Paddle: a training loop without a network.

Each makes the loaders of its framework, takes batches, and keeps the device busy for a while. The
step reads the batch, and the host waits for the step before the last, as a loop that looks at its
losses a step late. Imports a framework when it is made; one a process.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from tests.device.accelerator import accelerator
from tools.device_bench.works import BATCH, SAMPLE_NBYTES, Batches, Work

__all__ = ["PaddleSteps", "TorchSteps"]

OPTIONS: dict[str, Any] = {"batch_size": BATCH, "num_workers": 2, "persistent_workers": True}


class Steps:
    """The event at the end of a step, of either framework."""

    def __init__(self, sim: Any, work: Work) -> None:
        self.sim = sim
        self.work = work
        sim.set(delay_us=work.copy_ms * 1000)
        self._ends: list[Any] = []

    def _keep(self, end: Any) -> None:
        """Wait for the step before the one that ends with this event."""
        self._ends.append(end)
        if len(self._ends) > 1:
            self._ends.pop(0).synchronize()

    def finish(self) -> None:
        """Wait for all steps."""
        self.sim.synchronize()
        self._ends.clear()


class TorchSteps(Steps):
    """Steps under torch, on the accelerator that the environment names."""

    def __init__(self, work: Work) -> None:
        super().__init__(accelerator(), work)
        import torch

        self.torch = torch
        self.place = torch.device(self.sim.name(0))

    def open(self, is_ours: bool, batches: int) -> Any:
        """Return a loader."""
        samples: Any = Batches(batches)
        if is_ours:
            from reader.compat.torch import DataLoader

            return DataLoader(samples, device=self.place, **OPTIONS)
        from torch.utils.data import DataLoader as TheirLoader

        return TheirLoader(samples, pin_memory=True, **OPTIONS)

    def take(self, batch: Any) -> Any:
        """Return the batch on the device."""
        if batch.device != self.place:
            self.sim.delay()
            batch = batch.to(self.place, non_blocking=True)
        return batch

    def resident(self) -> Any:
        """Return a batch that is on the device."""
        return self.torch.zeros((BATCH, SAMPLE_NBYTES), dtype=self.torch.uint8, device=self.place)

    def step(self, batch: Any) -> None:
        """Issue a step that reads the batch; wait for the one before the last."""
        torch = self.torch
        torch.empty_like(batch).copy_(batch, non_blocking=True)
        for _ in range(self.work.step_ms // self.sim.work_ms(self.work.copy_ms)):
            self.sim.work(str(self.place))
        end = torch.Event(device=self.place)
        end.record(torch.accelerator.current_stream(self.place))
        self._keep(end)


class PaddleSteps(Steps):
    """Steps under Paddle in dynamic mode, on the simulated accelerator."""

    def __init__(self, work: Work) -> None:
        super().__init__(accelerator("paddle"), work)
        import paddle

        core: Any = paddle.base.core
        self.place = core.CustomPlace("simdev", 0)
        self.host = np.zeros(64, np.uint8)
        self.sim.pin(self.host.ctypes.data, self.host.nbytes)
        self.busy = paddle.utils.dlpack.from_dlpack(self.host)
        self.make_event = core.CustomDeviceEvent
        self.stream = paddle.device.current_stream(self.place).stream_base
        self.paddle = paddle

    def open(self, is_ours: bool, batches: int) -> Any:
        """Return a loader."""
        if is_ours:
            from reader.compat.paddle import DataLoader

            return DataLoader(Batches(batches), places=self.place, **OPTIONS)
        loader: Any = self.paddle.io.DataLoader
        return loader(Batches(batches), places=self.place, **OPTIONS)

    def take(self, batch: Any) -> Any:
        """Return the batch, which is on the device; Paddle's has a list around it."""
        return batch[0] if isinstance(batch, (list, tuple)) else batch

    def resident(self) -> Any:
        """Return a batch that is on the device."""
        return self.paddle.to_tensor(np.zeros((BATCH, SAMPLE_NBYTES), np.uint8), place=self.place)

    def step(self, batch: Any) -> None:
        """Issue a step that reads the batch; wait for the one before the last."""
        batch._copy_to(self.place, False)
        for _ in range(self.work.step_ms // self.work.copy_ms):
            self.busy._copy_to(self.place, False)
        end = self.make_event(self.place)
        end.record(self.stream)
        self._keep(end)


def is_shared(address: int) -> bool:
    """Whether an address lies in memory that processes share, such as workers write to."""
    for line in Path("/proc/self/maps").read_text(errors="replace").splitlines():
        span, rights = line.split()[:2]
        low, high = (int(number, 16) for number in span.split("-"))
        if low <= address < high:
            return rights.endswith("s")
    return False
