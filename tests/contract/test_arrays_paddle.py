"""Paddle's tensors whose rows go into batches without Python code: batches are Paddle's own."""

from __future__ import annotations

from typing import Any

import numpy as np
import paddle
import pytest

import reader.compat.paddle as ours
from reader.data.columns import columns_of

COUNT = 70
FLOATS = np.arange(COUNT * 6, dtype=np.float32).reshape(COUNT, 2, 3)
LABELS = np.arange(COUNT)

COLUMNS = {
    "floats": lambda: [paddle.to_tensor(FLOATS), paddle.to_tensor(LABELS)],
    "bool": lambda: [
        paddle.to_tensor(LABELS % 2 == 0),
        paddle.to_tensor(FLOATS).astype("bfloat16"),
    ],
    "transposed": lambda: [paddle.to_tensor(FLOATS.T).transpose([2, 1, 0])],
    "arrays": lambda: [FLOATS, LABELS],
}


def _shown(batches: Any) -> list[Any]:
    return [
        [
            (each.dtype, each.shape, each.stop_gradient, each.astype("float32").tolist())
            for each in batch
        ]
        for batch in batches
    ]


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("kind", ["theirs", "ours", "subset"])
@pytest.mark.parametrize("name", COLUMNS)
def test_batches_are_paddles(name: str, kind: str, workers: int) -> None:
    module = ours if kind == "ours" else paddle.io
    dataset = module.TensorDataset(COLUMNS[name]())
    if kind == "subset":
        dataset = paddle.io.Subset(dataset, [5, 1, 1, 69, 0])
    assert columns_of(dataset) is not None
    theirs = paddle.io.DataLoader(dataset, batch_size=4)
    with ours.DataLoader(dataset, batch_size=4, num_workers=workers) as loader:
        assert _shown(loader) == _shown(theirs)
