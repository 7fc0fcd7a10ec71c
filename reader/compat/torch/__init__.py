"""`torch.utils.data`, name for name, with `DataLoader` on the engine of `reader`.

Change `from torch.utils.data import DataLoader` into `from reader.compat.torch import DataLoader`;
nothing else of a program changes. Imports torch. docs/torch.md says, line by line, what is the same
and what is better.
"""

from typing import TYPE_CHECKING

import torch.utils.data

from reader.compat.torch.installation import install, uninstall
from reader.compat.torch.loader import DataLoader
from reader.compat.torch.sampler import StatefulDistributedSampler
from reader.compat.torch.stateful import StatefulDataLoader

if TYPE_CHECKING:
    from torch.utils.data import (
        BatchSampler,
        ChainDataset,
        ConcatDataset,
        DataChunk,
        Dataset,
        DFIterDataPipe,
        DistributedSampler,
        IterableDataset,
        IterDataPipe,
        MapDataPipe,
        RandomSampler,
        Sampler,
        SequentialSampler,
        StackDataset,
        Subset,
        SubsetRandomSampler,
        TensorDataset,
        WeightedRandomSampler,
        _DatasetKind,
        argument_validation,
        default_collate,
        default_convert,
        functional_datapipe,
        get_worker_info,
        guaranteed_datapipes_determinism,
        non_deterministic,
        random_split,
        runtime_validation,
        runtime_validation_disabled,
    )

__all__ = [
    "BatchSampler",
    "ChainDataset",
    "ConcatDataset",
    "DFIterDataPipe",
    "DataChunk",
    "DataLoader",
    "Dataset",
    "DistributedSampler",
    "IterDataPipe",
    "IterableDataset",
    "MapDataPipe",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "StackDataset",
    "StatefulDataLoader",
    "StatefulDistributedSampler",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "_DatasetKind",
    "argument_validation",
    "default_collate",
    "default_convert",
    "functional_datapipe",
    "get_worker_info",
    "guaranteed_datapipes_determinism",
    "install",
    "non_deterministic",
    "random_split",
    "runtime_validation",
    "runtime_validation_disabled",
    "uninstall",
]

if not TYPE_CHECKING:  # those that the installed torch has
    __all__ = [name for name in __all__ if name in globals()]
    __all__ += [name for name in torch.utils.data.__all__ if name not in __all__]

    def __getattr__(name):
        if name in __all__:
            return getattr(torch.utils.data, name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """The public names, for completion; submodules are found as attributes all the same."""
    return sorted(__all__)
