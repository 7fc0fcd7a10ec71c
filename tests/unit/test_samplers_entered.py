"""iter_from: the rest of an order from any position, at once if the order allows it."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.data import (
    BatchSampler,
    DistributedBatchSampler,
    DistributedSampler,
    NoBatching,
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
)
from reader.errors import ConfigError, ConfigTypeError


class Plain:
    """An iterable without any other method."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        yield from range(self.count)


class Own(Sampler[int]):
    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count, 0, -1))


MAKERS: dict[str, Any] = {
    "sequence": lambda n: SequenceSampler(range(n)),
    "random": lambda n: RandomSampler(range(n), seed=n),
    "subset": lambda n: SubsetRandomSampler([f"sample {i}" for i in range(n + 1)], seed=1),
    "weighted": lambda n: WeightedRandomSampler([1, 2, 3], n + 1, seed=2),
    "weighted once": lambda n: WeightedRandomSampler([1, 2, 0], 2, replacement=False, seed=n),
    "distributed": lambda n: DistributedSampler(range(n), 3, n % 3),
    "distributed in order": lambda n: DistributedSampler(range(n), 4, 3, shuffle=False),
    "distributed batches": lambda n: DistributedBatchSampler(range(n), 3, 2, 1, shuffle=True),
    "distributed batches in order": lambda n: DistributedBatchSampler(range(n), 4, 3, 2),
    "own": Own,
    "batches": lambda n: BatchSampler(RandomSampler(range(n), seed=3), 7),
    "full batches": lambda n: BatchSampler(RandomSampler(range(n), seed=3), 7, drop_last=True),
    "batches of a list": lambda n: BatchSampler(list(range(n)), 4),
    "batches of a tuple": lambda n: BatchSampler(tuple(range(n)), 4),
    "batches of a range": lambda n: BatchSampler(range(5, 5 + 2 * n, 2), 4),
    "batches of an array": lambda n: BatchSampler(np.arange(n), 4),
    "batches of an iterable": lambda n: BatchSampler(Plain(n), 4),
    "tasks": lambda n: NoBatching(RandomSampler(range(n), seed=3)),
    "tasks of an iterable": lambda n: NoBatching(Plain(n)),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", MAKERS)
@given(count=st.integers(0, 200), position=st.integers(0, 210))
def test_the_rest_from_a_position_equals_that_of_the_whole(
    name: str, count: int, position: int
) -> None:
    make = MAKERS[name]
    whole, rest = list(make(count)), list(make(count).iter_from(position))
    assert rest == whole[position:]
    assert [type(item) for item in rest] == [type(item) for item in whole[position:]]


def test_far_past_the_end_nothing_comes() -> None:
    for make in MAKERS.values():
        assert list(make(10).iter_from(2**63 - 1)) == []


def test_draws_of_many_parts_open_at_any_position() -> None:
    def sampler() -> WeightedRandomSampler:
        return WeightedRandomSampler(np.ones(7), 10_000, seed=1)

    whole = list(sampler())
    for position in (1, 4095, 4096, 4097, 9_999, 10_000):
        assert list(sampler().iter_from(position)) == whole[position:]


@pytest.mark.parametrize("batch_size", [1, 2, 5])
def test_blocks_of_ranks_open_at_any_position(batch_size: int) -> None:
    for rank, shuffle in [(0, False), (1, True), (2, True)]:

        def sampler(rank: int = rank, shuffle: bool = shuffle) -> DistributedBatchSampler:
            return DistributedBatchSampler(range(23), batch_size, 3, rank, shuffle)

        whole = list(sampler())
        for position in range(len(whole) + 2):
            assert list(sampler().iter_from(position)) == whole[position:]


@pytest.mark.parametrize(
    "make",
    [
        lambda: RandomSampler(range(10**12), seed=1),
        lambda: RandomSampler(range(10**12)),
        lambda: SequenceSampler(range(10**12)),
        lambda: SubsetRandomSampler(range(10**12), seed=1),
        lambda: WeightedRandomSampler([1, 2], 10**12, seed=1),
        lambda: DistributedSampler(range(2 * 10**12), 2, 0),
        lambda: BatchSampler(RandomSampler(range(10**14), seed=1), 100),
        lambda: BatchSampler(range(10**14), 100),
        lambda: NoBatching(DistributedSampler(range(2 * 10**12), 2, 1, shuffle=False)),
        lambda: DistributedBatchSampler(range(10**14), 50, 2, 1, shuffle=True),
    ],
)
def test_a_trillion_items_open_anywhere_without_drawing_the_earlier_ones(make: Any) -> None:
    """If it drew the earlier ones, this would take days."""
    sampler = make()
    tracemalloc.start()
    try:
        assert len(list(islice(sampler.iter_from(9 * 10**11), 200))) == 200
        assert len(list(sampler.iter_from(10**12 - 3))) == 3
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 21


class Backwards(RandomSampler):
    def __iter__(self) -> Iterator[int]:
        return reversed(list(super().__iter__()))


class EveryOther:
    def __iter__(self) -> Iterator[Any]:
        return islice(super().__iter__(), 0, None, 2)  # type: ignore[misc]


class Mixed(EveryOther, BatchSampler[int]): ...


class Further(Backwards):
    def iter_from(self, position: int) -> Iterator[int]:
        return iter([position])


class Furthest(Further): ...


def test_a_subclass_with_its_own_order_opens_in_that_order() -> None:
    backwards = Backwards(range(50), seed=1)
    assert list(backwards.iter_from(7)) == list(backwards)[7:]
    mixed = Mixed(range(50), 3)
    assert list(mixed.iter_from(2)) == list(mixed)[2:]
    assert list(mixed)[1] == [6, 7, 8]


def test_a_subclass_with_its_own_iter_from_keeps_it() -> None:
    assert list(Furthest("abc").iter_from(2)) == [2]
    assert list(BatchSampler(Further("abc"), 3).iter_from(2)) == [[6]]


def test_a_list_that_grows_is_seen_whole() -> None:
    indices = [0, 1, 2]
    rest = BatchSampler(indices, 1).iter_from(2)
    indices.append(3)
    assert list(rest) == [[2], [3]]


def test_an_order_opened_at_a_position_counts_its_epoch_as_a_begun_one() -> None:
    batches = DistributedBatchSampler(range(10), 2, 1, 0, shuffle=True)
    whole = DistributedBatchSampler(range(10), 2, 1, 0, shuffle=True)
    for sampler in (batches, whole):
        sampler.set_epoch(3)
    assert list(batches.iter_from(1)) == list(whole)[1:]
    assert (batches.epoch, list(batches)) == (4, list(whole))


@pytest.mark.parametrize(
    ("position", "error"),
    [(-1, ConfigError), (2**63, ConfigError), (1.0, ConfigTypeError), (True, ConfigTypeError)],
)
def test_an_invalid_position_is_refused(position: Any, error: type) -> None:
    for make in MAKERS.values():
        with pytest.raises(error, match=r"position must be an int .*, got .* leave out"):
            make(5).iter_from(position)
