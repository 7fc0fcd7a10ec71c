"""Pictures that lie in memory, for copies to a GPU.

Imports numpy.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["SHAPES", "Pictures"]

# (samples of a batch, bytes of a sample): pictures of float32, and of bytes
SHAPES = {"image": (64, 3 * 224 * 224 * 4), "uint8": (64, 3 * 224 * 224)}


class Pictures:
    """A dataset in memory, of which each batch takes other bytes."""

    def __init__(self, samples: int, nbytes: int) -> None:
        self._samples = samples
        self._bank = np.random.default_rng(0).integers(0, 256, (256, nbytes), np.uint8)

    def __len__(self) -> int:
        return self._samples

    def __getitem__(self, index: int) -> Any:
        return self._bank[index % len(self._bank)]
