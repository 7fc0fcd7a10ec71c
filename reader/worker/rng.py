"""The random generators of one worker thread, besides the global ones that all threads share.

Imports numpy, and uses torch only where it is already imported. A WorkerRng belongs to one thread:
the loop seeds it, and the user's code in that thread draws from it.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import numpy as np

__all__ = ["WorkerRng"]

_LOW_64 = 0xFFFF_FFFF_FFFF_FFFF


class WorkerRng:
    """Generators of one thread alone: `get_worker_info().rng` in a worker thread.

    Each is made on first use, and stays the same object while the thread runs. With `seed=` of the
    loader they are seeded before each batch, from (seed, epoch, number of the batch); without it
    once, with the worker's own seed. The names are those of torch 2.13.

    Args:
        seed: their seed; only the low 64 bits are used.
    """

    def __init__(self, seed: int) -> None:
        self._seed = seed & _LOW_64
        self._random: random.Random | None = None
        self._numpy: np.random.Generator | None = None
        self._torch: Any = None

    @property
    def random_generator(self) -> random.Random:
        """A generator with the methods of the module `random`."""
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random

    @property
    def numpy_generator(self) -> np.random.Generator:
        """As `numpy.random.default_rng()`."""
        if self._numpy is None:
            self._numpy = np.random.Generator(np.random.Philox(self._seed))
        return self._numpy

    @property
    def torch_generator(self) -> Any:
        """A `torch.Generator` on the CPU; None where torch is not imported."""
        if self._torch is None:
            make = getattr(sys.modules.get("torch"), "Generator", None)
            if make is not None:
                self._torch = make().manual_seed(self._seed)
        return self._torch

    def reseed(self, seed: int) -> None:
        """Seed the generators again, in place."""
        self._seed = seed & _LOW_64
        if self._random is not None:
            self._random.seed(self._seed)
        if self._numpy is not None:
            self._numpy.bit_generator.state = np.random.Philox(self._seed).state
        if self._torch is not None:
            self._torch.manual_seed(self._seed)

    def __repr__(self) -> str:
        return f"WorkerRng({self._seed})"
