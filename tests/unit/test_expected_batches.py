"""Batches that a dataset is told of: the same ones, in their order, told before they are drawn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import DataLoader, RandomSampler
from reader.orders.expected import expected


@given(st.lists(st.integers(1, 700), max_size=40))
def test_batches_come_in_their_order_and_are_told_before(sizes: list[int]) -> None:
    ends = np.cumsum([0, *sizes]).tolist()
    batches = [list(range(*each)) for each in itertools.pairwise(ends)]
    told: list[tuple[list[int], bool]] = []
    found: list[list[int]] = []
    for batch in expected(iter(batches), lambda indices, begins: told.append((indices, begins))):
        found.append(batch)
        known = {index for indices, _ in told for index in indices}
        assert known | {*range(ends[1] if sizes else 0)} >= {*batch}
    assert found == batches
    assert [begins for _, begins in told] == [number == 0 for number in range(len(told))]
    for indices, _ in told:
        assert indices == list(range(indices[0], indices[-1] + 1))


def test_few_are_drawn_ahead_and_none_before_the_first() -> None:
    drawn: list[int] = []

    def draw() -> Iterator[list[int]]:
        for number in range(1000):
            drawn.append(number)
            yield list(range(number * 10, number * 10 + 10))

    batches = expected(draw(), lambda *_: None)
    assert next(batches)[0] == 0
    assert len(drawn) == 1
    for number in range(1, 1000):
        assert next(batches)[0] == number * 10
        assert len(drawn) <= number + 300


def test_an_error_of_the_sampler_comes_at_its_place() -> None:
    def draw() -> Iterator[int]:
        yield from range(5)
        raise LookupError("lost")

    found: list[int] = []
    with pytest.raises(LookupError, match="lost"):
        found.extend(expected(draw(), lambda *_: None))
    assert found == [0, 1, 2, 3, 4]


def test_what_cannot_be_told_ends_no_epoch() -> None:
    begun: list[bool] = []

    def expect(_: Any, begins: bool) -> None:
        begun.append(begins)
        raise OSError("no network")

    assert list(expected(iter(range(2000)), expect)) == list(range(2000))
    assert len(begun) > 3
    assert all(begun)


class _Told(list[int]):
    """Samples that note what they are told; no `reader.Dataset`."""

    def __expect__(self, *_: Any) -> None:
        raise AssertionError("only a reader.Dataset is told")


def test_others_than_datasets_of_this_package_are_not_told() -> None:
    samples = _Told(range(20))
    with DataLoader(samples, batch_size=2, sampler=RandomSampler(samples, seed=0)) as loader:
        assert sum(1 for _ in loader) == 10
