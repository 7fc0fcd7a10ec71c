"""PyTorch's tensors and samplers at the legal extremes arrive as from its own loader.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader as Theirs
from torch.utils.data import Dataset, default_collate

import reader
from reader.compat.torch import DataLoader
from reader.errors import CollateError
from tests.peers.torch_samples import Rows
from tests.processes import Program

pytestmark = pytest.mark.peer

CELLS = {
    "0": {},
    "fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "spawn": {"num_workers": 1, "multiprocessing_context": "spawn"},
    "threads": {"num_workers": 2, "worker_type": "thread"},
}


@pytest.fixture(params=["0", "fork", "threads"])
def options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """How the loader makes its batches."""
    return dict(CELLS[request.param])


class Empty(Dataset[torch.Tensor]):
    """Many tensors without elements, as in PyTorch's own test of large samplers."""

    def __len__(self) -> int:
        return 10_000_000

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.empty(0)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_large_batches_of_empty_tensors_arrive(cell: str, persistent: bool) -> None:
    options: dict[str, Any] = dict(CELLS[cell])
    if options:
        options["persistent_workers"] = persistent
    loader = DataLoader(Empty(), batch_size=40_960, **options)
    batches = iter(loader)
    for _ in range(3):
        batch = next(batches)
        assert batch.numel() == 0
        assert batch.shape == (40_960, 0)
    loader.close()


PROGRAM = """
    import sys
    from reader.compat.torch import DataLoader
    from tests.peers.test_torch_extremes import CELLS, Empty

    if __name__ == "__main__":
        options = dict(CELLS[sys.argv[1]], persistent_workers=sys.argv[2] == "True")
        options["num_workers"] = 1
        batches = iter(DataLoader(Empty(), batch_size=40_960, **options))
        for batch in batches:
            assert batch.numel() == 0
            raise RuntimeError("an error of the program's own")
"""


@pytest.mark.sampled(6)
@pytest.mark.slow
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("cell", ["fork", "spawn", "threads"])
def test_program_that_fails_amid_large_batches_ends_with_its_own_error(
    tmp_path: Path, cell: str, persistent: bool
) -> None:
    program = Program(tmp_path, PROGRAM, cell, str(persistent))
    status, _, err = program.finish()
    assert status == 1
    assert err.strip().splitlines()[-1] == "RuntimeError: an error of the program's own"


class Made(Rows):
    """Four samples, each made by a function."""

    def __init__(self, make: Callable[[], Any]) -> None:
        super().__init__(4)
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make()


def _seventy() -> Any:
    return torch.ones((2, 1) * 3 + (1,) * 64)


def _beyond_numpy() -> Any:
    return torch.empty(1 << 40, 1 << 20, 0)


def _sixty_four() -> Any:
    return {"most": torch.ones((1,) * 63), "more": torch.ones((1,) * 64), "name": "text"}


def _half(value: Any = None) -> Any:
    return [torch.ones((1,) * 70, dtype=torch.bfloat16), torch.empty(0, 1 << 40, 1 << 20), 3]


@pytest.mark.parametrize("make", [_seventy, _beyond_numpy, _sixty_four, _half])
@pytest.mark.parametrize("how", ["stacked", "single", "ready-made"])
def test_tensors_that_no_array_can_be_arrive_as_from_torch(
    options: dict[str, Any], make: Callable[[], Any], how: str
) -> None:
    asked: dict[str, Any] = {"batch_size": 2}
    if how == "single":
        asked["batch_size"] = None
    elif how == "ready-made":
        asked["collate_fn"] = _first
    with DataLoader(Made(make), **asked, **options) as loader:
        found = list(loader)
    wanted = list(Theirs(Made(make), **asked))
    assert len(found) == len(wanted)
    for its, theirs in zip(found, wanted, strict=True):
        _check_same(its, theirs)


def _first(samples: list[Any]) -> Any:
    return samples[0]


def _check_same(found: Any, wanted: Any) -> None:
    assert type(found) is type(wanted)
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        found, wanted = list(found.values()), list(wanted.values())
    if isinstance(wanted, (list, tuple)):
        assert len(found) == len(wanted)
        for each, other in zip(found, wanted, strict=True):
            _check_same(each, other)
    elif isinstance(wanted, torch.Tensor):
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        # torch compares, and fills, tensors of at most 64 dimensions
        assert found.reshape(-1).tolist() == wanted.reshape(-1).tolist()
    else:
        assert found == wanted


def test_tensors_of_the_dataset_that_no_array_can_be_are_copied_without_workers() -> None:
    held = _seventy()
    (found, *_) = reader.DataLoader(Made(lambda: held), batch_size=None, framework="torch")
    found.view(-1).zero_()
    assert held.view(-1).tolist() == [1] * 8


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize(
    ("make", "collate_fn"), [(_seventy, None), (_seventy, _first), (_beyond_numpy, None)]
)
def test_loader_of_arrays_refuses_tensors_that_no_array_can_be(
    make: Callable[[], Any], collate_fn: Any, workers: int
) -> None:
    with (
        pytest.raises(CollateError, match="cannot be given as an array: NumPy has at most"),
        reader.DataLoader(
            Made(make), batch_size=2, num_workers=workers, collate_fn=collate_fn
        ) as loader,
    ):
        list(loader)


@pytest.mark.sampled(2)
def test_samples_of_10_000_tensors_arrive(options: dict[str, Any]) -> None:
    with DataLoader(Made(_many), batch_size=2, **options) as loader:
        found = next(iter(loader))
    wanted = default_collate([_many(), _many()])
    assert list(found) == list(wanted)
    assert all(bool((found[key] == wanted[key]).all()) for key in wanted)


def _many() -> Any:
    return {f"leaf {place}": torch.tensor(place) for place in range(10_000)}


@pytest.mark.parametrize("depth", [89, 95, 130])
def test_deeply_nested_samples_arrive(options: dict[str, Any], depth: int) -> None:
    with DataLoader(Deep(depth), batch_size=2, **options) as loader:
        found = next(iter(loader))
    for _ in range(depth):
        found = found["a"]
    assert found.tolist() == [[0, 0], [1, 1]]


class Deep(Rows):
    """Samples with an array at the bottom of many dicts."""

    def __init__(self, depth: int) -> None:
        super().__init__(4)
        self.depth = depth

    def __getitem__(self, index: int) -> Any:
        sample: Any = np.full(2, index)
        for _ in range(self.depth):
            sample = {"a": sample}
        return sample
