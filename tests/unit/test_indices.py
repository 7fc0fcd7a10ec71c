"""Batches of indices as tasks carry them: the same as the lists that a batch sampler yields."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import BatchSampler, DataLoader, RandomSampler, SampleIndexError, SequenceSampler
from reader._core.collate.indices import IndexBatches, Indices
from reader._core.random.permutation import Permutation
from reader.orders.order import open_order
from reader.orders.order_origin import Position
from tests.datasets import Rows


def sampler_of(kind: str, count: int) -> Any:
    if kind == "sequence":
        return SequenceSampler(range(count))
    return RandomSampler(range(count), seed=9)


@given(
    kind=st.sampled_from(["sequence", "random"]),
    count=st.integers(0, 300),
    size=st.integers(1, 70),
    drop_last=st.booleans(),
    at=st.integers(0, 400),
)
def test_batches_are_those_of_the_batch_sampler(
    kind: str, count: int, size: int, drop_last: bool, at: int
) -> None:
    indices = list(sampler_of(kind, count).iter_from(at))
    wanted = [indices[i : i + size] for i in range(0, len(indices), size)]
    if drop_last and wanted and len(wanted[-1]) < size:
        wanted.pop()
    found = sampler_of(kind, count).index_batches(at, size, drop_last)
    assert [batch.tolist() for batch in found] == wanted


def test_order_opens_with_indices_and_at_a_position() -> None:
    batches = BatchSampler(RandomSampler(range(50), seed=3), 8)
    wanted = list(batches)
    order, made = open_order(batches)
    first = next(made)
    assert type(first) is Indices
    assert len(first) == 8
    order.note_first(0, first.payload)
    state = order.origin.state(2, None)
    _, again = open_order(batches, state, Position(2, 16))
    assert [batch.tolist() for batch in again] == wanted[2:]


class Reversed(SequenceSampler):
    """A sampler of the user's, derived from ours."""

    def __iter__(self) -> Iterator[int]:
        return iter(reversed(range(len(self))))


class Doubled(BatchSampler[int]):
    """A batch sampler of the user's, derived from ours."""

    def __iter__(self) -> Iterator[list[int]]:
        return (batch * 2 for batch in super().__iter__())


@pytest.mark.parametrize("workers", [0, 2])
def test_samplers_of_the_user_are_asked(workers: int) -> None:
    rows = Rows(8)

    def labels(batches: Any) -> list[list[int]]:
        with DataLoader(rows, batch_sampler=batches, num_workers=workers) as loader:
            return [np.asarray(batch[1]).tolist() for batch in loader]

    assert labels(BatchSampler(Reversed(rows), 4)) == [[7, 6, 5, 4], [3, 2, 1, 0]]
    assert labels(Doubled(SequenceSampler(rows), 4)) == [[0, 1, 2, 3] * 2, [4, 5, 6, 7] * 2]


@pytest.mark.parametrize("workers", [0, 2])
def test_index_outside_of_the_dataset_is_refused(workers: int) -> None:
    sampler = SequenceSampler(range(20))
    with DataLoader(Rows(10), sampler=sampler, batch_size=4, num_workers=workers) as loader:
        batches = iter(loader)
        assert [np.asarray(next(batches)[1]).tolist() for _ in range(2)] == [
            [0, 1, 2, 3],
            [4, 5, 6, 7],
        ]
        with pytest.raises(SampleIndexError, match="index 10 in batch 2"):
            next(batches)


def test_empty_and_negative_positions_yield_nothing() -> None:
    assert list(IndexBatches(Permutation(5, 1), range(5, 5), 2, False)) == []
    assert list(IndexBatches(None, range(9, 5), 2, False)) == []
