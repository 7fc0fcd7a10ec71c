"""`paddle.io`, name for name, on the engine of `reader`.

Change `from paddle.io import DataLoader` into `from reader.compat.paddle import DataLoader`;
nothing else of a program changes. Imports paddle. docs/paddle.md says, line by line, what is the
same and what is better.
"""

from typing import TYPE_CHECKING

from reader.compat.paddle import reader
from reader.compat.paddle.batch import batch
from reader.compat.paddle.collate import default_collate_fn, default_convert_fn
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.installation import install, uninstall
from reader.compat.paddle.loader import DataLoader
from reader.compat.paddle.py_reader import PyReader
from reader.compat.paddle.switches import keep_data_loader_order, use_pinned_memory
from reader.compat.paddle.worker import get_worker_info

if TYPE_CHECKING:  # ours derive from Paddle's, and a program may have been typed with those
    from paddle.io import (
        BatchSampler,
        ChainDataset,
        ComposeDataset,
        ConcatDataset,
        Dataset,
        DistributedBatchSampler,
        IterableDataset,
        RandomSampler,
        Sampler,
        SequenceSampler,
        Subset,
        SubsetRandomSampler,
        TensorDataset,
        WeightedRandomSampler,
        random_split,
    )
else:
    from reader.compat.paddle.datasets import (
        ChainDataset,
        ComposeDataset,
        ConcatDataset,
        Dataset,
        IterableDataset,
        Subset,
        TensorDataset,
        random_split,
    )
    from reader.compat.paddle.samplers import (
        BatchSampler,
        DistributedBatchSampler,
        RandomSampler,
        Sampler,
        SequenceSampler,
        SubsetRandomSampler,
        WeightedRandomSampler,
    )

__all__ = [
    "ArgumentError",
    "BatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DistributedBatchSampler",
    "IterableDataset",
    "PyReader",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "batch",
    "default_collate_fn",
    "default_convert_fn",
    "get_worker_info",
    "install",
    "keep_data_loader_order",
    "random_split",
    "reader",
    "uninstall",
    "use_pinned_memory",
]


def __dir__() -> list[str]:
    """The public names, for completion; submodules are found as attributes all the same."""
    return sorted(__all__)
