"""Feed a training step from a Python dataset at memory speed.

The public names live here; everything else is private. Importing this module imports no
deep-learning framework and touches no state of the process.
"""

import zlib

from reader import images as images
from reader._core.blocking_queue import BlockingQueue
from reader._core.structure import register_container
from reader._core.tensor import LoDTensor
from reader._core.tensor_array import LoDTensorArray
from reader._version import __version__
from reader.data import (
    BatchSampler,
    BucketBatchSampler,
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    DistributedBatchSampler,
    DistributedSampler,
    IterableDataset,
    RaggedFields,
    RandomSampler,
    RecordIO,
    RecordWriter,
    Sampler,
    SequenceSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
    WeightedRandomSampler,
    concat_ragged,
    random_split,
    tensor_converters,
)
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
from reader.loader import DataLoader
from reader.workers.context import WorkerInfo, get_worker_info, sample_rng
from reader.workers.mix import mix
from reader.workers.rebatch import rebatch
from reader.workers.shard import shard
from reader.workers.shuffle_buffer import shuffle_buffer

# Paddle 2.6 for GPUs has a zlib of its own, and Python's breaks if it is not in use by then.
zlib.decompress(zlib.compress(b"in use"))

__all__ = [
    "ArenaFull",
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
    "ImageError",
    "InternalError",
    "IterableDataset",
    "LoDTensor",
    "LoDTensorArray",
    "LoadTimeout",
    "QueueClosed",
    "QueueKilled",
    "RaggedFields",
    "RandomSampler",
    "ReaderError",
    "RecordIO",
    "RecordWriter",
    "SampleIndexError",
    "Sampler",
    "SamplerError",
    "SequenceSampler",
    "StateError",
    "Subset",
    "SubsetRandomSampler",
    "TensorDataset",
    "WeightedRandomSampler",
    "WorkerDied",
    "WorkerInfo",
    "__version__",
    "concat_ragged",
    "get_worker_info",
    "mix",
    "random_split",
    "rebatch",
    "register_container",
    "sample_rng",
    "shard",
    "shuffle_buffer",
]


def __dir__() -> list[str]:
    """The public names, for completion; submodules are found as attributes all the same."""
    return sorted(__all__)


del tensor_converters  # imported for the tensors it registers
