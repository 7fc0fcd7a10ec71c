"""A dataset with slow samples, and loaders of it, for tests of what programs show of a loop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

import reader

BATCHES, SIZE = 16, 4


class Numbers:
    """Numbers that take half a millisecond each."""

    def __len__(self) -> int:
        return BATCHES * SIZE

    def __getitem__(self, index: int) -> Any:
        time.sleep(0.0005)
        return np.full(4, index, np.float32)


class Points:
    """Rows of four numbers and a label, 0 or 1."""

    def __len__(self) -> int:
        return 48

    def __getitem__(self, index: int) -> Any:
        return {"rows": np.full(4, index / 48, np.float32), "labels": index % 2}


def loaded(workers: int = 0, **options: Any) -> Any:
    return reader.DataLoader(Numbers(), batch_size=SIZE, num_workers=workers, **options)
