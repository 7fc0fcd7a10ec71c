"""Packed tokens under loaders: written into the batch, resumed anywhere, failing documents."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reader import DataLoader, Documents, PackedTokens, Subset
from reader.data.columns import columns_of

Cell = dict[str, Any]

FIELDS = ["tokens", "positions", "segments", "targets", "loss_mask", "cu_seqlens", "longest"]


def documents(count: int = 600) -> list[Any]:
    rng = np.random.default_rng(0)
    lengths = np.clip(rng.lognormal(3, 1, count).astype(int), 1, 200)
    return [rng.integers(1, 60_000, length).astype(np.uint16) for length in lengths]


def packed(**options: Any) -> PackedTokens:
    return PackedTokens(documents(), 64, 1, window=128, fields=FIELDS, **options)


def rows_of(batch: dict[str, Any]) -> list[list[Any]]:
    """Return a batch's rows as plain lists."""
    return [
        [array[row].tolist() for array in batch.values()] for row in range(len(batch["tokens"]))
    ]


def plain(row: dict[str, Any]) -> list[Any]:
    return [np.asarray(array).tolist() for array in row.values()]


def test_batches_are_the_rows_of_their_epoch(each_cell: Cell) -> None:
    rows = packed()
    with DataLoader(rows, batch_size=8, shuffle=True, seed=2, **each_cell) as loader:
        for epoch in range(3):
            rows.set_epoch(epoch)
            wanted = sorted(plain(rows[row]) for row in range(len(rows)))
            found: list[Any] = []
            for batch in loader:
                assert list(batch) == FIELDS
                assert batch["tokens"].dtype == np.int64
                assert batch["longest"].shape == (len(batch["tokens"]),)
                found += rows_of(batch)
            assert found != wanted
            assert sorted(found) == wanted


def test_rows_are_written_into_the_batch() -> None:
    rows = packed()
    for dataset in (rows, Subset(rows, range(3, 20))):
        columns = columns_of(dataset)
        assert columns is not None
        assert columns.fill is not None

    class Halved(PackedTokens):
        def __getitem__(self, index: int, /) -> Any:
            return super().__getitem__(index)["tokens"] // 2

    halved = Halved(documents(), 64)
    assert columns_of(halved) is None


class Failing:
    """Documents of which one cannot be read after the lengths were."""

    def __init__(self) -> None:
        self.held = documents(100)
        self.fails = False

    def __len__(self) -> int:
        return len(self.held)

    def __getitem__(self, index: int) -> Any:
        if self.fails and index == 7:
            raise OSError("the disk is gone")
        return self.held[index]


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_a_row_whose_document_fails_has_failed(on_error: Any, cell: Cell) -> None:
    source = Failing()
    rows = PackedTokens(Documents(source), 64)
    source.fails = True
    bad = [row for row in range(len(rows)) if any(piece[0] == 7 for piece in rows.origin(row))]
    budget = {} if on_error == "raise" else {"error_budget": 20}
    loader: Any = DataLoader(rows, batch_size=4, on_error=on_error, **budget, **cell)
    with loader:
        if on_error == "raise":
            with pytest.raises(OSError, match="the disk is gone"):
                list(loader)
            return
        count = sum(len(batch["tokens"]) for batch in loader)
    assert count == len(rows) - len(bad) * (on_error == "skip")


def test_faces_have_tensors_by_name() -> None:
    torch = pytest.importorskip("torch")
    from reader.compat.torch import DataLoader as TorchLoader

    rows = packed()
    batch = next(iter(TorchLoader(rows, batch_size=4)))
    assert list(batch) == FIELDS
    for name, array in batch.items():
        assert isinstance(array, torch.Tensor)
        assert array.tolist() == [np.asarray(rows[row][name]).tolist() for row in range(4)]


def test_paddles_face_has_tensors_by_name() -> None:
    paddle = pytest.importorskip("paddle")
    from reader.compat.paddle import DataLoader as PaddleLoader

    rows = packed()
    batch = next(iter(PaddleLoader(rows, batch_size=4, return_list=True)))
    assert list(batch) == FIELDS
    for name, array in batch.items():
        assert isinstance(array, paddle.Tensor)
        assert array.tolist() == [np.asarray(rows[row][name]).tolist() for row in range(4)]
