"""What a batch is made from: datasets, samplers, batch samplers, seeds and failures.

This room runs anywhere, in the trainer and in workers, and starts no process or thread. It may
import `reader.errors`, `reader.config` and `reader._core`. Its objects belong to who made them.
"""

from reader.data.batch_sampler import BatchSampler, NoBatching
from reader.data.dataset import Dataset
from reader.data.sampler import RandomSampler, Sampler, SequenceSampler

__all__ = [
    "BatchSampler",
    "Dataset",
    "NoBatching",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
]
