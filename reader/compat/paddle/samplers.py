"""The samplers of `paddle.io`: its names, rules and texts, and its draws, bit for bit.

Imports paddle and `reader.data`. They draw from the global generators of NumPy and Paddle, which
belong to the user, in the thread that iterates, so that `np.random.seed` and `paddle.seed` repeat
an order. An order is drawn when its first index is taken, as in Paddle.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice
from typing import Any

import numpy as np
import numpy.typing as npt
import paddle.distributed
import paddle.io
from paddle.io import Sampler, SequenceSampler

from reader import data
from reader.compat.paddle.datasets import ITERABLE, paddle_permutation
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.weighted_sampler import WeightedRandomSampler
from reader.data.padded import as_even
from reader.data.sampler import in_chunks
from reader.errors import ConfigError, ConfigTypeError, SamplerError, got

__all__ = [
    "BatchSampler",
    "DistributedBatchSampler",
    "RandomSampler",
    "Sampler",
    "SequenceSampler",
    "SubsetRandomSampler",
    "WeightedRandomSampler",
]


class RandomSampler(paddle.io.RandomSampler):
    """Yield indices of a data source in random order, drawn by `numpy.random.choice`.

    An iteration keeps 8 bytes per index.

    Args:
        data_source: anything with `__len__`, which each iteration reads anew.
        replacement: whether an index may come again.
        num_samples: how many to draw; None: as many as there are.
        generator: an iterator that yields the indices instead of a draw. If it ends before
            `num_samples` indices, the epoch ends there, as Paddle's, with a UserWarning.

    Raises:
        ConfigTypeError: (a TypeError) replacement is no bool.
        ConfigError: (a ValueError) num_samples is no positive int, or more than there are.
    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Iterator[int] | None = None,
    ) -> None:
        if not isinstance(replacement, bool):
            raise ConfigTypeError(
                "expect boolean value for replacement, but got"
                f" replacement={replacement} ({type(replacement).__name__}). Pass True or False."
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator  # type: ignore[assignment, unused-ignore]
        wanted: Any = self.num_samples
        if isinstance(wanted, int) and not replacement and wanted > len(data_source):
            raise ConfigError(
                "num_samples should be smaller than or equal to length of data_source when"
                f" replacement is False, but got num_samples: {wanted} > data_source:"
                f" {len(data_source)}. Pass replacement=True to draw more."
            )
        if not isinstance(wanted, int) or wanted <= 0:
            kind = ConfigError if isinstance(wanted, (int, float)) else ConfigTypeError
            raise kind(
                "num_samples should be a positive integer, but got"
                f" num_samples={wanted}. None draws as many as the data source has."
            )
        if generator is not None and not isinstance(generator, Iterator):
            raise ConfigTypeError(
                f"generator must be an iterator of indices, got {got(generator)}. Pass iter(...),"
                " or None and numpy.random.seed."
            )

    def __iter__(self) -> Iterator[int]:
        generator: Any = self.generator
        if generator is not None:
            yield from self._given(generator)
            return
        count, wanted = len(self.data_source), self.num_samples
        if count == 0:
            raise SamplerError(
                f"num_samples={wanted} indices cannot be drawn from a data source of length 0."
                " Fill it before the epoch starts."
            )
        order = np.random.choice(count, wanted, replace=self.replacement)
        for chunk in in_chunks(order):
            yield from chunk

    def _given(self, generator: Iterator[int]) -> Iterator[int]:
        taken = 0
        for taken, index in enumerate(islice(generator, self.num_samples), 1):  # noqa: B007
            yield index
        if taken < self.num_samples:
            warnings.warn(
                f"the generator of a RandomSampler ended after {taken} of"
                f" num_samples={self.num_samples} indices, and the epoch ends there: an iterator"
                " cannot start over. Pass one that yields enough for every epoch, or"
                " generator=None.",
                stacklevel=2,
            )

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(paddle.io.SubsetRandomSampler):
    """Yield each of the given indices once, in the order that `paddle.randperm` draws.

    Args:
        indices: a sequence of dataset indices.

    Raises:
        ConfigError: (a ValueError) there are none.
    """

    def __init__(self, indices: Sequence[int]) -> None:
        if len(indices) == 0:
            raise ConfigError(
                "The length of `indices` in SubsetRandomSampler should be greater than 0. Got"
                f" {got(indices)}. Pass the indices to draw from."
            )
        self.indices = indices

    def __iter__(self) -> Iterator[int]:
        for position in paddle_permutation(len(self.indices)):
            yield self.indices[position]

    def __len__(self) -> int:
        return len(self.indices)


class BatchSampler(data.BatchSampler[Any], paddle.io.BatchSampler):
    """Group the indices of a sampler, or of a dataset, into lists of `batch_size`.

    Args:
        dataset: anything with `__len__`; excludes `sampler`.
        sampler: an iterable of indices; excludes `dataset`. A one-shot iterator serves one epoch;
            a second one is an error, where Paddle's is empty.
        shuffle: with a dataset: take a `RandomSampler` of it.
        batch_size: how many indices make a batch.
        drop_last: leave out the last batch when it is short.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work, or two that contradict.
    """

    _acc_steps = 1  # set by Paddle's automatic parallelism: how many batches to join in one list
    _is_begun = False  # whether an epoch was begun

    def __init__(
        self,
        dataset: Sized | None = None,
        sampler: Iterable[Any] | None = None,
        shuffle: bool = False,
        batch_size: int = 1,
        drop_last: bool = False,
    ) -> None:
        self.sampler = _sampler_of(dataset, sampler, shuffle)
        self.batch_size = _as_batch_size(batch_size)
        self.shuffle = shuffle
        if not isinstance(drop_last, bool):
            raise ArgumentError(
                f"drop_last should be a boolean value, but got {type(drop_last)}:"
                f" {got(drop_last)}. Pass True or False."
            )
        self.drop_last = drop_last

    def __iter__(self) -> Iterator[list[Any]]:
        size = self.batch_size * self._acc_steps
        is_again, self._is_begun = self._is_begun, True
        indices = iter(self.sampler)
        batch = list(islice(indices, size))
        if not batch and is_again and isinstance(self.sampler, Iterator):
            raise SamplerError(
                f"the sampler of a BatchSampler is a one-shot iterator, {got(self.sampler)}, and"
                " was exhausted by an earlier epoch. Pass a list, or an object whose __iter__"
                " returns a fresh iterator for each epoch."
            )
        while len(batch) == size:
            yield batch
            batch = list(islice(indices, size))
        if batch and not self.drop_last:
            yield batch

    def __len__(self) -> int:
        size = self.batch_size * self._acc_steps
        count = len(self.sampler)  # type: ignore[arg-type]
        return count // size if self.drop_last else -(-count // size)


def _sampler_of(dataset: Any, sampler: Any, shuffle: Any) -> Any:
    """Return the sampler of a batch sampler. Checks the arguments in Paddle's order."""
    if dataset is None:
        if sampler is None:
            raise ArgumentError(
                "either dataset or sampler should be set: got None for both. Pass one of them."
            )
        if not isinstance(sampler, (Sampler, Iterable)) or isinstance(sampler, type):
            raise ArgumentError(
                "sampler should be either paddle.io.Sampler or Iterable, but got"
                f" {type(sampler)}: {got(sampler)}. Pass a list of indices."
            )
        if shuffle:
            raise ArgumentError(
                f"shuffle should be False when sampler is set: got {got(shuffle)}. Let the sampler"
                " shuffle."
            )
        return sampler
    if isinstance(dataset, ITERABLE):
        raise ArgumentError(
            f"dataset should not be a paddle.io.IterableDataset: got {got(dataset)}, which has no"
            " indices. Pass it to the DataLoader, with batch_size."
        )
    if sampler is not None:
        raise ArgumentError(
            "should not set both dataset and sampler: got both. Leave out one of them."
        )
    if not isinstance(shuffle, bool):
        raise ArgumentError(
            f"shuffle should be a boolean value, but got {type(shuffle)}: {got(shuffle)}. Pass"
            " True or False."
        )
    return RandomSampler(dataset) if shuffle else SequenceSampler(dataset)


def _as_batch_size(batch_size: Any) -> int:
    if not isinstance(batch_size, int) or batch_size <= 0:
        raise ArgumentError(
            f"batch_size should be a positive integer, but got {batch_size}"
            f" ({type(batch_size).__name__}). A batch holds one sample or more."
        )
    return batch_size


class DistributedBatchSampler(
    data.DistributedBatchSampler,
    BatchSampler,
    paddle.io.DistributedBatchSampler,
):
    """Yield the batches of one rank: all ranks take equally many, and together every sample.

    Args:
        dataset: anything with `__len__`, of the same length in every process.
        batch_size: how many samples make a batch of one rank.
        num_replicas: how many processes take part; None: as `paddle.distributed` says.
        rank: the number of this process; None: as `paddle.distributed` says.
        shuffle: take another order in each epoch, that of `numpy.random.RandomState(epoch)`; each
            iteration increments `epoch`, and `set_epoch` sets it.
        drop_last: leave out the last batch when it is short.

    Raises:
        ArgumentError: (an AssertionError) an argument that cannot work.
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        num_replicas: int | None = None,
        rank: int | None = None,
        shuffle: bool = False,
        drop_last: bool = False,
    ) -> None:
        self.dataset = dataset
        if not isinstance(batch_size, int) or batch_size <= 0:
            raise _refused("batch_size should be a positive integer", batch_size)
        if not isinstance(shuffle, bool):
            raise _refused("shuffle should be a boolean value", shuffle)
        if not isinstance(drop_last, bool):
            raise _refused("drop_last should be a boolean number", drop_last)
        if num_replicas is None:
            num_replicas = _environment().nranks
        elif not isinstance(num_replicas, int) or num_replicas <= 0:
            raise _refused("num_replicas should be a positive integer", num_replicas)
        if rank is None:
            rank = _environment().local_rank
        elif not isinstance(rank, int) or rank < 0:
            raise _refused("rank should be a non-negative integer", rank)
        if rank >= num_replicas:
            raise ArgumentError(
                f"rank must be below num_replicas: got rank={rank} with"
                f" num_replicas={num_replicas}. Ranks count from 0 to {num_replicas - 1}."
            )
        self.batch_size = batch_size
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.nranks = num_replicas
        self.local_rank = rank
        self.even = as_even(None, dataset=dataset)
        self._set_sizes()

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch whose order the next iteration takes."""
        self.epoch = epoch

    def __iter__(self) -> Iterator[list[int]]:
        # A generator: like Paddle's, it increments `epoch` when the first batch is taken.
        yield from super().__iter__()

    def _shuffled(self, epoch: int) -> npt.NDArray[np.int64]:
        order = np.arange(self.total_size)
        np.random.RandomState(epoch).shuffle(order)
        return order


def _environment() -> Any:
    """Return what `paddle.distributed` knows of this process, as its launcher set it."""
    distributed: Any = paddle.distributed
    return distributed.ParallelEnv()


def _refused(text: str, value: object) -> ArgumentError:
    """Return the error with Paddle's sentence, the refused value after it."""
    return ArgumentError(f"{text}: got {got(value)}. Give one as in Paddle's documentation.")
