"""Prepare a worker process as Paddle does: its seeds and its place.

Imports paddle. A `PaddleWorker` is made in the trainer when workers start, and runs in each of them
before any code of the user.
"""

from __future__ import annotations

import dataclasses
import random
import sys
from typing import Any

import numpy as np
import paddle
from paddle.base import core
from paddle.base.framework import _set_expected_place
from paddle.io import get_worker_info
from paddle.io.dataloader import worker as paddle_worker

_worker: Any = paddle_worker

__all__ = ["PaddleWorker", "get_worker_info"]


@dataclasses.dataclass(frozen=True)
class PaddleWorker:
    """Prepares a worker as `paddle.io.DataLoader` 3.3 does: the random numbers are the same.

    `base_seed` is drawn from the trainer's global NumPy state each time workers start: a program
    that seeds that state repeats its augmentation.
    """

    base_seed: int

    @classmethod
    def draw(cls) -> PaddleWorker:
        """Draw the seed of the workers that are about to start."""
        return cls(int(np.random.randint(low=0, high=sys.maxsize)))

    def __call__(self, worker_id: int, num_workers: int, dataset: Any) -> int:  # noqa: ARG002
        """Prepare this process; return the seed in its `get_worker_info`."""
        _set_expected_place(core.CPUPlace())  # type: ignore[no-untyped-call]
        seed = self.base_seed + worker_id
        random.seed(seed)
        paddle.seed(seed)
        np.random.seed(_worker._generate_states(self.base_seed, worker_id))
        return self.base_seed
