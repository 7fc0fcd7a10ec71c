"""The works: a dataset and a consumer's step each, from tiny samples to JPEG files.

Imports numpy, and the photographs and waits of other tools. A work keeps no state
between runs.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tools.verdict_bench.works import rest

__all__ = ["WORKS", "Work"]

_FLOAT = np.float32
_ENDLESS = 10**9  # samples: a run ends by time


@dataclass(frozen=True)
class Work:
    """A training program without a loader.

    Attributes:
        make: returns the dataset; it is called with a folder that may be written to.
        batch_size: samples of a batch.
        step: what the loop does with a batch.
        options: further arguments of the loader.
    """

    make: Callable[[Path], Any]
    batch_size: int
    step: Callable[[Any], Any]
    options: dict[str, Any] = field(default_factory=dict)


class Samples:
    """Sample i is `function(i)`."""

    def __init__(self, sample: Callable[[int], Any]) -> None:
        self.sample = sample

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.sample(index)


class _Rows:
    """Row i of an array, again and again."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.rows = np.random.default_rng(0).random(shape, _FLOAT)

    def __call__(self, index: int) -> tuple[np.ndarray[Any, Any], int]:
        row = index % len(self.rows)
        return self.rows[row], row


def _computed(index: int, size: int = 2048, times: int = 4) -> np.ndarray[Any, Any]:
    """Return a spectrum: about 0.2 ms of one core."""
    wave = np.cos(np.arange(size, dtype=np.float64) * (index % 97))
    for _ in range(times):
        wave = np.abs(np.fft.rfft(np.sort(wave), size))[: size // 2].repeat(2)
    return wave.astype(_FLOAT)


def _waited(index: int) -> np.ndarray[Any, Any]:
    rest(0.002)  # storage
    return np.full(256, index, _FLOAT)


def _mixed(index: int) -> np.ndarray[Any, Any]:
    rest(0.0004)
    return _computed(index, times=2)


def _photographs(folder: Path) -> Any:
    from reader.images import ImageFolder
    from tools.domain_bench.image_files import make_files

    root = folder / "files"
    if not root.exists():
        make_files(folder, 32, 1.0)
    return Repeated(ImageFolder(root, size=(224, 224)))


class Repeated:
    """The samples of a dataset, again and again."""

    def __init__(self, dataset: Any) -> None:
        self.dataset, self.count = dataset, len(dataset)

    def __len__(self) -> int:
        return _ENDLESS

    def __getitem__(self, index: int) -> Any:
        return self.dataset[index % self.count]


def _mean(batch: Any) -> float:
    """Read a batch once."""
    first = batch[0] if isinstance(batch, (list, tuple)) else batch
    return float(first.mean())


def _trained(seconds: float) -> Callable[[Any], float]:
    """Return a step that reads the batch and computes for a time on one core."""

    def step(batch: Any) -> float:
        begun, found = time.perf_counter(), _mean(batch)
        weights = np.full((64, 64), 1e-3)
        while time.perf_counter() - begun < seconds:
            weights = np.tanh(weights @ weights + found * 1e-9)
        return found

    return step


WORKS: dict[str, Work] = {
    "tiny": Work(lambda _: Samples(_Rows((1024, 8))), 32, _mean),
    "copy": Work(lambda _: Samples(_Rows((256, 3, 64, 64))), 32, _mean),
    "compute": Work(lambda _: Samples(_computed), 16, _trained(0.001)),
    "storage": Work(lambda _: Samples(_waited), 8, _trained(0.0005)),
    "mixed": Work(lambda _: Samples(_mixed), 16, _trained(0.001)),
    "big": Work(lambda _: Samples(_Rows((64, 3, 224, 224))), 32, _mean),
    "jpeg": Work(_photographs, 8, _trained(0.002)),
    "slow step": Work(lambda _: Samples(_computed), 4, _trained(0.006)),
}
