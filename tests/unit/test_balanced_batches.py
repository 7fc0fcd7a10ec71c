"""Batches of bounded cost: each sample once, ranks that are equal, any position, other ranks."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reader import BalancedBatches, ConfigError, ConfigTypeError, DataLoader, StateError, share
from reader._core.plans.balance import cut, deal
from reader.data import balanced_batches
from reader.data.balanced_batches import _least_steps

SPEECH = np.clip(np.random.default_rng(5).lognormal(2.2, 0.7, 3000), 0.5, 30.0)

PLANS = [
    "692b2d19a1c4",
    "dc2acd53da43",
    "d5afb7dfcd9f",
    "12c940bada58",
    "50afb74b1d8e",
    "700838686780",
]


def plans(costs: Any, max_cost: float, ranks: int, **options: Any) -> list[list[list[int]]]:
    """Return the batches of each rank."""
    return [
        list(BalancedBatches(costs, max_cost, rank=rank, world_size=ranks, seed=7, **options))
        for rank in range(ranks)
    ]


def flat(of_ranks: list[list[list[int]]]) -> list[int]:
    return sorted(index for batches in of_ranks for batch in batches for index in batch)


def cost_of(costs: Any, batch: list[int], padded: bool = False) -> float:
    own = [float(costs[index]) for index in batch]
    return max(own) * len(own) if padded else sum(own)


def costs_of(least: int) -> st.SearchStrategy[list[Any]]:
    whole = st.lists(st.integers(least, 40), min_size=1, max_size=90)
    fractions = st.lists(st.floats(0.01, 40), min_size=1, max_size=90)
    return st.one_of(whole, fractions).filter(any)


@given(
    data=st.data(),
    ranks=st.integers(1, 6),
    window=st.integers(1, 100),
    max_cost=st.integers(40, 200),
    padded=st.booleans(),
    even=st.sampled_from(["repeat", "drop", "pad"]),
    seed=st.integers(0, 2**64 - 1),
    epoch=st.integers(0, 2**40),
)
@settings(max_examples=300)
def test_each_sample_comes_once_in_batches_within_the_limit_and_ranks_take_equally_many(
    data: st.DataObject,
    ranks: int,
    window: int,
    max_cost: int,
    padded: bool,
    even: Any,
    seed: int,
    epoch: int,
) -> None:
    costs = data.draw(costs_of(1 if padded else 0))
    count = len(costs)
    if even == "drop" and count < ranks:
        return
    options: dict[str, Any] = {"padded": padded, "window": window, "even": even, "seed": seed}
    samplers = [
        BalancedBatches(costs, max_cost, rank=rank, world_size=ranks, **options)
        for rank in range(ranks)
    ]
    for sampler in samplers:
        sampler.set_epoch(epoch)
    of_ranks = [list(sampler) for sampler in samplers]
    stats = samplers[0].stats()
    assert {len(batches) for batches in of_ranks} == {len(samplers[0])} == {stats["steps"]}
    found = flat(of_ranks)
    padding = [index for index in found if index >= count]
    assert {index % count for index in found} == set(range(count)) or even == "drop"
    if even == "drop":
        assert len(set(found)) == len(found) == count - stats["dropped"]
        assert stats["dropped"] < ranks * stats["windows"]
    elif even == "pad":
        assert [index for index in found if index < count] == list(range(count))
        assert len(padding) == stats["over"] < ranks * stats["windows"]
    else:
        assert len(found) == count + stats["over"]
    for batches in of_ranks:
        for batch in batches:
            assert batch
            within = [index % count for index in batch]
            assert cost_of(costs, within, padded) <= max_cost * (1 + 1e-9)
    position = data.draw(st.integers(0, len(samplers[0]) + 2))
    fresh = BalancedBatches(costs, max_cost, rank=ranks - 1, world_size=ranks, **options)
    fresh.set_epoch(epoch)
    assert list(fresh.iter_from(position)) == of_ranks[-1][position:]


@given(data=st.data(), padded=st.booleans(), even=st.sampled_from(["repeat", "pad"]))
@settings(max_examples=200)
def test_other_numbers_of_ranks_go_on_with_an_epoch_at_any_step(
    data: st.DataObject, padded: bool, even: Any
) -> None:
    costs = data.draw(costs_of(1))
    window, count = data.draw(st.integers(1, 60)), len(costs)
    options: dict[str, Any] = {"padded": padded, "window": window, "even": even, "seed": 3}
    state: Any = None
    taken: list[list[list[int]]] = []
    position = 0
    for ranks in [*data.draw(st.lists(st.integers(1, 5), max_size=3)), 2]:
        samplers = [
            BalancedBatches(costs, 100, rank=rank, world_size=ranks, **options)
            for rank in range(ranks)
        ]
        if state is not None:
            for sampler in samplers:
                sampler.load_state_dict(json.loads(json.dumps(state)))
        of_ranks = [list(sampler.iter_from(position)) for sampler in samplers]
        steps = data.draw(st.integers(0, len(of_ranks[0])))
        state, position = samplers[0].state_dict(), position + steps
        taken += [batches[:steps] for batches in of_ranks]
        rest = [batches[steps:] for batches in of_ranks]
    assert {len(batches) for batches in rest} == {len(rest[0])}
    found = [index for index in flat(taken + rest) if index < count]
    assert sorted(set(found)) == list(range(count))
    if even == "pad":
        assert len(found) == count


def test_the_plan_depends_on_seed_and_epoch_and_the_length_does_not() -> None:
    sampler = BalancedBatches(SPEECH, 60.0, seed=1, window=500)
    first = list(sampler)
    assert list(sampler) == first == list(BalancedBatches(SPEECH, 60.0, seed=1, window=500))
    sampler.set_epoch(1)
    second = list(sampler)
    other = list(BalancedBatches(SPEECH, 60.0, seed=2, window=500))
    assert len(first) == len(second) == len(other) == len(sampler)
    kept = {frozenset(batch) for batch in first if len(batch) > 1}
    assert not kept & {frozenset(batch) for batch in second}
    assert not kept & {frozenset(batch) for batch in other}


def test_plans_are_the_same_in_each_version() -> None:
    costs = 1 + np.arange(2000) * 7919 % 61
    made = [plans(costs, 300, 3, padded=padded, window=500) for padded in (False, True)]
    of_ranks = [json.dumps(batches).encode() for each in made for batches in each]
    found = [hashlib.sha256(each).hexdigest()[:12] for each in of_ranks]
    assert found == PLANS  # saved states name a place in such a plan


def test_without_a_seed_each_iteration_has_another_order_that_its_state_repeats() -> None:
    sampler = BalancedBatches(SPEECH, 60.0)
    first = list(sampler)
    state = sampler.state_dict()
    assert list(sampler) != first
    sampler.load_state_dict(state)
    assert list(sampler) == first


@pytest.mark.parametrize("ranks", [4, 8, 64])
@pytest.mark.parametrize("padded", [False, True])
def test_the_batches_of_a_step_cost_nearly_the_same(ranks: int, padded: bool) -> None:
    costs = np.tile(SPEECH, 7)
    of_ranks = plans(costs, 240.0, ranks, padded=padded, window=10000)
    totals = np.array(
        [[cost_of(costs, batch, padded) for batch in batches] for batches in of_ranks]
    )
    spread = totals.max(0) / totals.mean(0)
    assert spread.mean() < (1.02 if padded else 1.001)
    assert totals.mean() > 0.9 * 240
    assert (totals.argmax(0) > 0).any()  # it is not always the same rank that has most


def test_costs_may_lie_in_a_file_or_in_shared_memory_or_be_asked_for(tmp_path: Path) -> None:
    wanted = plans(SPEECH.astype(np.float32), 60, 2)
    path = tmp_path / "costs.f32"
    SPEECH.astype(np.float32).tofile(path)
    asked = []

    def lengths() -> list[float]:
        asked.append(1)
        return list(SPEECH.astype(np.float32).tolist())

    assert plans(np.memmap(path, np.float32, "r"), 60, 2) == wanted
    assert plans(share(SPEECH.astype(np.float32)), 60, 2) == wanted
    assert plans(lengths, 60, 2) == wanted
    assert len(asked) == 2  # once for each sampler


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_a_loader_resumes_at_any_batch_with_any_number_of_ranks(workers: int) -> None:
    rows = np.arange(len(SPEECH))

    def loader(ranks: int, rank: int, count: int) -> DataLoader[Any]:
        sampler = BalancedBatches(SPEECH, 60.0, seed=9, window=400, rank=rank, world_size=ranks)
        return DataLoader(rows, batch_sampler=sampler, num_workers=count)

    def drawn(loader: DataLoader[Any]) -> list[list[int]]:
        with loader:
            return [batch.tolist() for batch in loader]

    whole = [drawn(loader(4, rank, 0)) for rank in range(4)]
    states = []
    for rank in range(4):
        with loader(4, rank, workers) as begun:
            batches = iter(begun)
            assert [next(batches).tolist() for _ in range(37)] == whole[rank][:37]
            states.append(json.dumps(begun.state_dict()))
            del batches
    same = loader(4, 2, 2 - workers)
    same.load_state_dict(json.loads(states[2]))
    assert drawn(same) == whole[2][37:]
    rest = []
    for rank in range(3):
        other = loader(3, rank, workers)
        other.load_state_dict(json.loads(states[rank]))
        with other:
            batches = iter(other)
            rest.append([next(batches).tolist() for _ in range(5)])
            states[rank] = json.dumps(other.state_dict())
            del batches
    last = loader(1, 0, workers)
    last.load_state_dict(json.loads(states[1]))
    rest.append(drawn(last))
    assert flat([each[:37] for each in whole] + rest) == list(range(len(SPEECH)))
    assert drawn(last) == drawn(loader(1, 0, 0)) or last.epoch == 2  # the next epoch is whole


def test_a_state_of_other_costs_or_options_is_refused_by_name() -> None:
    sampler = BalancedBatches(SPEECH, 60.0, seed=1)
    state = sampler.state_dict()
    changed = SPEECH.copy()
    changed[7], changed[8] = changed[8], changed[7]
    for other, name in [
        (BalancedBatches(SPEECH, 90.0, seed=1), "max_cost"),
        (BalancedBatches(SPEECH[1:], 60.0, seed=1), "samples"),
        (BalancedBatches(SPEECH, 60.0, seed=1, padded=True), "padded"),
        (BalancedBatches(changed, 60.0, seed=1), "costs"),
        (BalancedBatches(SPEECH, 60.0, seed=1, even="drop"), "even"),
    ]:
        with pytest.raises(StateError, match=rf"^{name} of BalancedBatches is .* in the state"):
            other.load_state_dict(state)
    damages: list[dict[str, Any]] = [
        *({"taken": each} for each in (3, [3], [[0, 1]], [[1, -1]], [[1]], [[1, "2"]])),
        {"window": 0},
        {"world_size": None},
    ]
    for damage in damages:
        with pytest.raises(StateError, match="state of BalancedBatches"):
            sampler.load_state_dict({**state, **damage})
    loader = DataLoader(np.arange(3000), batch_sampler=BalancedBatches(SPEECH, 90.0, seed=1))
    saved = DataLoader(np.arange(3000), batch_sampler=sampler)
    next(iter(saved))
    with pytest.raises(StateError, match="max_cost of BalancedBatches"):
        loader.load_state_dict(saved.state_dict())


@pytest.mark.parametrize(
    ("costs", "max_cost", "options", "match"),
    [
        ([1, 50, 2], 40, {}, r"costs\[1\] is 50, and max_cost is 40.*fits no batch.*leave out"),
        ([1.0, float("inf")], 40, {}, r"costs\[1\] is inf, and max_cost is 40"),
        ([1.0, float("nan")], 40, {}, r"costs\[1\] is nan: a cost must be"),
        ([3, -1], 40, {}, r"costs\[1\] is -1: a cost must be a number of 0 or more"),
        ([3, 0], 40, {"padded": True}, r"costs\[1\] is 0: .*above 0 with padded=True"),
        ([0, 0], 40, {}, "all 2 costs are 0"),
        ([], 40, {}, "costs must be one number|costs is empty"),
        (np.empty(0), 40, {}, "costs is empty"),
        ([[1, 2]], 40, {}, r"costs must be one number for each sample.*shape \(1, 2\)"),
        ([True, False], 40, {}, "costs must be one number for each sample.*dtype bool"),
        (["1", "2"], 40, {}, "costs must be one number"),
        ("12", 40, {}, "costs must be one number"),
        (None, 40, {}, "costs must be one number"),
        ([[1], [1, 2]], 40, {}, "costs must be an array of numbers"),
        (np.ma.array([1, 2], mask=[0, 1]), 40, {}, "costs must be .* got a masked array"),
        (torch.ones(2, dtype=torch.bfloat16), 40, {}, "costs must be an array of numbers"),
        ([1, 2], 0, {}, "max_cost must be a number above 0"),
        ([1, 2], float("nan"), {}, "max_cost must be a number above 0"),
        ([1, 2], True, {}, "max_cost must be a number above 0"),
        ([1, 2], "40", {}, "max_cost must be a number above 0"),
        ([1, 2], 2**60, {}, r"max_cost must be a number above 0, at most 2\*\*53"),
        ([1, 2], 40, {"window": 0}, "window must be an int of 1 or more"),
        ([1, 2], 40, {"even": "skip"}, "even must be 'drop', 'repeat' or 'pad'"),
        ([1, 2], 40, {"even": 1}, "even must be 'drop', 'repeat' or 'pad'"),
        ([1, 2], 40, {"rank": 0, "world_size": 2, "seed": None}, "seed must be an int, the same"),
        ([1], 40, {"rank": 0, "world_size": 2, "even": "drop"}, "leaves nothing of 1 samples"),
        ([1], 40, {"rank": 2, "world_size": 2}, "rank must be below world_size"),
    ],
)
def test_bad_arguments_are_refused_by_name(
    costs: Any, max_cost: Any, options: dict[str, Any], match: str
) -> None:
    with pytest.raises(ConfigError, match=match):
        BalancedBatches(costs, max_cost, **{"seed": 1, **options})


@given(costs=costs_of(0), ranks=st.integers(1, 6), factor=st.floats(1, 30))
def test_steps_are_those_of_dealing_every_sample(
    costs: list[Any], ranks: int, factor: float
) -> None:
    """Those that fit in any case are not dealt where steps are only counted."""
    limit = max(costs) * factor * (1 + 1e-9)
    found = np.array(costs, float)
    paying = -np.sort(-found[found > 0])
    given = np.empty(len(paying), np.int32)
    large = int(np.count_nonzero(paying > limit / 2))
    least = max(1, math.ceil(found.sum() / limit / ranks), -(-large // ranks))
    steps = _least_steps(found, ranks, limit, False)
    assert deal(paying, limit, given, np.empty(steps * ranks))
    assert steps == least or not deal(paying, limit, given, np.empty((steps - 1) * ranks))


@pytest.mark.parametrize("even", ["repeat", "drop"])
def test_windows_are_counted_side_by_side_and_only_up_to_the_position(
    even: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = np.random.default_rng(1).integers(1, 40, 3000)

    def made() -> BalancedBatches:
        return BalancedBatches(costs, 200, window=20, seed=1, rank=1, world_size=2, even=even)

    whole, length = list(made()), len(made())
    assert len(whole) == length
    counted: list[int] = []
    count = BalancedBatches.steps_of

    def noted(self: BalancedBatches, samples: Any, ranks: int) -> int:
        counted.append(len(samples))
        return count(self, samples, ranks)

    monkeypatch.setattr(BalancedBatches, "steps_of", noted)
    resumed = made()
    assert next(resumed.iter_from(5)) == whole[5]
    assert len(counted) < 20
    for position in (40, length // 2, length - 1):
        assert list(resumed.iter_from(position)) == whole[position:]
    assert list(resumed.iter_from(length)) == []
    assert len(counted) == 150
    monkeypatch.setattr(balanced_batches, "_CHUNK", 200)
    monkeypatch.setattr(balanced_batches, "usable_cores", lambda: 3.5)
    assert len(made()) == length
    assert len(counted) == 300


def test_costs_may_be_a_tensor_that_requires_a_gradient() -> None:
    costs: Any = torch.ones(2, requires_grad=True)
    assert sorted(next(iter(BalancedBatches(costs, 40, seed=1)))) == [0, 1]


def test_arguments_of_a_wrong_type_are_type_errors() -> None:
    for costs, max_cost in (("12", 40), ([1, 2], "40"), ([True], 40)):
        with pytest.raises(ConfigTypeError):
            BalancedBatches(costs, max_cost)  # type: ignore[arg-type]


def test_the_compiled_loops_check_their_arrays() -> None:
    costs = np.ones(3)
    with pytest.raises(ValueError, match="batch_of has 2 places for 3 costs"):
        deal(costs, 9.0, np.empty(2, np.int32), np.empty(2))
    with pytest.raises(ValueError, match="totals has 1 places, and ends has 3"):
        cut(costs, 9.0, np.empty(3, np.int64), np.empty(1))
    assert not deal(costs, 9.0, np.empty(3, np.int32), np.empty(0))
    assert cut(costs, 1.0, np.empty(2, np.int64), np.empty(2)) == -1
