"""Samplers and batch samplers: every index once, in the promised order, at little cost."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.data import (
    BatchSampler,
    Dataset,
    NoBatching,
    RandomSampler,
    Sampler,
    SequenceSampler,
    SubsetRandomSampler,
)
from reader.errors import ConfigError, ConfigTypeError


def test_dataset_without_its_methods_cannot_be_made() -> None:
    class Half(Dataset[int]):
        def __len__(self) -> int:
            return 1

    with pytest.raises(TypeError, match="__getitem__"):
        Half()  # type: ignore[abstract]


def test_sampler_without_iter_cannot_be_made() -> None:
    class Nothing(Sampler[int]): ...

    with pytest.raises(TypeError, match="__iter__"):
        Nothing()  # type: ignore[abstract]


def test_sequence_sampler_follows_a_growing_dataset() -> None:
    dataset = ["a", "b"]
    sampler = SequenceSampler(dataset)
    assert (list(sampler), len(sampler)) == ([0, 1], 2)
    dataset.append("c")
    assert (list(sampler), len(sampler)) == ([0, 1, 2], 3)


@given(count=st.integers(0, 10_000), seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)))
def test_random_sampler_yields_each_index_once(count: int, seed: int | None) -> None:
    order = list(RandomSampler(range(count), seed=seed))
    assert sorted(order) == list(range(count))
    assert all(type(index) is int for index in order[:3])


@given(
    key=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40)),
    other=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**40)),
)
def test_order_is_a_pure_function_of_seed_and_epoch(
    key: tuple[int, int], other: tuple[int, int]
) -> None:
    def order(seed: int, epoch: int) -> list[int]:
        sampler = RandomSampler(range(200), seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(*key) == order(*key)
    assert (order(*key) == order(*other)) == (key == other)


# What ALGORITHM 1 draws. Change it only with a note in the changelog: seeded runs change.
GOLDEN = ([1, 3, 9, 7, 5, 2, 4, 8, 6, 0], [3, 2, 1, 4, 7, 8, 5, 9, 0, 6])


def test_order_stays_what_it_was_in_earlier_versions() -> None:
    sampler = RandomSampler(range(10), seed=1)
    first = list(sampler)
    sampler.set_epoch(1)
    assert (first, list(sampler)) == GOLDEN


def test_seed_and_epoch_do_not_run_into_each_other() -> None:
    wide, split = RandomSampler(range(100), seed=(7 << 32) + 5), RandomSampler(range(100), seed=5)
    split.set_epoch(7)
    assert list(wide) != list(split)


def test_unseeded_order_is_fresh_each_time_whatever_the_epoch() -> None:
    sampler = RandomSampler(range(1000))
    assert list(sampler) != list(sampler)
    sampler.set_epoch(3)
    assert list(sampler) != list(sampler)


def test_random_sampler_neither_reads_nor_changes_global_random_state() -> None:
    def draw() -> tuple[list[int], str]:
        random.seed(1)
        np.random.seed(1)
        before = repr((random.getstate(), np.random.get_state(legacy=False)))
        order = list(RandomSampler(range(100)))
        assert repr((random.getstate(), np.random.get_state(legacy=False))) == before
        return order, before

    assert draw()[0] != draw()[0]


def test_running_iterator_keeps_the_epoch_it_started_with() -> None:
    sampler = RandomSampler(range(50), seed=9)
    expected = list(sampler)
    started = iter(sampler)
    sampler.set_epoch(1)
    assert list(started) == expected
    assert list(sampler) != expected
    assert (sampler.epoch, sampler.seed) == (1, 9)


def test_two_live_iterators_do_not_disturb_each_other() -> None:
    sampler = RandomSampler(range(5000), seed=2)
    pairs = list(zip(sampler, sampler, strict=True))
    assert all(a == b for a, b in pairs)
    assert len(pairs) == 5000


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (
            lambda: RandomSampler(range(3), seed=-1),
            ConfigError,
            r"seed must be an int in .* got -1",
        ),
        (lambda: RandomSampler(range(3), seed=2**64), ConfigError, r"seed must be an int in \[0, "),
        (lambda: RandomSampler(range(3), seed=1.0), ConfigTypeError, r"seed .* a fresh order each"),
        (
            lambda: SubsetRandomSampler("01"),
            ConfigTypeError,
            r"indices, got '01' \(str\)\. Pass a l",
        ),
        (lambda: RandomSampler(5), ConfigTypeError, r"dataset with __len__, got 5 .* range\(n\)"),
        (lambda: SequenceSampler(iter([])), ConfigTypeError, r"a sampler takes a dataset with __l"),
        (lambda: SequenceSampler(list), ConfigTypeError, r"a sampler takes a dataset with __len__"),
        (lambda: RandomSampler("ab").set_epoch(-1), ConfigError, r"epoch must be .* from 0"),
        (lambda: BatchSampler([0], 0), ConfigError, r"batch_size must be .* got 0 .*NoBatching"),
        (lambda: BatchSampler([0], None), ConfigTypeError, r"batch_size must be .* got None"),
        (lambda: BatchSampler([0], 1, 1), ConfigTypeError, r"drop_last must be a bool, got 1"),
        (lambda: BatchSampler(iter([0]), 1), ConfigError, r"sampler must give a fresh iterator"),
        (lambda: BatchSampler(3, 1), ConfigTypeError, r"sampler must be an iterable"),
        (lambda: NoBatching(iter([0])), ConfigError, r"sampler must give a fresh iterator"),
    ],
)
def test_bad_argument_is_refused(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


@given(count=st.integers(0, 300), size=st.integers(1, 40), drop_last=st.booleans())
def test_batches_hold_each_index_once_in_order(count: int, size: int, drop_last: bool) -> None:
    sampler = BatchSampler(range(count), size, drop_last)
    batches = list(sampler)
    assert len(batches) == len(sampler)
    assert all(type(batch) is list for batch in batches)
    assert all(len(batch) == size for batch in batches[:-1])
    flat = [index for batch in batches for index in batch]
    assert flat == list(range(count - count % size if drop_last else count))
    assert list(sampler) == batches


def test_without_batching_each_index_is_a_task() -> None:
    sampler = NoBatching(SequenceSampler("abc"))
    assert (list(sampler), len(sampler)) == ([[0], [1], [2]], 3)


class Unsized:
    def __iter__(self) -> Iterator[int]:
        yield from (4, 5, 6)


@pytest.mark.parametrize("sampler", [BatchSampler(Unsized(), 2), NoBatching(Unsized())])
def test_length_is_unknown_without_the_length_of_the_sampler(sampler: Any) -> None:
    with pytest.raises(ConfigTypeError, match=r"not known: the sampler \(Unsized\) has no __len__"):
        len(sampler)
    assert [index for batch in sampler for index in batch] == [4, 5, 6]


class Broken:
    def __iter__(self) -> Iterator[int]:
        yield 0
        yield 1
        raise KeyError("mine")


def test_exception_of_the_sampler_passes_through_after_full_batches() -> None:
    batches = iter(BatchSampler(Broken(), 1))
    assert [next(batches), next(batches)] == [[0], [1]]
    with pytest.raises(KeyError, match="mine"):
        next(batches)


def test_endless_sampler_is_taken_lazily() -> None:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            while True:
                yield 0

    batches = iter(BatchSampler(Endless(), 3))
    assert [next(batches) for _ in range(2)] == [[0, 0, 0], [0, 0, 0]]
