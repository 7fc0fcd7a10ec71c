"""`mx.gluon.data`, name for name, on the engine of `reader`, and GluonNLP's data in `nlp`.

Change `from mxnet.gluon.data import DataLoader` into `from reader.compat.gluon import DataLoader`;
nothing else of a program changes. Imports mxnet when an array is made, where it is installed.
docs/gluon.md says, line by line, what is the same and what is better.
"""

from reader.compat.gluon import batchify, nlp, recordio, vision
from reader.compat.gluon.batch_sampler import BatchSampler
from reader.compat.gluon.collate import default_batchify_fn, default_mp_batchify_fn
from reader.compat.gluon.datasets import (
    ArrayDataset,
    Dataset,
    RecordFileDataset,
    SimpleDataset,
)
from reader.compat.gluon.loader import DataLoader, DataLoaderV1
from reader.compat.gluon.nlp.bucket_sampler import FixedBucketSampler
from reader.compat.gluon.nlp.sharded_loader import ShardedDataLoader
from reader.compat.gluon.samplers import (
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

__all__ = [
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "DataLoaderV1",
    "Dataset",
    "FilterSampler",
    "FixedBucketSampler",
    "IntervalSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "ShardedDataLoader",
    "SimpleDataset",
    "batchify",
    "default_batchify_fn",
    "default_mp_batchify_fn",
    "nlp",
    "recordio",
    "vision",
]
