"""A network that trains on a GPU, fed by our loader or by PyTorch's: how long its steps wait.

    python -m tools.device_bench.training LOADER WORK [--batches 200] [--workers N|auto]

LOADER is "reader" or "torch", with the same dataset, workers and options; torch's batches are
pinned and moved by `non_blocking=True`. WORK: "float32", pictures that lie in memory (38.5 MB a
batch); "jpeg", pictures that Pillow decodes, crops and resizes. Prints one JSON: milliseconds of a
step, those of a step on a batch that is on the device already, the CPU of the trainer, and for our
loader its verdict.
"""

from __future__ import annotations

import argparse
import io
import itertools
import json
import os
import time
from typing import Any, Literal

import numpy as np

from tools.turns import told_by

LOADERS = ("reader", "torch")
SIZE = 64  # pictures of a batch
SIDE = 224
BANK = 256  # different pictures
LOOK_EVERY = 20  # steps after which the program reads its loss


class FloatPictures:
    """Pictures of 3 x 224 x 224 float32, that lie in memory."""

    def __init__(self, count: int) -> None:
        self._count = count
        drawn = np.random.default_rng(0).normal(size=(BANK, 3, SIDE, SIDE))
        self._bank = drawn.astype(np.float32)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        return self._bank[index % BANK], index % 10


class JpegPictures:
    """JPEGs of 500 x 375, of which a part is decoded to 3 x 224 x 224 uint8."""

    def __init__(self, count: int) -> None:
        from PIL import Image

        self._count = count
        draws = np.random.default_rng(0)
        self._files = []
        for _ in range(BANK):
            rough = Image.fromarray(draws.integers(0, 256, (24, 32, 3), np.uint8))
            file = io.BytesIO()
            rough.resize((500, 375), Image.Resampling.BICUBIC).save(file, "jpeg", quality=90)
            self._files.append(file.getvalue())

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        from PIL import Image

        with Image.open(io.BytesIO(self._files[index % BANK])) as photo:
            small = photo.convert("RGB").resize((SIDE, SIDE), box=(60, 20, 400, 360))
        return np.ascontiguousarray(np.asarray(small).transpose(2, 0, 1)), index % 10


WORKS: dict[str, Any] = {"float32": FloatPictures, "jpeg": JpegPictures}


class Training:
    """A small convolutional network in bfloat16, with its optimizer."""

    def __init__(self) -> None:
        import torch

        self._torch = torch
        widths = [3, 64, 128, 256, 512, 512]
        blocks: list[Any] = []
        for before, after in itertools.pairwise(widths):
            blocks.append(torch.nn.Conv2d(before, after, 3, stride=2, padding=1))
            blocks += [torch.nn.BatchNorm2d(after), torch.nn.ReLU()]
        blocks += [torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(), torch.nn.Linear(512, 10)]
        network: Any = torch.nn.Sequential(*blocks).cuda()
        self._network = network.to(memory_format=torch.channels_last)
        self._optimizer = torch.optim.SGD(self._network.parameters(), 0.01, momentum=0.9)
        self._steps = 0

    def __call__(self, batch: Any) -> None:
        """Take a step."""
        torch = self._torch
        pictures, labels = (part.cuda(non_blocking=True) for part in batch)
        with torch.autocast("cuda", torch.bfloat16):
            pictures = pictures.to(torch.bfloat16, memory_format=torch.channels_last)
            loss = torch.nn.functional.cross_entropy(self._network(pictures), labels)
        self._optimizer.zero_grad()
        loss.backward()
        self._optimizer.step()
        self._steps += 1
        if self._steps % LOOK_EVERY == 0:
            loss.item()


def train(name: str, work: str, batches: int, workers: int | Literal["auto"]) -> dict[str, Any]:
    """Return the figures of one loader in this process."""
    import torch

    import reader

    dataset = WORKS[work](batches * SIZE)
    options: dict[str, Any] = {"num_workers": workers, "persistent_workers": True}
    loader: Any
    if name == "reader":
        from reader.compat.torch import DataLoader

        loader = DataLoader(dataset, SIZE, device="cuda:0", **options)
    else:
        from torch.utils.data import DataLoader as TheirLoader

        loader = TheirLoader(dataset, SIZE, pin_memory=True, **options)
    step = Training()
    for batch in loader:  # workers start, memory is found, kernels are chosen
        step(batch)
    resident = [part.cuda() for part in batch]
    alone_ms, _ = _run(step, [resident] * batches)
    if name == "reader":
        with reader.profile(loader) as seen:
            step_ms, cpu_ms = _run(step, loader)
        told = {"bound_by": seen.bound_by, "said": str(seen).splitlines()}
        told |= {"devices": loader.stats()["devices"], "chosen": loader.chosen}
        loader.close()
    else:
        step_ms, cpu_ms = _run(step, loader)
        told = {}
    torch.cuda.synchronize()
    found = {"step_ms": step_ms, "alone_ms": alone_ms, "cpu_ms": cpu_ms, "workers": workers}
    return {**found, **told, "peak_mb": torch.cuda.max_memory_allocated() >> 20}


def _run(step: Any, batches: Any) -> tuple[float, float]:
    """Return milliseconds of a step, and of the trainer's CPU."""
    import torch

    torch.cuda.synchronize()
    began, used, count = time.perf_counter(), time.process_time(), 0
    for batch in batches:
        step(batch)
        count += 1
    torch.cuda.synchronize()
    took, cpu = time.perf_counter() - began, time.process_time() - used
    return took / count * 1e3, cpu / count * 1e3


def train_all() -> dict[str, Any]:
    """Return the figures of all, each from a process of its own."""
    return {
        f"{work}, {name}": told_by("tools.device_bench.training", name, work)
        for work in WORKS
        for name in LOADERS
    }


def main() -> None:
    """Train with one loader."""
    parser = argparse.ArgumentParser(prog="python -m tools.device_bench.training")
    parser.add_argument("loader", choices=LOADERS)
    parser.add_argument("work", choices=list(WORKS))
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--workers", default=max(2, (os.cpu_count() or 4) - 2), help='or "auto"')
    chosen = parser.parse_args()
    workers = chosen.workers if chosen.workers == "auto" else int(chosen.workers)
    print(json.dumps(train(chosen.loader, chosen.work, chosen.batches, workers)))


if __name__ == "__main__":
    main()
