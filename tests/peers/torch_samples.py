"""Datasets and functions of the tests beside PyTorch, importable by workers of every start method.

Imports torch and NumPy. Holds nothing.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, TensorDataset, get_worker_info

VECTORS = torch.arange(100.0).reshape(20, 5)
TENSORS = TensorDataset(VECTORS, torch.arange(20))  # each with its number


class Rows(Dataset[Any]):
    """`count` samples: a vector and the index."""

    def __init__(self, count: int = 11) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.full((2,), float(index)), index


class Batched(Rows):
    """Fetches whole batches, and shows that it did."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(index, len(indices)) for index in indices]


class Augmented(Rows):
    """Draws from every random state that PyTorch seeds."""

    def __getitem__(self, index: int) -> Any:
        return (
            index,
            torch.rand(2),
            random.random(),
            np.random.standard_normal(2),
            torch.randint(1 << 40, (1,)),
        )


class Seeds(Rows):
    """Returns the seed of the worker and its worker info."""

    def __getitem__(self, index: int) -> Any:
        info = get_worker_info()
        if info is None:
            return index, torch.initial_seed(), -1, -1, -1
        return index, torch.initial_seed(), info.id, info.num_workers, len(info.dataset)


class Stream(IterableDataset[Any]):
    """Worker i of W yields `sizes[i]` samples that say whose they are; alone: all of them."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes

    def __iter__(self) -> Iterator[Any]:
        info = get_worker_info()
        workers = range(len(self.sizes)) if info is None else [info.id]
        for worker in workers:
            for index in range(self.sizes[worker] if worker < len(self.sizes) else 0):
                yield torch.tensor([worker, index]), float(torch.rand(()))


class Counted(Stream):
    """A stream that says how long it is, wrongly if asked to."""

    def __init__(self, length: int, *sizes: int) -> None:
        super().__init__(*sizes)
        self.length = length

    def __len__(self) -> int:
        return self.length


class Keyed(Rows):
    """Has any key that a sampler yields."""

    def __getitem__(self, index: Any) -> Any:
        return repr(index), type(index).__name__


def sum_of(samples: list[Any]) -> Any:
    return {"sum": sum(sample[1] for sample in samples), "rows": [sample[0] for sample in samples]}


def doubled(sample: Any) -> Any:
    return [sample, sample]


def add_to_dataset(worker_id: int) -> None:
    info = get_worker_info()
    assert info is not None
    assert info.id == worker_id
    info.dataset.count = 100 + worker_id


class Remembers(Rows):
    """Returns the mark that `worker_init_fn` left on this worker's copy."""

    def __getitem__(self, index: int) -> Any:
        return index, self.count


def generator(seed: int = 5) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
