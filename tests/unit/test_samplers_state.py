"""The state of a sampler: which order it took last, and how to take exactly that order again."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.data import RandomSampler, SubsetRandomSampler, WeightedRandomSampler
from reader.data.sampler import SeededSampler
from reader.errors import StateError

KINDS: dict[str, Any] = {
    "random": lambda seed=None: RandomSampler(range(300), seed=seed),
    "subset": lambda seed=None: SubsetRandomSampler(range(300), seed=seed),
    "weighted": lambda seed=None: WeightedRandomSampler([1.0] * 9, 300, seed=seed),
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [None, 0, 2**64 - 1])
def test_the_order_last_begun_can_be_taken_again(kind: str, seed: int | None) -> None:
    sampler = KINDS[kind](seed)
    sampler.set_epoch(4)
    list(sampler)
    order = list(sampler)
    state = json.loads(json.dumps(sampler.state_dict()))
    assert set(state) == {"seed", "epoch", *sampler.order_facts()}
    assert (state["epoch"], seed in (None, state["seed"])) == (4, True)
    other = KINDS[kind](None if seed is None else 77)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other.iter_from(0)) == order
    assert other.state_dict() == state
    other.load_state_dict(state)
    assert list(other.iter_from(290)) == order[290:]


def test_a_loaded_order_is_taken_once_whatever_epoch_is_set_meanwhile() -> None:
    sampler, first = RandomSampler(range(50), seed=1), RandomSampler(range(50), seed=9)
    sampler.load_state_dict({"seed": 9, "epoch": 0})
    sampler.set_epoch(3)
    assert list(sampler) == list(first)
    own = RandomSampler(range(50), seed=1)
    own.set_epoch(3)
    assert list(sampler) == list(own)
    assert (sampler.epoch, sampler.seed) == (3, 1)


def test_a_state_before_the_first_iteration_is_that_of_the_first_iteration() -> None:
    sampler = RandomSampler(range(50))
    state = sampler.state_dict()
    assert sampler.state_dict() == state
    order = list(sampler)
    assert sampler.state_dict() == state
    assert list(sampler) != order
    assert sampler.state_dict() != state
    sampler.load_state_dict(state)
    assert list(sampler) == order


def test_an_early_state_does_not_fix_the_epoch_of_a_seed() -> None:
    sampler = RandomSampler(range(50), seed=5)
    assert sampler.state_dict() == {"seed": 5, "epoch": 0}
    sampler.set_epoch(2)
    assert sampler.state_dict() == {"seed": 5, "epoch": 2}
    list(sampler)
    sampler.set_epoch(3)
    assert sampler.state_dict() == {"seed": 5, "epoch": 2}


@given(seed=st.integers(0, 2**64 - 1), epoch=st.integers(0, 2**63 - 1))
def test_any_seed_and_epoch_make_a_state(seed: int, epoch: int) -> None:
    sampler, loaded = RandomSampler(range(30), seed=seed), RandomSampler(range(30))
    sampler.set_epoch(epoch)
    loaded.load_state_dict({"seed": seed, "epoch": epoch})
    assert list(sampler) == list(loaded)
    assert sampler.state_dict() == loaded.state_dict()


def test_a_copy_takes_what_was_loaded() -> None:
    sampler = RandomSampler(range(50))
    sampler.load_state_dict({"seed": 3, "epoch": 1})
    copy = pickle.loads(pickle.dumps(sampler))
    assert list(copy) == list(sampler)


@pytest.mark.parametrize(
    ("state", "match"),
    [
        (None, r"is a dict with 'seed', got None .*state_dict\(\)"),
        ([1, 2], r"is a dict with 'seed'"),
        ({}, r"is a dict with 'seed', got \{\}"),
        ({"seed": 1}, r"is a dict with 'epoch', got \{'seed': 1\}"),
        ({"seed": -1, "epoch": 0}, r"does not fit: seed must be an int in \[0, .* got -1"),
        ({"seed": 2**64, "epoch": 0}, r"seed must be"),
        ({"seed": None, "epoch": 0}, r"seed must be .* got None"),
        ({"seed": 1, "epoch": "2"}, r"epoch must be .* got '2' \(str\)\. Was the state damaged"),
        ({"seed": 1, "epoch": -1}, r"epoch must be an int of 0 or more, got -1"),
    ],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_damaged_state_is_refused_and_changes_nothing(kind: str, state: Any, match: str) -> None:
    sampler: SeededSampler[int] = KINDS[kind](1)
    order, before = list(sampler), sampler.state_dict()
    with pytest.raises(StateError, match=match):
        sampler.load_state_dict(state)
    assert (sampler.state_dict(), list(sampler)) == (before, order)
