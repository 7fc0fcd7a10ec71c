"""`gluonnlp.data` of GluonNLP 0.10, name for name, on the engine of `reader`.

Change `import gluonnlp` into `from reader.compat.gluon import nlp`: the names of `gluonnlp.data`
are here, and its batchify functions in `batchify`. The two samplers of GluonNLP's master branch,
BoundedBudgetSampler and ShardedIterator, are here as well.
"""

from reader.compat.gluon.nlp import batchify
from reader.compat.gluon.nlp.bptt import (
    CorpusBatchify,
    CorpusBPTTBatchify,
    StreamBPTTBatchify,
)
from reader.compat.gluon.nlp.bucket_sampler import FixedBucketSampler
from reader.compat.gluon.nlp.bucket_schemes import (
    BucketScheme,
    ConstWidthBucket,
    ExpWidthBucket,
    LinearWidthBucket,
)
from reader.compat.gluon.nlp.budget_sampler import BoundedBudgetSampler
from reader.compat.gluon.nlp.dataset_loader import DatasetLoader
from reader.compat.gluon.nlp.prefetching_stream import PrefetchingStream
from reader.compat.gluon.nlp.samplers import SortedBucketSampler, SortedSampler, SplitSampler
from reader.compat.gluon.nlp.sharded_iterator import ShardedIterator
from reader.compat.gluon.nlp.sharded_loader import ShardedDataLoader
from reader.compat.gluon.nlp.streams import (
    DatasetStream,
    DataStream,
    SimpleDatasetStream,
    SimpleDataStream,
)
from reader.compat.gluon.nlp.text_datasets import (
    ConcatDataset,
    CorpusDataset,
    NumpyDataset,
    Splitter,
    TextLineDataset,
    TSVDataset,
    line_splitter,
    whitespace_splitter,
)

__all__ = [
    "BoundedBudgetSampler",
    "BucketScheme",
    "ConcatDataset",
    "ConstWidthBucket",
    "CorpusBPTTBatchify",
    "CorpusBatchify",
    "CorpusDataset",
    "DataStream",
    "DatasetLoader",
    "DatasetStream",
    "ExpWidthBucket",
    "FixedBucketSampler",
    "LinearWidthBucket",
    "NumpyDataset",
    "PrefetchingStream",
    "ShardedDataLoader",
    "ShardedIterator",
    "SimpleDataStream",
    "SimpleDatasetStream",
    "SortedBucketSampler",
    "SortedSampler",
    "SplitSampler",
    "Splitter",
    "StreamBPTTBatchify",
    "TSVDataset",
    "TextLineDataset",
    "batchify",
    "line_splitter",
    "whitespace_splitter",
]
