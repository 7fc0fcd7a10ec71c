"""A program that starts 4 spawned workers and tells how long their first batch took.

Run as ``python -m tools.bench.torch.start FACE``. Like the programs it stands for it imports torch
at its top, and so does each worker that imports it again.
"""

from __future__ import annotations

import sys
import time
import warnings
from importlib import import_module

import torch

WORKERS = 4


class Rows:
    """Sixty-four tensors."""

    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((8,), float(index))


def main() -> None:
    """Print the microseconds from ``iter()`` to the first batch."""
    warnings.simplefilter("ignore")  # of more workers than cores
    loader = import_module(sys.argv[1]).DataLoader(
        Rows(), batch_size=4, num_workers=WORKERS, multiprocessing_context="spawn"
    )
    start = time.perf_counter_ns()
    iterator = iter(loader)
    next(iterator)
    us = (time.perf_counter_ns() - start) / 1e3
    for _ in iterator:
        pass
    print(us)


if __name__ == "__main__":
    main()
