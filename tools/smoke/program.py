"""A user's first program: ten batches by every way of running workers, each one looked at.

Copied by the smoke test into a folder of its own and run there by a fresh environment's Python;
its one argument is that environment, by default the one it runs in. Imports numpy and the
installed package.
"""

import importlib.util
import multiprocessing
import sys
from pathlib import Path
from typing import Literal

import numpy as np
from numpy.typing import NDArray

import reader
import reader._core

BATCHES, BATCH_SIZE = 10, 8


class Squares(reader.Dataset[tuple[NDArray[np.float32], int]]):
    """Sample i is an array full of i, and i squared."""

    def __len__(self) -> int:
        """Return as many samples as fill the batches."""
        return BATCHES * BATCH_SIZE

    def __getitem__(self, index: int) -> tuple[NDArray[np.float32], int]:
        """Return one sample."""
        return np.full((3, 4), index, dtype=np.float32), index * index


def load(num_workers: int, start_method: Literal["fork", "forkserver", "spawn"] | None) -> None:
    """Load every batch in order and compare it with what it must be."""
    with reader.DataLoader(
        Squares(), batch_size=BATCH_SIZE, num_workers=num_workers, start_method=start_method
    ) as loader:
        count = 0
        for arrays, squares in loader:
            indices = np.arange(count * BATCH_SIZE, (count + 1) * BATCH_SIZE)
            expected = np.broadcast_to(indices.reshape(-1, 1, 1), (BATCH_SIZE, 3, 4))
            if arrays.dtype != np.float32 or arrays.shape != expected.shape:
                raise SystemExit(f"batch {count} is {arrays.dtype}{list(arrays.shape)}")
            np.testing.assert_array_equal(arrays, expected)
            np.testing.assert_array_equal(squares, indices**2)
            count += 1
    if count != BATCHES:
        raise SystemExit(f"{count} batches instead of {BATCHES}")


def main() -> None:
    """Check that the installed package is the one in use, and every way of running workers."""
    environment = Path((sys.argv[1:] or [sys.prefix])[0]).resolve()
    for module in (reader, reader._core):
        if environment not in Path(str(module.__file__)).resolve().parents:
            raise SystemExit(f"{module.__name__} is {module.__file__}, not in {environment}")
    if importlib.util.find_spec("reader.compat.paddle") is None:
        raise SystemExit("the package lacks reader.compat.paddle")
    load(num_workers=0, start_method=None)
    for start_method in multiprocessing.get_all_start_methods():
        load(num_workers=2, start_method=start_method)  # type: ignore[arg-type]
    print(f"lodreader {reader.__version__} loads by every start method")


if __name__ == "__main__":
    main()
