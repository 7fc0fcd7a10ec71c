"""The works: copies and steps of given lengths, and the loaders.

Imports the standard library and numpy.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

import reader

__all__ = ["CONTESTANTS", "WORKS", "Batches", "Contestant", "Work"]

BATCH = 8
SAMPLE_NBYTES = 16 << 10


@dataclasses.dataclass(frozen=True)
class Work:
    """A copy of a batch and a step on the device, each of so many milliseconds."""

    copy_ms: int
    step_ms: int

    def __str__(self) -> str:
        return f"copy {self.copy_ms} ms, step {self.step_ms} ms"


@dataclasses.dataclass(frozen=True)
class Contestant:
    """Who brings the batches to the device, under which framework."""

    name: str
    framework: str
    is_ours: bool


WORKS = [Work(1, 2), Work(1, 1), Work(2, 2)]
CONTESTANTS = [
    Contestant("reader, torch face", "torch", True),
    Contestant("torch, pin_memory and non_blocking", "torch", False),
    Contestant("reader, Paddle face", "paddle", True),
    Contestant("paddle.io, buffered reader", "paddle", False),
]


class Batches(reader.Dataset[Any]):
    """A dataset of single arrays."""

    def __init__(self, batches: int) -> None:
        self.batches = batches

    def __len__(self) -> int:
        return self.batches * BATCH

    def __getitem__(self, index: int) -> Any:
        return np.full(SAMPLE_NBYTES, index % 251, np.uint8)
