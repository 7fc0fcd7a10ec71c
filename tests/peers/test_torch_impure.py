"""Datasets that keep something between samples: the batches are PyTorch's, in every run.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.utils.data

from reader.compat.torch import StatefulDataLoader
from tests.peers.impure_datasets import KINDS, SIZE, SLOW_S, Impure, make
from tests.peers.torch_parity import check_same, check_same_result

pytestmark = pytest.mark.peer


class OfTensors(Impure):
    """A generator of torch, as transforms take one."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.generator = torch.Generator().manual_seed(1)

    def prepare(self, worker_id: int) -> None:
        self.generator.manual_seed(worker_id)

    def carried(self, index: int) -> float:
        return float(torch.rand((), generator=self.generator))


class ReusedTensor(Impure):
    """One tensor that every sample is written to."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.tensor = torch.zeros(2)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        self.tensor += index
        return self.tensor, index


MORE: dict[str, type[Impure]] = {"torch generator": OfTensors, "reused tensor": ReusedTensor}


def prepare(worker_id: int) -> None:
    info = torch.utils.data.get_worker_info()
    assert info is not None
    info.dataset.prepare(worker_id)  # type: ignore[attr-defined]


def epochs(kind: str, sample_s: float, workers: int, stays: bool = False) -> Any:
    """Return the act: two epochs of a loader."""

    def act(loader: Any) -> Any:
        dataset = MORE[kind](sample_s) if kind in MORE else make(kind, sample_s)
        made = loader(
            dataset,
            batch_size=SIZE,
            num_workers=workers,
            worker_init_fn=prepare,
            persistent_workers=stays,
        )
        return [list(made) for _ in range(2)]

    return act


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sample_s", [0.0, SLOW_S], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_what_a_dataset_keeps_between_samples_is_kept_the_same(kind: str, sample_s: float) -> None:
    check_same(epochs(kind, sample_s, 0))
    check_same(epochs(kind, sample_s, 2))
    check_same(epochs(kind, sample_s, 5, stays=True))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sample_s", [0.0, SLOW_S], ids=["fast", "slow"])
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_loader_with_a_state_keeps_the_same_between_samples(kind: str, sample_s: float) -> None:
    for workers in (0, 2):
        act = epochs(kind, sample_s, workers)
        check_same_result(act, torch.utils.data.DataLoader, StatefulDataLoader)


@pytest.mark.evidence
@pytest.mark.parametrize("kind", [*KINDS, *MORE])
def test_what_a_dataset_keeps_between_samples_is_the_same_in_every_run(kind: str) -> None:
    for workers in (0, 1, 2, 5):
        act = epochs(kind, SLOW_S, workers)
        for _ in range(3):
            check_same(act)
