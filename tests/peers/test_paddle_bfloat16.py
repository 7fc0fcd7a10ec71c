"""uint16, in which Paddle carries bfloat16: the face reads it so, the own loader as numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest

import reader
from reader.compat.paddle import DataLoader

VALUES = np.array([1.5, -2, 0.25, 0], np.float32)
BITS = (VALUES.view(np.uint32) >> 16).astype(np.uint16)


def first(loader: Any) -> Any:
    """The first batch, or its first field."""
    with loader:
        batch = next(iter(loader))
    return batch[0] if isinstance(batch, list) else batch


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("size", [None, 2])
@pytest.mark.parametrize("rows", [[BITS] * 4, list(BITS), [BITS.reshape(2, 2)[:, :0]] * 2])
def test_uint16_is_the_bfloat16_that_paddles_own_loader_gives(
    rows: Any, size: int | None, workers: int
) -> None:
    found = first(DataLoader(rows, batch_size=size, num_workers=workers))
    expected = np.stack(rows[:size]) if size else np.asarray(rows[0])
    if size is None and not isinstance(rows[0], np.ndarray):
        assert found == rows[0]  # a number stays a number, as in Paddle
        return
    assert found.dtype == paddle.bfloat16
    assert found.shape == list(expected.shape)
    assert np.asarray(found.astype("float32")).tolist() == floats(expected).tolist()


def floats(bits: Any) -> Any:
    """The numbers whose bits as bfloat16 these are."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize(("name", "wider"), [("uint16", "int32"), ("uint32", "int64")])
def test_the_own_loader_gives_unsigned_numbers_in_a_wider_type(
    name: str, wider: str, workers: int
) -> None:
    rows = [np.array([1, np.iinfo(name).max], name)] * 2
    options: dict[str, Any] = {"batch_size": 2, "framework": "paddle", "num_workers": workers}
    found = first(reader.DataLoader(rows, **options))
    assert isinstance(found, paddle.Tensor)
    assert str(found.dtype) == f"paddle.{wider}"
    assert found.tolist() == np.stack(rows).tolist()


def test_the_own_loader_leaves_uint64_an_array() -> None:
    rows = [np.array([1, 2**64 - 1], "uint64")] * 2
    found = first(reader.DataLoader(rows, batch_size=2, framework="paddle"))
    assert isinstance(found, np.ndarray)
    assert found.tolist() == np.stack(rows).tolist()


def test_tokens_that_paddle_would_read_as_fractions_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    np.arange(100, dtype=np.uint16).tofile(path)
    with pytest.raises(reader.ConfigError, match=r"uint16, which Paddle reads as bfloat16.*int64"):
        DataLoader(reader.TokenWindows(path, 10))
    wide = reader.TokenWindows(path, 10, as_dtype="int64")
    assert first(DataLoader(wide, batch_size=2)).dtype == paddle.int64
    own = reader.DataLoader(reader.TokenWindows(path, 10), batch_size=2, framework="paddle")
    assert first(own).dtype == paddle.int32
