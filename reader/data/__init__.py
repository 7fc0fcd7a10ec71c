"""What a batch is made from: datasets, samplers and batch samplers.

This package runs anywhere, in the trainer and in workers, and starts no process or thread. It may
import errors, checks, config, available_memory, `reader._core` and `reader.random`. Its objects are
their maker's.

Four of its public names are defined in `reader.formats`, a later room: they are imported when they
are first asked for.
"""

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING

from reader.data import tensor_converters
from reader.data.balanced_batches import BalancedBatches
from reader.data.batch_sampler import BatchSampler, NoBatching
from reader.data.bucket_batch_sampler import BucketBatchSampler
from reader.data.dataset import Dataset
from reader.data.datasets import ChainDataset, ComposeDataset, ConcatDataset, TensorDataset
from reader.data.distributed_batch_sampler import DistributedBatchSampler
from reader.data.distributed_sampler import DistributedSampler
from reader.data.iterable import IterableDataset
from reader.data.padded import Padded
from reader.data.ragged import RaggedFields, concat_ragged
from reader.data.sampler import RandomSampler, Sampler, SequenceSampler, SubsetRandomSampler
from reader.data.subset import Subset, random_split
from reader.data.weighted_sampler import WeightedRandomSampler

if TYPE_CHECKING:
    from reader.formats.record_io import RecordIO, RecordWriter
    from reader.formats.table_rows import TableRows
    from reader.formats.token_windows import TokenWindows

__all__ = [
    "BalancedBatches",
    "BatchSampler",
    "BucketBatchSampler",
    "ChainDataset",
    "ComposeDataset",
    "ConcatDataset",
    "Dataset",
    "DistributedBatchSampler",
    "DistributedSampler",
    "IterableDataset",
    "NoBatching",
    "Padded",
    "RaggedFields",
    "RandomSampler",
    "RecordIO",
    "RecordWriter",
    "Sampler",
    "SequenceSampler",
    "Subset",
    "SubsetRandomSampler",
    "TableRows",
    "TensorDataset",
    "TokenWindows",
    "WeightedRandomSampler",
    "concat_ragged",
    "random_split",
]

_HOMES = {
    "RecordIO": "reader.formats.record_io",
    "RecordWriter": "reader.formats.record_io",
    "TableRows": "reader.formats.table_rows",
    "TokenWindows": "reader.formats.token_windows",
}


if not TYPE_CHECKING:  # else type checkers accept any name

    def __getattr__(name):
        """Import a dataset of `reader.formats` when it is first asked for."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found


class _OldModule(ModuleType):
    """A module that old pickles name: it has the names of the one in `reader.formats`."""

    def __getattr__(self, name: str) -> object:
        if name.startswith("__"):  # code that looks through sys.modules asks every module for these
            raise AttributeError(name)
        home = self.__name__.replace("reader.data.", "reader.formats.")
        return getattr(importlib.import_module(home), name)


for _name in ("record_io", "table_file", "table_rows", "token_windows"):
    sys.modules.setdefault(f"{__name__}.{_name}", _OldModule(f"{__name__}.{_name}"))

tensor_converters.register_known_libraries()
