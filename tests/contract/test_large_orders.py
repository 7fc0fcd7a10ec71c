"""A billion samples in random order: no list of them, no array, and the first batch at once."""

from __future__ import annotations

import tracemalloc
from itertools import islice

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, Dataset, DistributedSampler, RandomSampler

COUNT = 10**9


class Numbers(Dataset[int]):
    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> int:
        assert type(index) is int
        return index


def first_batches(loader: DataLoader, epochs: int) -> list[list[int]]:
    tracemalloc.start()
    try:
        found = [[int(n) for batch in islice(loader, 2) for n in batch] for _ in range(epochs)]
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 << 20
    return found


@pytest.mark.parametrize("num_workers", [0, 2])
def test_an_epoch_over_a_billion_samples_begins_at_once(num_workers: int) -> None:
    with DataLoader(
        Numbers(), batch_size=32, shuffle=True, seed=1, num_workers=num_workers
    ) as loader:
        assert len(loader) == COUNT // 32
        epochs = first_batches(loader, 2)
    sampler = RandomSampler(range(COUNT), seed=1)
    for epoch, found in enumerate(epochs):
        sampler.set_epoch(epoch)
        assert found == list(islice(sampler, 64))
        assert np.ptp(found) > COUNT // 2


def test_an_epoch_over_a_billion_samples_opens_near_its_end_at_once() -> None:
    """Resume as a loader does: the batches of one rank from nine tenths on."""
    sampler = DistributedSampler(range(COUNT), 4, 3, seed=1)
    batches = BatchSampler(sampler, 1000)
    rest = batches.iter_from(225_000)
    with DataLoader(Numbers(), batch_sampler=list(islice(rest, 2)), num_workers=0) as loader:
        (found,) = first_batches(loader, 1)
    sampler.set_epoch(0)
    assert found == list(islice(sampler.iter_from(225_000_000), 2000))
    assert sum(1 for _ in batches.iter_from(249_990)) == 10
