"""Prefetched epochs: whether one is still the right one when it is asked for."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reader import BatchSampler, DataLoader, DistributedBatchSampler, Subset
from tests.datasets import Rows

AHEAD: dict[str, Any] = {
    "num_workers": 1, "persistent_workers": True, "prefetch_next_epoch": True,
}  # fmt: skip


class Counted:
    """A sampler that counts how often it begins."""

    def __init__(self, **attributes: Any) -> None:
        self.begun = 0
        self.__dict__.update(attributes)

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return 8

    def __iter__(self) -> Any:
        self.begun += 1
        return iter(range(8))


class Epoch(Rows):
    epoch: Any = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_sampler_begins_once_per_epoch_if_no_epoch_is_chosen() -> None:
    sampler = Counted()
    with DataLoader(Rows(8), sampler=sampler, batch_size=4, **AHEAD) as loader:
        for epoch in range(4):
            list(loader)
            assert sampler.begun == epoch + 2


def test_choosing_the_same_epoch_keeps_the_prefetched_one() -> None:
    sampler = Counted(epoch=3)
    with DataLoader(Rows(8), sampler=sampler, batch_size=4, **AHEAD) as loader:
        for epoch in range(4):
            sampler.set_epoch(3)
            list(loader)
            assert sampler.begun == epoch + 2


@pytest.mark.parametrize("where", ["sampler", "batch sampler", "dataset", "inside a dataset"])
def test_choosing_another_epoch_drops_the_prefetched_one(where: str) -> None:
    sampler, dataset = Counted(epoch=0), Epoch(8)
    options: dict[str, Any] = {"sampler": sampler, "batch_size": 4}
    if where == "batch sampler":
        options = {"batch_sampler": BatchSampler(sampler, 4)}
    chosen: Any = dataset if "dataset" in where else sampler
    given: Any = Subset(dataset, range(8)) if where == "inside a dataset" else dataset
    with DataLoader(given, **options, **AHEAD) as loader:
        list(loader)
        begun = sampler.begun
        chosen.set_epoch(5)
        iter(loader)
        assert sampler.begun == begun + 1


def test_own_count_of_a_sampler_is_the_same_without_prefetching() -> None:
    found = []
    for ahead in (False, True):
        sampler = DistributedBatchSampler(Rows(8), 4, 1, 0, shuffle=True)
        with DataLoader(
            Rows(8), batch_sampler=sampler, num_workers=1, persistent_workers=True,
            prefetch_next_epoch=ahead,
        ) as loader:  # fmt: skip
            orders = []
            for epoch in (0, 1, 2, 7, 8):
                sampler.set_epoch(epoch)
                orders.append([b[1].tolist() for b in loader])
            found.append(orders)
    assert found[0] == found[1]


@pytest.mark.parametrize("odd", [None, "x", float("nan"), np.arange(3)], ids=str)
def test_odd_epochs_of_users_objects_do_no_harm(odd: Any) -> None:
    sampler, dataset = Counted(epoch=odd), Epoch(8)
    dataset.epoch = odd
    with DataLoader(dataset, sampler=sampler, batch_size=4, **AHEAD) as loader:
        for _ in range(3):
            assert len(list(loader)) == 2
