"""Feed a training step from a Python dataset at memory speed.

The public names live here; everything else is private. Each is imported when it is first asked for:
importing this module imports neither NumPy nor a deep-learning framework, and touches no state of
the process.
"""

import importlib
import sys
import zlib
from typing import TYPE_CHECKING

from reader._version import __version__

_SYSTEM: str = sys.platform  # a plain str: type checkers on other systems read on
if _SYSTEM != "linux":
    raise ImportError(
        "reader needs Linux 5.9 or later, for memfd_create, pidfd_open and futexes, and this"
        f" system is {_SYSTEM!r}: run it in a Linux container or virtual machine, or in WSL 2"
    )

if TYPE_CHECKING:
    from reader import compat as compat
    from reader import images as images
    from reader import integrations as integrations
    from reader._core.batch.structure import register_container
    from reader._core.batch.tensor import LoDTensor
    from reader._core.batch.tensor_array import LoDTensorArray
    from reader._core.wire.blocking_queue import BlockingQueue
    from reader.caching.cache import cache
    from reader.cluster.ray_backend import Ray
    from reader.data import (
        BalancedBatches,
        BatchSampler,
        BucketBatchSampler,
        ChainDataset,
        ComposeDataset,
        ConcatDataset,
        Dataset,
        DistributedBatchSampler,
        DistributedSampler,
        IterableDataset,
        Padded,
        RaggedFields,
        RandomSampler,
        Sampler,
        SequenceSampler,
        Subset,
        SubsetRandomSampler,
        TensorDataset,
        WeightedRandomSampler,
        concat_ragged,
        random_split,
    )
    from reader.data.shard_order import ShardOrder
    from reader.data.without import without
    from reader.engine.worker_pool import WorkerPool
    from reader.errors import (
        ArenaFull,
        CollateError,
        ConfigError,
        ConfigTypeError,
        DatasetError,
        ImageError,
        InternalError,
        LoadTimeout,
        QueueClosed,
        QueueKilled,
        ReaderError,
        SampleIndexError,
        SamplerError,
        StateError,
        WorkerDied,
    )
    from reader.formats.record_io import RecordIO, RecordWriter
    from reader.formats.table_rows import TableRows
    from reader.formats.token_windows import TokenWindows
    from reader.loader import DataLoader
    from reader.observe.profile import profile
    from reader.shards.shards import Shards
    from reader.shards.write_shards import write_shards
    from reader.sharing.share import share
    from reader.stores.shard_cache import ShardCache
    from reader.streams.even_steps import EvenSteps
    from reader.streams.mix import mix
    from reader.streams.mix_sampler import MixSampler
    from reader.streams.mixed_dataset import Mix
    from reader.streams.rebatch import rebatch
    from reader.streams.shard import shard
    from reader.streams.shuffle_buffer import shuffle_buffer
    from reader.tokens.documents import Documents
    from reader.tokens.packed_tokens import PackedTokens
    from reader.worker.context import WorkerInfo, get_worker_info, sample_rng

# Paddle 2.6 for GPUs brings a zlib of its own, which breaks Python's unless that was used first.
zlib.decompress(zlib.compress(b"in use"))

__all__ = [
    "ArenaFull",
    "BalancedBatches",
    "BatchSampler",
    "BlockingQueue",
    "BucketBatchSampler",
    "ChainDataset",
    "CollateError",
    "ComposeDataset",
    "ConcatDataset",
    "ConfigError",
    "ConfigTypeError",
    "DataLoader",
    "Dataset",
    "DatasetError",
    "DistributedBatchSampler",
    "DistributedSampler",
    "Documents",
    "EvenSteps",
    "ImageError",
    "InternalError",
    "IterableDataset",
    "LoDTensor",
    "LoDTensorArray",
    "LoadTimeout",
    "Mix",
    "MixSampler",
    "PackedTokens",
    "Padded",
    "QueueClosed",
    "QueueKilled",
    "RaggedFields",
    "RandomSampler",
    "Ray",
    "ReaderError",
    "RecordIO",
    "RecordWriter",
    "SampleIndexError",
    "Sampler",
    "SamplerError",
    "SequenceSampler",
    "ShardCache",
    "ShardOrder",
    "Shards",
    "StateError",
    "Subset",
    "SubsetRandomSampler",
    "TableRows",
    "TensorDataset",
    "TokenWindows",
    "WeightedRandomSampler",
    "WorkerDied",
    "WorkerInfo",
    "WorkerPool",
    "__version__",
    "cache",
    "concat_ragged",
    "get_worker_info",
    "mix",
    "profile",
    "random_split",
    "rebatch",
    "register_container",
    "sample_rng",
    "shard",
    "share",
    "shuffle_buffer",
    "without",
    "write_shards",
]

# where each name lives: as above, which type checkers read
_HOMES = {
    name: module
    for module, names in {
        "reader._core.wire.blocking_queue": "BlockingQueue",
        "reader._core.batch.structure": "register_container",
        "reader._core.batch.tensor": "LoDTensor",
        "reader._core.batch.tensor_array": "LoDTensorArray",
        "reader.caching.cache": "cache",
        "reader.cluster.ray_backend": "Ray",
        "reader.data": """
            BalancedBatches BatchSampler BucketBatchSampler ChainDataset ComposeDataset
            ConcatDataset Dataset DistributedBatchSampler DistributedSampler IterableDataset Padded
            RaggedFields RandomSampler Sampler SequenceSampler Subset SubsetRandomSampler
            TensorDataset WeightedRandomSampler concat_ragged random_split
        """,
        "reader.streams.mix_sampler": "MixSampler",
        "reader.streams.mixed_dataset": "Mix",
        "reader.data.without": "without",
        "reader.formats.record_io": "RecordIO RecordWriter",
        "reader.formats.table_rows": "TableRows",
        "reader.formats.token_windows": "TokenWindows",
        "reader.errors": """
            ArenaFull CollateError ConfigError ConfigTypeError DatasetError ImageError
            InternalError LoadTimeout QueueClosed QueueKilled ReaderError SampleIndexError
            SamplerError StateError WorkerDied
        """,
        "reader.engine.worker_pool": "WorkerPool",
        "reader.loader": "DataLoader",
        "reader.observe.profile": "profile",
        "reader.data.shard_order": "ShardOrder",
        "reader.stores.shard_cache": "ShardCache",
        "reader.shards.shards": "Shards",
        "reader.shards.write_shards": "write_shards",
        "reader.sharing.share": "share",
        "reader.worker.context": "WorkerInfo get_worker_info sample_rng",
        "reader.streams.even_steps": "EvenSteps",
        "reader.streams.mix": "mix",
        "reader.streams.rebatch": "rebatch",
        "reader.streams.shard": "shard",
        "reader.streams.shuffle_buffer": "shuffle_buffer",
        "reader.tokens.documents": "Documents",
        "reader.tokens.packed_tokens": "PackedTokens",
    }.items()
    for name in names.split()
}
_MODULES = ("collate", "compat", "data", "errors", "images", "integrations")


if not TYPE_CHECKING:  # else type checkers accept any name

    def __getattr__(name):
        """Import a public name, or a public module, when it is first asked for."""
        if name in _MODULES:
            return importlib.import_module(f"reader.{name}")
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        importlib.import_module("reader.data")  # which has the core take other libraries' tensors
        found = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
        return found


def __dir__() -> list[str]:
    """The public names, for completion; submodules are found as attributes all the same."""
    return sorted(__all__)
