"""What a batch is made from: datasets, samplers and batch samplers.

This package runs anywhere, in the trainer and in workers, and starts no process or thread. It may
import errors, checks, config, available_memory, `reader._core` and `reader.random`. Its objects are
their maker's.
"""

from reader.data import tensor_converters
from reader.data.batch_sampler import BatchSampler, NoBatching
from reader.data.bucket_batch_sampler import BucketBatchSampler
from reader.data.dataset import Dataset
from reader.data.datasets import ChainDataset, ComposeDataset, ConcatDataset, TensorDataset
from reader.data.distributed_batch_sampler import DistributedBatchSampler
from reader.data.distributed_sampler import DistributedSampler
from reader.data.iterable import IterableDataset
from reader.data.ragged import RaggedFields, concat_ragged
from reader.data.record_io import RecordIO, RecordWriter
from reader.data.sampler import RandomSampler, Sampler, SequenceSampler, SubsetRandomSampler
from reader.data.subset import Subset, random_split
from reader.data.table_rows import TableRows
from reader.data.token_windows import TokenWindows
from reader.data.weighted_sampler import WeightedRandomSampler

__all__ = [
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

tensor_converters.register_known_libraries()
