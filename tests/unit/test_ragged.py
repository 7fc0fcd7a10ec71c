"""Ragged fields by themselves: what is concatenated, stacked and refused."""

from __future__ import annotations

import pickle
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from reader import CollateError, ConfigError, DataLoader, LoDTensor, RaggedFields, concat_ragged


def test_rows_come_end_to_end_with_the_offset_of_each_sample() -> None:
    tensor = concat_ragged([np.zeros((2, 3)), np.ones((0, 3)), np.full((1, 3), 2.0)])
    assert tensor.lod == [[0, 2, 2, 3]]
    assert tensor.numpy()[:, 0].tolist() == [0, 0, 2]
    extended = concat_ragged([np.ones(2, ml_dtypes.bfloat16), np.zeros(1, ml_dtypes.bfloat16)])
    assert (extended.dtype, extended.lod) == ("bfloat16", [[0, 2, 3]])
    assert extended.numpy().tolist() == [1, 1, 0]


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "no samples"),
        ([np.zeros(2), np.float64(1)], "sample 1.*no first dimension"),
        ([LoDTensor(np.zeros(3), lod=[[0, 1, 3]])], "sample 0.*a LoD of its own"),
        ([np.zeros(2), np.zeros(2, "f4")], "sample 1 of dtype float32.*sample 0 of float64"),
        ([np.zeros((2, 3)), np.zeros((2, 4))], r"sample 1 .*\(2, 4\).*\(2, 3\)"),
    ],
)
def test_samples_that_cannot_be_concatenated_are_named(samples: Any, text: str) -> None:
    with pytest.raises(CollateError, match=text):
        concat_ragged(samples)


@pytest.mark.parametrize("workers", [0, 2])
def test_named_fields_are_ragged_and_the_others_are_stacked(workers: int) -> None:
    rows = [{"words": np.arange(n), "label": n, "name": f"row {n}"} for n in (3, 1, 2)]
    with DataLoader(
        rows, batch_size=3, collate_fn=RaggedFields("words"), num_workers=workers
    ) as loader:
        (batch,) = loader
    assert batch["words"].lod == [[0, 3, 4, 6]]
    assert batch["words"].numpy().tolist() == [0, 1, 2, 0, 0, 1]
    assert batch["label"].tolist() == [3, 1, 2]
    assert batch["name"] == ["row 3", "row 1", "row 2"]
    pairs = [(np.arange(n), np.arange(n * n)) for n in (1, 2)]
    one, two = pickle.loads(pickle.dumps(RaggedFields(0, 1)))(pairs)
    assert (one.lod, two.lod) == ([[0, 1, 3]], [[0, 1, 5]])


@pytest.mark.parametrize(
    ("samples", "text"),
    [
        ([], "no samples"),
        ([np.zeros(2)], "dicts, tuples or lists.*concat_ragged"),
        ([(1, 2), (1,)], "sample 1 has 1 fields and sample 0 has 2"),
        ([(1,)], r"has the fields \[1\], which the samples lack: their fields are \[0\]"),
        ([(np.zeros(1), np.zeros(1)), (np.zeros(2), np.zeros(1))], r"field 0 .*RaggedFields\(0"),
    ],
)
def test_samples_unlike_the_named_fields_are_refused(samples: Any, text: str) -> None:
    with pytest.raises(CollateError, match=text):
        RaggedFields(1)(samples)


def test_no_ragged_field_at_all_is_refused() -> None:
    with pytest.raises(ConfigError, match="got none"):
        RaggedFields()
