"""What docs/language-models.md says beside its programs, which tests/tools/test_pages.py runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from reader import DataLoader, Documents, Mix, PackedTokens, StateError

LENGTH, ROWS, HEADS, WIDTH = 64, 4, 2, 8
FIELDS = ["tokens", "positions", "segments", "cu_seqlens", "longest"]


def documents_of(count: int) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(0)
    return [rng.integers(1, 256, length) for length in rng.integers(2, 50, count)]


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    rows = PackedTokens(documents_of(200), LENGTH, seed=1, fields=FIELDS)
    loader = DataLoader(rows, batch_size=ROWS, framework="torch")
    with loader:
        found = [{name: each.clone() for name, each in batch.items()} for batch in loader]
    return next(each for each in found if (each["segments"] == -1).any())


def test_sequences_of_a_batch_attend_as_a_mask_of_segments_does(
    batch: dict[str, torch.Tensor],
) -> None:
    """As kernels of variable length do it: tokens end to end, and boundaries; some are empty."""
    queries, keys, values = torch.rand(3, ROWS, HEADS, LENGTH, WIDTH, dtype=torch.float64)
    segments = batch["segments"]
    causal = torch.ones(LENGTH, LENGTH, dtype=torch.bool).tril()
    mask = (segments[:, :, None] == segments[:, None, :]) & causal
    masked = scaled_dot_product_attention(queries, keys, values, attn_mask=mask[:, None])

    cu = batch["cu_seqlens"] + LENGTH * torch.arange(ROWS, dtype=torch.int32)[:, None]
    cu, longest = cu.reshape(-1), batch["longest"].max()
    flat = [each.transpose(0, 1).reshape(HEADS, -1, WIDTH) for each in (queries, keys, values)]
    sizes = cu.diff()
    assert (sizes == 0).any()
    assert sizes.max() == longest
    parts = [
        scaled_dot_product_attention(*(each[:, begin:end] for each in flat), is_causal=True)
        for begin, end in zip(cu.tolist(), cu.tolist()[1:], strict=False)
        if begin < end
    ]
    apart = torch.cat(parts, 1).reshape(HEADS, ROWS, LENGTH, WIDTH).transpose(0, 1)
    torch.testing.assert_close(apart, masked)


def test_boundaries_of_batches_have_one_shape() -> None:
    rows = PackedTokens(documents_of(500), LENGTH, seed=1, fields=FIELDS)
    shapes = {
        batch["cu_seqlens"].shape for batch in DataLoader(rows, batch_size=ROWS, drop_last=True)
    }
    assert len(shapes) == 1


def test_rows_are_other_ones_in_each_epoch() -> None:
    rows = PackedTokens(documents_of(500), LENGTH, seed=1)
    loader = DataLoader(rows, batch_size=ROWS, shuffle=True, seed=1)

    def packed(epoch: int | None) -> set[bytes]:
        if epoch is not None:
            loader.set_epoch(epoch)
        return {row.tobytes() for batch in loader for row in batch["tokens"]}

    epochs = [packed(None), packed(None)]
    assert epochs[0] != epochs[1]
    assert [packed(0), packed(1)] == epochs


def test_a_state_of_other_rows_or_weights_is_refused() -> None:
    def loader(count: int = 500, share: int = 3, **options: Any) -> Any:
        sources = {
            name: PackedTokens(Documents(documents_of(count)), LENGTH, seed=1, **options)
            for name in "ab"
        }
        mixed = Mix(sources, {"a": share, "b": 1}, unit="tokens", stop="never", length=200)
        return DataLoader(mixed, batch_size=ROWS)

    begun = loader()
    next(iter(begun))
    state = json.loads(json.dumps(begun.state_dict()))
    loader().load_state_dict(state)
    for other in (loader(600), loader(share=2), loader(strategy="wrapped")):
        with pytest.raises(StateError, match="data"):
            other.load_state_dict(state)
