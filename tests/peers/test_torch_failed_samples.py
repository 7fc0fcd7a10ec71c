"""Samples that fail, in the torch face."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reader import DatasetError
from reader.compat.torch import DataLoader, StatefulDataLoader
from tests.contract.test_failed_samples import BAD, Files

WAYS: list[dict[str, Any]] = [
    {},
    {"num_workers": 2},
    {"num_workers": 2, "persistent_workers": True},
    {"num_workers": 2, "worker_type": "thread"},
]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", [DataLoader, StatefulDataLoader])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_batches_go_on_without_failed_samples(
    way: dict[str, Any], kind: Any, on_error: str
) -> None:
    loader = kind(Files(), batch_size=8, on_error=on_error, error_budget=4, **way)
    for epoch in range(2):
        batches = list(loader)
        assert all(isinstance(numbers, torch.Tensor) for _, numbers in batches)
        numbers = [int(number) for _, numbers in batches for number in numbers]
        left = [number for number in range(64) if number not in BAD]
        if on_error == "skip":
            assert numbers == left
        else:
            assert len(numbers) == 64
            assert set(numbers) == set(left)
        assert [error.index for error in loader.errors] == [*BAD] * (epoch + 1)
    loader.close()


def test_by_default_errors_are_pytorchs() -> None:
    with pytest.raises(OSError, match="file 3 is damaged"):
        list(DataLoader(Files(), batch_size=8, num_workers=1))  # type: ignore[arg-type]


def test_a_budget_counts_the_samples_of_a_batch_sampler() -> None:
    order = torch.utils.data.BatchSampler(range(64), 8, drop_last=False)
    options: dict[str, Any] = {"batch_sampler": order, "on_error": "skip"}
    assert len(list(DataLoader(Files(), error_budget=4 / 64, **options))) == 8  # type: ignore[arg-type]
    with pytest.raises(DatasetError, match=r"error_budget=0\.06 allows 3"):
        list(DataLoader(Files(), error_budget=0.06, **options))  # type: ignore[arg-type]
