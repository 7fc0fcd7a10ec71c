"""Batches, order and length of map-style data: PyTorch's loader and ours, to the last bit.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
import torch.utils.data as data

from reader.compat.torch import DataLoader
from tests.names import shown
from tests.peers.torch_parity import check_same, recorded, told
from tests.peers.torch_samples import (
    Augmented,
    Batched,
    Remembers,
    Rows,
    Seeds,
    Stream,
    add_to_dataset,
    doubled,
    generator,
    sum_of,
)

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])
SOME = pytest.mark.parametrize("workers", [0, 2])  # if only the order matters: forks cost time


class Fails(Augmented):
    """Has samples that raise."""

    def __init__(self, failing: Any) -> None:
        super().__init__(20)
        self.failing = failing

    def __getitem__(self, index: int) -> Any:
        sample = super().__getitem__(index)
        if index in self.failing:
            raise ValueError(index)
        return sample


def taken_of(batches: Any) -> Any:
    """The next batch, or a note that it failed."""
    try:
        return next(batches)
    except ValueError:
        return "failed"


def test_recorded_results_of_pytorch_are_used(request: pytest.FixtureRequest) -> None:
    """Otherwise its loader runs again in every test, which takes minutes unnoticed."""

    def act(loader: Any) -> Any:
        return list(loader(range(7), 3))

    if request.config.getoption("peers") == "recorded":
        assert recorded.acts.have(repr(told(act, DataLoader)))
    else:
        check_same(act)


@pytest.mark.sampled(4)
@WORKERS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"batch_size": 4},
        {"batch_size": 4, "drop_last": True},
        {"batch_size": 4, "shuffle": True},
        {"batch_size": None},
        {"batch_size": None, "shuffle": True},
        {"batch_size": 30},
        {"batch_size": 30, "drop_last": True},
        {"batch_size": 3, "collate_fn": sum_of},
        {"batch_size": None, "collate_fn": doubled},
        {"batch_size": 3, "prefetch_factor": 1},
        {"batch_size": 3, "prefetch_factor": 7, "in_order": True},
    ],
    ids=shown,
)
def test_batches_and_length_are_the_same(options: dict[str, Any], workers: int) -> None:
    if not workers:
        options = {key: value for key, value in options.items() if key != "prefetch_factor"}

    def act(loader: Any) -> Any:
        made = loader(Rows(), num_workers=workers, **options)
        return [len(made), [list(made) for _ in range(2)], len(made)]

    check_same(act)


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_random_draws_of_workers_are_the_same_over_epochs(workers: int, persistent: bool) -> None:
    persistent = persistent and workers > 0

    def act(loader: Any) -> Any:
        made = loader(Augmented(), 3, True, num_workers=workers, persistent_workers=persistent)
        return [[list(made), torch.rand(1)] for _ in range(3)]

    check_same(act)


@pytest.mark.parametrize("prefetch", [1, 4])
@pytest.mark.parametrize("dataset", [Augmented(40), Stream(9, 7)], ids=["map", "stream"])
def test_epochs_that_are_left_early_draw_the_same_in_workers_that_stay(
    dataset: Any, prefetch: int
) -> None:
    def act(loader: Any) -> Any:
        options = {"prefetch_factor": prefetch, "persistent_workers": True}
        made = loader(dataset, 2, num_workers=2, **options)
        return [list(itertools.islice(made, taken)) for taken in (3, 1, 2, 5)]

    check_same(act)


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("failing", [range(20), (3, 11)], ids=["all", "some"])
def test_epochs_that_are_left_at_an_error_go_on_the_same(failing: Any, persistent: bool) -> None:
    def act(loader: Any) -> Any:
        own = generator()
        sampler = data.RandomSampler(range(20), generator=own)
        options = {"num_workers": 2, "persistent_workers": persistent}
        made = loader(Fails(failing), 3, sampler=sampler, **options)
        epochs = []
        for taken in (3, 2, 7):
            batches = iter(made)
            epochs.append([taken_of(batches) for _ in range(taken)])
            del batches
        return [epochs, own.get_state()]

    check_same(act)


@WORKERS
def test_generator_decides_order_and_seeds_and_goes_on_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        own = generator()
        made = loader(Augmented(), 3, True, num_workers=workers, generator=own)
        return [[list(made), own.get_state()] for _ in range(3)]

    check_same(act)


@WORKERS
@pytest.mark.parametrize("persistent", [False, True])
def test_worker_info_is_the_same(workers: int, persistent: bool) -> None:
    def act(loader: Any) -> Any:
        options = {"persistent_workers": persistent and workers > 0}
        made = loader(Seeds(), 2, num_workers=workers, **options)
        return [list(made), list(made), data.get_worker_info()]

    check_same(act)


@pytest.mark.parametrize("persistent", [False, True])
def test_worker_init_fn_changes_the_same_workers(persistent: bool) -> None:
    def act(loader: Any) -> Any:
        made = loader(
            Remembers(),
            2,
            num_workers=3,
            worker_init_fn=add_to_dataset,
            persistent_workers=persistent,
        )
        return [list(made), list(made)]

    check_same(act)


@SOME
def test_datasets_that_fetch_whole_batches_are_asked_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        whole = list(loader(Batched(), 4, num_workers=workers))
        return [whole, list(loader(Batched(), None, num_workers=workers))]

    check_same(act)


@SOME
def test_dataset_that_grows_has_the_same_epochs(workers: int) -> None:
    def act(loader: Any) -> Any:
        rows = Rows(3)
        made = loader(rows, 2, num_workers=workers)
        found = [len(made)]
        for _ in range(2):
            rows.count += 2
            found += [len(made), list(made)]
        return found

    check_same(act)
