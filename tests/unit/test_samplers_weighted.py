"""Samplers of a subset and by weight: drawn from (seed, epoch), as often as the weights say."""

from __future__ import annotations

import pickle
import random
import tracemalloc
from itertools import islice
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reader.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from reader.errors import ConfigError, ConfigTypeError


@given(
    indices=st.lists(st.integers(), min_size=1, max_size=300),
    seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)
def test_subset_sampler_yields_each_index_once(indices: list[int], seed: int | None) -> None:
    sampler = SubsetRandomSampler(indices, seed)
    assert sorted(sampler) == sorted(indices)
    assert len(sampler) == len(indices)


def test_subset_sampler_takes_indices_of_any_type() -> None:
    assert sorted(SubsetRandomSampler(("b", "a"))) == ["a", "b"]
    assert sorted(SubsetRandomSampler(np.array([5, 3]))) == [3, 5]  # type: ignore[arg-type]


def test_subset_sampler_orders_positions_as_the_random_sampler_does() -> None:
    subset, whole = SubsetRandomSampler(range(40), seed=5), RandomSampler(range(40), seed=5)
    assert list(subset) == list(whole)
    subset.set_epoch(2)
    whole.set_epoch(2)
    assert list(subset) == list(whole)


def draws(seed: int, epoch: int, **options: Any) -> list[int]:
    sampler = WeightedRandomSampler(range(1, 40), 30, seed=seed, **options)
    sampler.set_epoch(epoch)
    return list(sampler)


@pytest.mark.parametrize("replacement", [True, False])
def test_weighted_draws_are_a_function_of_seed_and_epoch(replacement: bool) -> None:
    once = draws(1, 0, replacement=replacement)
    assert once == draws(1, 0, replacement=replacement)
    assert once != draws(1, 1, replacement=replacement)
    assert once != draws(2, 0, replacement=replacement)
    assert all(type(index) is int for index in once)


def test_unseeded_draws_are_fresh_and_leave_global_random_state_alone() -> None:
    sampler = WeightedRandomSampler(np.ones(1000), 100)
    before = repr((random.getstate(), np.random.get_state(legacy=False)))
    assert list(sampler) != list(sampler)
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before


@given(
    weights=st.lists(st.floats(0, 1e9), min_size=1, max_size=30).filter(any),
    seed=st.integers(0, 2**64 - 1),
)
def test_weight_of_zero_is_never_drawn(weights: list[float], seed: int) -> None:
    drawn = list(WeightedRandomSampler(weights, 50, seed=seed))
    assert len(drawn) == 50
    assert all(weights[index] > 0 for index in drawn)


def test_weights_decide_how_often_an_index_comes() -> None:
    counts = np.bincount(list(WeightedRandomSampler([1, 0, 3], 40_000, seed=0)))
    assert counts[1] == 0
    assert abs(counts[2] / 40_000 - 0.75) < 0.01


def test_without_replacement_each_index_comes_once_at_most() -> None:
    sampler = WeightedRandomSampler([1, 0, 3, 1e-9], 3, replacement=False, seed=4)
    assert sorted(sampler) == [0, 2, 3]
    assert len(sampler) == 3


@pytest.mark.parametrize("scale", [1.0, 1e308, 5e-324, 2.0**-1000])
def test_weights_of_any_size_are_drawn_by_their_shares(scale: float) -> None:
    sampler = WeightedRandomSampler([scale] * 4, 4000, seed=1)
    counts = np.bincount(list(sampler), minlength=4)
    assert counts.min() > 900
    assert sorted(WeightedRandomSampler([scale] * 4, 4, False, seed=1)) == [0, 1, 2, 3]


def test_weights_lost_in_rounding_still_come_without_replacement() -> None:
    weights = [1e308, 1e-308, 0.0, 5e-324]
    assert sorted(WeightedRandomSampler(weights, 3, replacement=False, seed=0)) == [0, 1, 3]


def test_integers_beyond_the_precision_of_a_float_are_weights() -> None:
    counts = np.bincount(list(WeightedRandomSampler([2**60 + 1, 2**60], 2000, seed=0)))
    assert counts.min() > 900


