"""Windows of tokens through the loader: the same in every cell, gathered, resumed, shuffled."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Subset, TokenWindows
from reader.data.columns import columns_of

Cell = dict[str, Any]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.bin"
    np.random.default_rng(0).integers(0, 300, 5003).astype(np.uint16).tofile(path)
    return path


FORMS: list[dict[str, Any]] = [
    {},
    {"targets": True},
    {"as_dtype": "int64"},
    {"document_end": 5, "targets": True},
    {"shuffle": True},
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_batches_are_the_windows(file: Path, each_cell: Cell, form: dict[str, Any]) -> None:
    windows = TokenWindows(file, 20, 13, **form)
    with DataLoader(windows, batch_size=8, **each_cell) as loader:
        batches = [batch if isinstance(batch, dict) else {"tokens": batch} for batch in loader]
    fields = {name: np.concatenate([each[name] for each in batches]) for name in batches[0]}
    for number in range(len(windows)):
        sample = windows[number]
        parts = sample if isinstance(sample, dict) else {"tokens": sample}
        assert list(fields) == list(parts)
        for name, part in parts.items():
            assert fields[name].dtype == part.dtype
            assert (fields[name][number] == part).all()


def test_plain_windows_are_gathered(file: Path) -> None:
    assert columns_of(TokenWindows(file, 20, 13)) is not None
    assert columns_of(TokenWindows(file, 20, 13, targets=True)) is not None
    assert columns_of(Subset(TokenWindows(file, 20), [3, 1])) is not None


def test_a_shuffled_run_resumes_at_any_batch(file: Path, cell: Cell) -> None:
    options: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 1}
    windows = TokenWindows(file, 20, 13)
    with DataLoader(windows, num_workers=0, **options) as loader:
        wanted = [batch.copy() for batch in loader]
    for stop in range(1, len(wanted)):
        with DataLoader(windows, **options, **cell) as loader:
            batches = iter(loader)
            for _ in range(stop):
                next(batches)
            state = loader.state_dict()
        with DataLoader(windows, **options) as loader:
            loader.load_state_dict(state)
            rest = [batch.copy() for batch in loader]
        assert all((a == b).all() for a, b in zip(rest, wanted[stop:], strict=True))
