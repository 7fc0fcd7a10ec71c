"""Subsets of a dataset, and how to split one at random.

Imports `reader.checks`, `reader.random` and the datasets. A Subset holds the whole
dataset, in `dataset`, and a list of indices; it copies no sample.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from reader.checks import as_int, described, refuse_mask, refuse_text
from reader.config import SEED_LIMIT
from reader.data.dataset import Dataset
from reader.data.fingerprint import digest_of, fingerprint_of
from reader.data.wrapped import fetch_many, set_epoch_of
from reader.errors import ConfigError, ConfigTypeError, got
from reader.random.seeds import order_rng

__all__ = ["Subset", "random_split"]

T_co = TypeVar("T_co", covariant=True)


class Subset(Dataset[T_co]):
    """Hold the samples of a dataset that a list of indices names, in its order.

    Args:
        dataset: a map-style dataset.
        indices: a sequence of its indices.

    Raises:
        ConfigTypeError: the dataset is a text, or the indices are a mask or a text.

    >>> Subset(list("abcd"), [3, 1])[0]
    'd'
    """

    __repr__ = described

    def __init__(self, dataset: Any, indices: Sequence[int]) -> None:
        refuse_text("Subset takes a dataset", dataset)
        if isinstance(indices, (str, bytes)):
            raise ConfigTypeError(
                f"indices must be a list of dataset indices, got {got(indices)}. Pass ints"
            )
        refuse_mask(indices)
        self.dataset = dataset
        self.indices = indices

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return a digest of the indices, and what they are indices of; see `fingerprint_of`."""
        count = len(self.indices) if samples is None else samples
        facts = {"kind": "Subset", "samples": count, "indices": digest_of(self.indices[:count])}
        return {**facts, "of": fingerprint_of(self.dataset)}

    def __getitem__(self, index: int, /) -> T_co:
        sample: T_co = self.dataset[self.indices[index]]
        return sample

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[T_co]]:
        """Fetch many samples; exists only if the dataset has the method."""
        if not hasattr(self.dataset, "__getitems__"):
            raise AttributeError("the dataset of this Subset has no __getitems__")
        return self._fetch

    def _fetch(self, indices: Sequence[int]) -> list[T_co]:
        return fetch_many(self.dataset, [self.indices[index] for index in indices])

    def __len__(self) -> int:
        return len(self.indices)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the dataset, if it has `set_epoch`."""
        set_epoch_of(epoch, self.dataset)


def random_split(
    dataset: Any,
    lengths: Sequence[float],
    generator: int | np.random.Generator | np.random.RandomState | None = None,
) -> list[Subset[Any]]:
    """Split a dataset into subsets of the given lengths, each sample in exactly one of them.

    Args:
        dataset: a map-style dataset.
        lengths: how many samples each subset gets, together all there are; or fractions that sum to
            1. Fractions are rounded down, and the remaining samples go one each to the first
            subsets; an empty subset is worth a UserWarning.
        generator: an int in [0, 2**64), from which the split follows; a NumPy generator to draw
            from; None: another split each time, and no global random state is touched.

    Raises:
        ConfigError: the lengths do not fit the dataset.

    >>> parts = random_split(list("abcdefghij"), [0.7, 0.3], generator=1)
    >>> [len(part) for part in parts], len(set(itertools.chain(*parts)))
    ([7, 3], 10)
    """
    refuse_text("random_split takes a dataset", dataset)
    lengths = split_lengths(len(dataset), lengths)
    return split(Subset, dataset, lengths, draw_permutation(len(dataset), generator))


def split_lengths(count: int, lengths: Sequence[float]) -> list[int]:
    """Return how many of `count` samples each subset gets, checked. Warns of empty ones."""
    try:
        total = math.fsum(lengths)
    except TypeError:
        raise ConfigTypeError(
            f"lengths must be a list of numbers, got {got(lengths)}. Pass whole numbers that sum"
            f" to {count}, or fractions that sum to 1."
        ) from None
    if math.isclose(total, 1):
        return _from_fractions(count, lengths)
    remedy = "Pass whole numbers of samples, or fractions that sum to 1."
    sizes = [
        as_int(f"lengths[{position}]", length, low=0, remedy=remedy)
        for position, length in enumerate(lengths)
    ]
    if sum(sizes) != count:
        raise ConfigError(
            "Sum of input lengths does not equal the length of the input dataset! Got"
            f" {got(lengths)}, which sum to {sum(sizes)}, for {count} samples. {remedy}"
        )
    return sizes


def _from_fractions(count: int, fractions: Sequence[float]) -> list[int]:
    for position, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ConfigError(
                f"Fraction at index {position} is not between 0 and 1: got {got(fraction)}. Pass"
                " fractions that sum to 1, or whole numbers of samples."
            )
    sizes = [math.floor(count * fraction) for fraction in fractions]
    for extra in range(count - sum(sizes)):
        sizes[extra % len(sizes)] += 1
    for position, size in enumerate(sizes):
        if size == 0:
            warnings.warn(
                f"Length of split at index {position} is 0. This might result in an empty"
                f" dataset: {fractions[position]} of {count} samples is less than one.",
                stacklevel=4,
            )
    return sizes


def draw_permutation(count: int, generator: Any) -> list[int]:
    """Return 0 .. count - 1 in random order, as the `generator` of `random_split` says."""
    if isinstance(generator, (np.random.Generator, np.random.RandomState)):
        order = generator.permutation(count)
    else:
        if generator is not None:
            remedy = "Or pass a numpy.random.Generator, or None for another split each time."
            generator = as_int("generator", generator, low=0, high=SEED_LIMIT - 1, remedy=remedy)
        order = order_rng(generator, 0).permutation(count)
    indices: list[int] = order.tolist()
    return indices


_Subset = TypeVar("_Subset")


def split(
    make: Callable[[Any, list[int]], _Subset], dataset: Any, lengths: list[int], order: list[int]
) -> list[_Subset]:
    """Split `order` into runs of the `lengths`, and make a subset of each."""
    ends = itertools.accumulate(lengths)
    return [make(dataset, order[end - length : end]) for end, length in zip(ends, lengths)]