def test_draws_begin_at_any_position() -> None:
    for replacement in (True, False):
        sampler = WeightedRandomSampler(range(1, 9000), 5000, replacement, seed=2)
        whole = list(sampler)
        for position in (0, 1, 4095, 4096, 4999, 5000):
            assert list(sampler.iter_from(position)) == whole[position:]


def test_weights_come_as_lists_arrays_or_tensors_and_are_copied() -> None:
    array = np.array([0.0, 1.0])
    tensor = torch.tensor([0.0, 1.0], requires_grad=True)
    sampler = WeightedRandomSampler(array, 2)
    array[:] = [1, 0]
    assert list(sampler) == [1, 1]
    assert list(WeightedRandomSampler(tensor, 2)) == [1, 1]
    assert len(WeightedRandomSampler([1, 2, 3], 5)) == 5


def test_many_draws_take_little_memory() -> None:
    sampler = WeightedRandomSampler([1, 2], 10**9)
    tracemalloc.start()
    try:
        assert sum(1 for _ in islice(sampler, 100_000)) == 100_000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1 << 20


@pytest.mark.parametrize(
    "sampler", [SubsetRandomSampler([4, 5], seed=1), WeightedRandomSampler([1, 2], 3, seed=1)]
)
def test_sampler_survives_pickle_with_its_epoch(sampler: Any) -> None:
    sampler.set_epoch(6)
    copy = pickle.loads(pickle.dumps(sampler))
    assert (copy.epoch, copy.seed, list(copy)) == (6, 1, list(sampler))


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: SubsetRandomSampler([]), ConfigError, r"one index or more, got none"),
        (lambda: SubsetRandomSampler({1}), ConfigTypeError, r"sequence of .* got \{1\} \(set\)"),
        (lambda: SubsetRandomSampler(list), ConfigTypeError, r"sequence of dataset indices, got"),
        (lambda: SubsetRandomSampler([1], -1), ConfigError, r"seed must be an int in .* got -1"),
        (lambda: WeightedRandomSampler([1], 0), ConfigError, r"num_samples must be .* got 0"),
        (lambda: WeightedRandomSampler([1], 1, 1), ConfigTypeError, r"replacement must be a bool"),
        (lambda: WeightedRandomSampler([1], 1, seed=-1), ConfigError, r"seed must be .* got -1"),
        (lambda: WeightedRandomSampler(["a"], 1), ConfigTypeError, r"array of numbers, got \['a'"),
        (lambda: WeightedRandomSampler([[1], [1, 2]], 1), ConfigTypeError, r"inhomogeneous"),
        (lambda: WeightedRandomSampler(3, 1), ConfigError, r"shape \(n,\), .*, got \(\)"),
        (lambda: WeightedRandomSampler([], 1), ConfigError, r"shape \(n,\), .*, got \(0,\)"),
        (lambda: WeightedRandomSampler([1, -2], 1), ConfigError, r"got -2\.0 at position 1"),
        (lambda: WeightedRandomSampler([np.nan], 1), ConfigError, r"finite numbers .* got nan"),
        (lambda: WeightedRandomSampler([np.inf], 1), ConfigError, r"finite numbers .* got inf"),
        (lambda: WeightedRandomSampler([0, 0], 1), ConfigError, r"1 or more .* got 0\."),
        (lambda: WeightedRandomSampler([[1], [2]], 1), ConfigError, r"come as weights\.reshape"),
        (lambda: WeightedRandomSampler(np.ones((2, 3)), 1), ConfigError, r"dimension\.$"),
        (lambda: WeightedRandomSampler([10**30, 1], 1), ConfigTypeError, r"of type object"),
        (lambda: WeightedRandomSampler([1j], 1), ConfigTypeError, r"of type complex128"),
        (lambda: WeightedRandomSampler("12", 1), ConfigTypeError, r"array of numbers, got '12'"),
        (lambda: WeightedRandomSampler([1, 0], 2, False), ConfigError, r"2 or more .* got 1\."),
    ],
)
def test_bad_argument_is_refused(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()
