"""What datasets, samplers and streams say of themselves: kind, length, options."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reader
from reader.checks import described
from tests.streams import RangeStream

ROWS = reader.TensorDataset([np.ones((8, 2))])
SAID: dict[str, Any] = {
    "TensorDataset(8)": ROWS,
    "Subset(2, dataset=list)": reader.Subset([1.0] * 8, [1, 2]),
    "ConcatDataset(16)": reader.ConcatDataset([ROWS, ROWS]),
    "ChainDataset()": reader.ChainDataset([RangeStream(3), RangeStream(3)]),
    "MappedDataset(8, dataset=TensorDataset, with_index=False)": ROWS.map(len),
    "CachedDataset(8, dataset=TensorDataset)": reader.cache(ROWS, memory="1MB"),
    "RandomSampler(8)": reader.RandomSampler(ROWS),
    "SequenceSampler(8)": reader.SequenceSampler(ROWS),
    "BatchSampler(4, sampler=SequenceSampler, batch_size=2, drop_last=False)": reader.BatchSampler(
        reader.SequenceSampler(ROWS), batch_size=2
    ),
    "WeightedRandomSampler(3, num_samples=3, replacement=True)": reader.WeightedRandomSampler(
        [1, 2], 3
    ),
    "ShuffledStream(size=4)": reader.shuffle_buffer(RangeStream(3), 4),
    "RebatchedStream(size=2, drop_last=False)": reader.rebatch(RangeStream(3), 2),
    "Mix(16, stop='first')": reader.mix([ROWS, ROWS]),
}


@pytest.mark.parametrize("said", SAID)
def test_a_dataset_or_sampler_says_what_it_is(said: str) -> None:
    assert repr(SAID[said]) == said


def test_repr_shows_no_error_of_a_length_and_no_long_text() -> None:
    class Odd(reader.Subset[float]):
        def __len__(self) -> int:
            raise ZeroDivisionError

    odd = Odd([1.0], [0])
    odd.token = "x" * 500  # type: ignore[attr-defined]
    assert repr(odd) == "Odd(dataset=list)"
    assert described(object()) == "object()"
