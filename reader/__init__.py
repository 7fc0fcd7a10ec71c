"""Feed a training step from a Python dataset at memory speed.

The public names live here; everything else is private. Importing this module imports no
deep-learning framework and touches no state of the process.
"""

from reader._core.blocking_queue import BlockingQueue
from reader._core.structure import register_container
from reader._core.tensor import LoDTensor, LoDTensorArray
from reader._version import __version__
from reader.data import BatchSampler, Dataset, RandomSampler, Sampler, SequenceSampler, foreign
from reader.errors import (
    ArenaFull,
    CollateError,
    ConfigError,
    ConfigTypeError,
    DatasetError,
    InternalError,
    LoadTimeout,
    QueueClosed,
    QueueKilled,
    ReaderError,
    SampleIndexError,
    SamplerError,
    WorkerDied,
)
from reader.loader import DataLoader
from reader.workers.context import WorkerInfo, get_worker_info, sample_rng

__all__ = [
    "ArenaFull",
    "BatchSampler",
    "BlockingQueue",
    "CollateError",
    "ConfigError",
    "ConfigTypeError",
    "DataLoader",
    "Dataset",
    "DatasetError",
    "InternalError",
    "LoDTensor",
    "LoDTensorArray",
    "LoadTimeout",
    "QueueClosed",
    "QueueKilled",
    "RandomSampler",
    "ReaderError",
    "SampleIndexError",
    "Sampler",
    "SamplerError",
    "SequenceSampler",
    "WorkerDied",
    "WorkerInfo",
    "__version__",
    "get_worker_info",
    "register_container",
    "sample_rng",
]

del foreign  # imported for the tensors it registers
