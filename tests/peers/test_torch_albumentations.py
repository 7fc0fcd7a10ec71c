"""Albumentations in a program of PyTorch's: the pictures are PyTorch's, in every run.

Runs where albumentations is installed: `make augmentation` makes that environment.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data

from reader.compat.torch import StatefulDataLoader
from tests.peers.torch_parity import check_same, check_same_result

A = pytest.importorskip("albumentations")

pytestmark = [pytest.mark.peer, pytest.mark.evidence]


class Pictures:
    def __init__(self, seed: int | None) -> None:
        self.image = np.random.default_rng(1).integers(0, 256, (48, 40, 3), np.uint8)
        steps = [A.RandomCrop(32, 32), A.HorizontalFlip(), A.RandomBrightnessContrast(), A.Rotate()]
        self.transform = A.Compose(steps, seed=seed)

    def __len__(self) -> int:
        return 256

    def __getitem__(self, index: int) -> Any:
        picture = self.transform(image=np.roll(self.image, index, axis=1))["image"]
        return torch.from_numpy(np.ascontiguousarray(picture)), index


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("run", range(3))
def test_pictures_are_pytorchs(workers: int, run: int) -> None:
    def act(loader: Any) -> Any:
        torch.manual_seed(0)
        return list(loader(Pictures(137), batch_size=8, num_workers=workers))

    check_same(act)
    check_same_result(act, torch.utils.data.DataLoader, StatefulDataLoader)
