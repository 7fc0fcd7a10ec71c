"""GluonNLP's data, name for name, on the engine of `reader`."""

from reader.compat.gluon.nlp import batchify
from reader.compat.gluon.nlp.bucket_sampler import FixedBucketSampler
from reader.compat.gluon.nlp.dataset_loader import DatasetLoader
from reader.compat.gluon.nlp.sharded_loader import ShardedDataLoader
