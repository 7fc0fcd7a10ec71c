"""A map-style dataset that makes each sample once, and finds it in a cache later.

Imports the cache and the dataset's base class. Workers share the cache, not this object.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from reader.caching.sample_cache import MISSING, SampleCache
from reader.caching.sample_form import encode, is_alike
from reader.checks import described
from reader.data.columns import filler_of
from reader.data.dataset import Dataset
from reader.data.pure_samples import has_pure_samples
from reader.data.wrapped import fetch_many, if_any_has, own_of_all, set_epoch_of
from reader.errors import DatasetError
from reader.worker.context import no_sample_rng

__all__ = ["CachedDataset", "cache_stats", "caches_of", "sum_of"]


class CachedDataset(Dataset[Any]):
    """The samples of another dataset, each made once; made by `reader.cache`.

    Args:
        dataset: a map-style dataset, whose samples are always the same.
        cache: of as many samples as it has.
        check: the share of cached samples to make again and compare.
    """

    __repr__ = described

    def __init__(self, dataset: Any, cache: SampleCache, check: float = 0) -> None:
        self.dataset = dataset
        self._cache = cache
        self._every = round(1 / check) if check else 0

    def __getitem__(self, index: int, out: Any = None) -> Any:
        """Return the sample at `index`: as the dataset made it, and the caller's own.

        Args:
            index: of the sample. A key that is no index from 0 on goes to the dataset, and its
                sample is not kept.
            out: None, or the containers of a sample with arrays to write to, as a loader passes.
        """
        number = self._number(index)
        if number < 0:
            return self.dataset[index]
        sample = self._cache.get(number, out=out)
        if sample is MISSING:
            fill = filler_of(self.dataset)
            with no_sample_rng(_RANDOM):
                sample = self.dataset[index] if fill is None else fill(index, out)
            self._cache.keep(number, sample)
        elif self._cache.is_due(self._every):
            self._check(number, sample)
        return sample

    @property
    def __getitems__(self) -> Callable[[Sequence[int]], list[Any]]:
        """Fetch many samples; exists only if the dataset has the method."""
        return if_any_has("__getitems__", [self.dataset], self._fetch)

    def _fetch(self, indices: Sequence[int]) -> list[Any]:
        numbers = [self._number(index) for index in indices]
        samples = [MISSING if number < 0 else self._cache.get(number) for number in numbers]
        missing = [place for place, sample in enumerate(samples) if sample is MISSING]
        if missing:
            with no_sample_rng(_RANDOM):
                made = fetch_many(self.dataset, [indices[place] for place in missing])
            for place, sample in zip(missing, made):
                samples[place] = sample
                if numbers[place] >= 0:
                    self._cache.keep(numbers[place], sample)
        for place in sorted(set(range(len(samples))) - set(missing)):
            if self._cache.is_due(self._every):
                self._check(numbers[place], samples[place])
        return samples

    def __len__(self) -> int:
        return len(self.dataset)

    @property
    def has_pure_samples(self) -> bool:
        """Whether the dataset's samples are pure: cached ones are too, then."""
        return has_pure_samples(self.dataset)

    def set_epoch(self, epoch: int) -> None:
        """Pass the number of the epoch to the dataset, if it has `set_epoch`."""
        set_epoch_of(epoch, self.dataset)

    def _number(self, index: Any) -> int:
        """Return the number of a sample in the cache; -1: it has none."""
        try:
            number = operator.index(index)
        except TypeError:
            return -1
        return number if 0 <= number < len(self._cache) else -1

    def _check(self, number: int, sample: Any) -> None:
        """Compare a sample with one that is made again. DatasetError: they differ."""
        with no_sample_rng(_RANDOM):
            again = self.dataset[number]
        kept, made = encode(sample), encode(again)
        is_same = kept[0] == made[0] and is_alike(sample, again)
        if not is_same or any(map(_differ, kept[1], made[1])):
            raise DatasetError(
                f"sample {number} of {type(self.dataset).__name__} was kept by a cache, and is"
                " another one when it is made again: keep the part that is always the same, and do"
                " what is random after it, reader.cache(dataset).map(function)"
            )


_RANDOM = (
    "within a cache: what is kept would be the same in each epoch. Do what is random after it,"
    " reader.cache(dataset).map(function)"
)


def cache_stats(dataset: Any) -> dict[str, int] | None:
    """Return the counts of a dataset's caches, and of those in wrapped ones; None: it has none."""
    return sum_of(caches_of(dataset))


def sum_of(caches: list[SampleCache]) -> dict[str, int] | None:
    """Return the summed counts of caches; None: there are none."""
    if not caches:
        return None
    sums: dict[str, int] = {}
    for cache in caches:
        for name, number in cache.stats().items():
            sums[name] = sums.get(name, 0) + number
    return sums


def caches_of(dataset: Any) -> list[SampleCache]:
    """Return the caches in a dataset and in those that it wraps."""
    return own_of_all(dataset, "_cache", SampleCache)


def _differ(one: Any, other: Any) -> bool:
    return not np.array_equal(np.frombuffer(one, np.uint8), np.frombuffer(other, np.uint8))
