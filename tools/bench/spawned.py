"""A program that starts spawned workers and prints how long their first batch took.

Run as ``python -m tools.bench.spawned FACE WORKERS``. Like the programs it stands for it imports
torch at its top, and so does each worker that imports it again.
"""

from __future__ import annotations

import sys
import warnings
from importlib import import_module

import torch

from tools.bench.meter import time_first


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
        Rows(), batch_size=4, num_workers=int(sys.argv[2]), multiprocessing_context="spawn"
    )
    print(time_first(loader))


if __name__ == "__main__":
    main()
