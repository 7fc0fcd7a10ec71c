"""`num_workers="auto"` and `prefetch_factor="auto"` of Paddle's face.

Imports pytest and paddle. Holds nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import paddle
import pytest

import reader.compat.paddle as ours
from reader.errors import ConfigError

pytestmark = pytest.mark.peer
AUTO: dict[str, Any] = {"num_workers": "auto", "prefetch_factor": "auto"}


class Rows(paddle.io.Dataset[Any]):
    """Numbers that are waited for."""

    def __init__(self, count: int, seconds: float = 0.0) -> None:
        super().__init__()
        self.count, self.seconds = count, seconds

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.seconds)
        return np.full(3, index, np.float32)


class Stream(paddle.io.IterableDataset[Any]):
    """Has no index."""

    def __iter__(self) -> Iterator[Any]:
        return iter(np.zeros((4, 3), np.float32))


def shown(batches: Any) -> list[Any]:
    return [batch[0].tolist() if isinstance(batch, list) else batch.tolist() for batch in batches]


@pytest.mark.parametrize("more", [{}, {"persistent_workers": True}])
def test_batches_are_paddles_in_its_order(more: dict[str, Any]) -> None:
    loader = ours.DataLoader(Rows(50), batch_size=4, **AUTO, **more)
    for _ in range(2):
        assert shown(loader) == shown(paddle.io.DataLoader(Rows(50), batch_size=4))
    loader.close()


def test_workers_are_added_if_the_loop_waits() -> None:
    with ours.DataLoader(Rows(480, 0.004), batch_size=4, num_workers="auto") as loader:
        first = loader.chosen
        list(loader)
        assert first["num_workers"] < loader.chosen["num_workers"] <= loader.num_workers
    fixed = ours.DataLoader(Rows(8), **loader.chosen)
    assert fixed.num_workers == loader.chosen["num_workers"]


def test_attributes_are_upper_bounds_and_mean_auto_again() -> None:
    loader = ours.DataLoader(Rows(8), batch_size=4, **AUTO)
    assert isinstance(loader.num_workers, int)
    assert loader.num_workers >= 4
    assert loader.prefetch_factor == 8
    assert loader.use_shared_memory is True
    again = ours.DataLoader(Rows(8), num_workers=loader.num_workers)
    assert again.chosen["num_workers"] < again.num_workers
    loader.timeout = 30  # makes its engine anew
    assert loader.chosen["num_workers"] < loader.num_workers
    loader.num_workers = 1
    assert loader.chosen["num_workers"] == 1
    assert len(list(loader)) == 2


@pytest.mark.parametrize(
    ("dataset", "options", "error", "text"),
    [
        (Stream(), {"num_workers": "auto"}, ConfigError, "an iterable dataset has a part for each"),
        (Rows(8), {"prefetch_factor": "auto"}, ConfigError, 'pass num_workers="auto" as well'),
        (Rows(8), {"num_workers": "most"}, TypeError, "num_workers must be an int"),
    ],
)
def test_invalid_arguments_are_refused(
    dataset: Any, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ours.DataLoader(dataset, **options)
