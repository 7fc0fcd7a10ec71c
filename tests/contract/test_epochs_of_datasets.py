"""Datasets that have other samples in each epoch: the loader that reads them counts the epochs."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Mix, PackedTokens, Padded, Subset

Cell = dict[str, Any]


def packed(seed: int | None = 1) -> PackedTokens:
    lengths = np.random.default_rng(0).integers(1, 40, 300)
    starts = np.cumsum(lengths)
    return PackedTokens([np.arange(stop - n, stop) for n, stop in zip(lengths, starts)], 64, seed)


def mixed() -> Mix:
    return Mix({"a": np.arange(90), "b": 1_000 + np.arange(200)}, [2, 1], stop="last", seed=3)


def by_hand(dataset: Any, epoch: int) -> list[list[int]]:
    """Return the samples of an epoch, that a dataset gives outside of a loader."""
    dataset.set_epoch(epoch)
    return [listed(dataset[index]) for index in range(len(dataset))]


def listed(sample: Any) -> list[int]:
    found = sample["tokens"] if isinstance(sample, dict) else sample
    return np.ravel(found).tolist()  # type: ignore[no-any-return]


def given(batches: Any) -> list[list[int]]:
    """Return the samples of batches."""
    tokens = [batch["tokens"] if isinstance(batch, dict) else batch for batch in batches]
    return [np.ravel(row).tolist() for each in tokens for row in np.asarray(each)]


@pytest.mark.parametrize("make", [packed, mixed])
def test_each_epoch_of_a_loader_has_its_samples(make: Any, each_cell: Cell) -> None:
    wanted = [by_hand(make(), epoch) for epoch in range(3)]
    assert wanted[0] != wanted[1] != wanted[2] != wanted[0]
    with DataLoader(make(), batch_size=8, **each_cell) as loader:
        assert [given(loader) for _ in range(3)] == wanted


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True, "prefetch_next_epoch": True},
        {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
        {"num_workers": 1, "start_method": "spawn"},
    ],
)
def test_two_loaders_at_different_epochs_share_a_dataset(options: Cell) -> None:
    rows = packed()
    wanted = [by_hand(packed(), epoch) for epoch in range(4)]
    first = DataLoader(rows, batch_size=8, **options)
    second = DataLoader(rows, batch_size=8, **options)
    second.set_epoch(2)
    with first, second:
        for epoch in range(2):
            pairs = list(zip(first, second, strict=True))
            assert given(one for one, _ in pairs) == wanted[epoch]
            assert given(other for _, other in pairs) == wanted[epoch + 2]


def test_an_epoch_goes_on_where_its_state_says(each_cell: Cell) -> None:
    with DataLoader(packed(), batch_size=4, shuffle=True, seed=2, **each_cell) as loader:
        whole = [given(loader) for _ in range(4)]
        loader.set_epoch(2)
        batches = iter(loader)
        begun = given(next(batches) for _ in range(3))
        state = json.loads(json.dumps(loader.state_dict()))
        batches.close()
    assert begun == whole[2][:12]
    with DataLoader(packed(), batch_size=4, shuffle=True, seed=2) as again:
        again.load_state_dict(state)
        assert given(again) == whole[2][12:]
        assert given(again) == whole[3]
        assert given([again.replay(1, epoch=1)]) == whole[1][4:8]


def test_the_number_of_an_epoch_chosen_once_counts_on() -> None:
    loader = DataLoader(packed(), batch_size=8)
    loader.set_epoch(5)
    assert [given(loader) for _ in range(2)] == [by_hand(packed(), epoch) for epoch in (5, 6)]


class Chosen:
    """A dataset around another one, in an attribute of any name, without `set_epoch`."""

    def __init__(self, rows: Any) -> None:
        self.rows = rows

    def __getitem__(self, index: int) -> Any:
        return self.rows[index]

    def __len__(self) -> int:
        return len(self.rows)


@pytest.mark.parametrize(
    "around", [Chosen, lambda rows: Subset(rows, range(len(rows))), lambda rows: Mix([rows], [1])]
)
def test_datasets_around_it_need_not_know(around: Any, each_cell: Cell) -> None:
    rows = packed()
    with DataLoader(around(rows), batch_size=8, **each_cell) as loader:
        assert [given(loader) for _ in range(2)] == [by_hand(packed(), epoch) for epoch in (0, 1)]


def test_rows_that_are_padded_follow_too() -> None:
    loader = DataLoader(Padded(packed()), batch_size=8)
    epochs = [given(loader) for _ in range(2)]
    assert epochs == [by_hand(packed(), epoch) for epoch in (0, 1)]


def test_origins_are_those_of_the_epoch_that_was_begun() -> None:
    mix = mixed()
    loader = DataLoader(mix, batch_size=8)
    for _ in range(3):
        values = np.concatenate(list(loader))
    for index, value in enumerate(values):
        source, position, _ = mix.origin(index)
        assert mix.datasets["ab".index(str(source))][position] == value


def test_set_epoch_of_a_dataset_in_a_loader_that_counts_is_told() -> None:
    rows = packed()
    rows.set_epoch(3)
    loader = DataLoader(rows, batch_size=8)
    with pytest.warns(UserWarning, match=r"set_epoch\(3\) of PackedTokens has no effect.*epoch 0"):
        assert given(loader) == by_hand(packed(), 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert given(loader) == by_hand(packed(), 1)
        rows.set_epoch(2)  # what the loader counts itself
        assert given(loader) == by_hand(packed(), 2)
        plain = packed(None)
        plain.set_epoch(3)  # changes nothing
        list(DataLoader(plain, batch_size=8))
