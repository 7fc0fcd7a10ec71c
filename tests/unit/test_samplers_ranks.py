"""The samples of one rank: torch's split, our own order, epochs that other ranks resume."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
import torch.utils.data
from hypothesis import given
from hypothesis import strategies as st

from reader import DataLoader
from reader.data import DistributedSampler, RandomSampler
from reader.errors import ConfigError, ConfigTypeError, StateError


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "WORLD_SIZE", "RANK"):
        monkeypatch.delenv(name, raising=False)


def ranks(count: int, num_replicas: int, **options: Any) -> list[DistributedSampler]:
    return [
        DistributedSampler(range(count), num_replicas, rank, **options)
        for rank in range(num_replicas)
    ]


def dealt(shares: list[list[int]]) -> list[int]:
    """The divided order, of which rank r has the positions r, r + num_replicas ..."""
    assert len({len(share) for share in shares}) == 1
    return [index for row in zip(*shares, strict=True) for index in row]


@given(count=st.integers(1, 60), num_replicas=st.integers(1, 20), drop_last=st.booleans())
def test_the_split_in_order_is_that_of_torch(
    count: int, num_replicas: int, drop_last: bool
) -> None:
    for rank, ours in enumerate(ranks(count, num_replicas, shuffle=False, drop_last=drop_last)):
        theirs: Any = torch.utils.data.DistributedSampler(
            range(count),  # type: ignore[arg-type]
            num_replicas,
            rank,
            shuffle=False,
            drop_last=drop_last,
        )
        assert list(ours) == list(theirs)
        assert len(ours) == len(theirs)
        for name in ("num_samples", "total_size", "num_replicas", "rank", "shuffle", "drop_last"):
            assert getattr(ours, name) == getattr(theirs, name)


@given(
    count=st.integers(0, 100),
    num_replicas=st.integers(1, 9),
    epoch=st.integers(0, 2**40),
    seed=st.integers(0, 2**64 - 1),
)
def test_ranks_divide_one_shuffled_order(
    count: int, num_replicas: int, epoch: int, seed: int
) -> None:
    whole = RandomSampler(range(count), seed=seed)
    whole.set_epoch(epoch)
    order = list(whole)
    for drop_last in (False, True):
        samplers = ranks(count, num_replicas, seed=seed, drop_last=drop_last)
        for sampler in samplers:
            sampler.set_epoch(epoch)
        found = dealt([list(sampler) for sampler in samplers])
        rest = -count % num_replicas
        evened = order[: count - count % num_replicas] if drop_last else order + (order * 9)[:rest]
        assert found == evened


@given(
    count=st.integers(0, 80),
    worlds=st.lists(st.tuples(st.integers(1, 9), st.integers(0, 4)), min_size=2, max_size=4),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
)
def test_an_epoch_goes_on_with_any_number_of_ranks_and_loses_nothing(
    count: int, worlds: list[tuple[int, int]], shuffle: bool, drop_last: bool
) -> None:
    """Each world but the last takes some positions per rank, and leaves the rest to the next."""
    options = {"shuffle": shuffle, "drop_last": drop_last, "seed": 5}
    (whole,) = ranks(count, 1, **options)
    whole.set_epoch(3)
    order, taken, consumed = list(whole), [], 0
    for place, (num_replicas, steps) in enumerate(worlds):
        samplers = ranks(count, num_replicas, **options)
        for sampler in samplers:
            sampler.set_epoch(3)
            sampler.resume_from(consumed)
        shares = [list(sampler) for sampler in samplers]
        left = max(count - consumed, 0)
        assert {len(share) for share in shares} == {
            left // num_replicas if drop_last else -(-left // num_replicas)
        }
        is_last = place == len(worlds) - 1
        found = dealt(shares if is_last else [share[:steps] for share in shares])
        taken += found
        consumed += len(found)
    if drop_last:
        assert taken == order[: len(taken)]
        assert count - len(taken) < num_replicas
    else:
        assert taken[:count] == order
        assert len(taken) - count < max(num_replicas for num_replicas, _ in worlds)


def test_the_same_ranks_go_on_as_if_nothing_had_happened() -> None:
    straight, resumed = ranks(23, 4, seed=1), ranks(23, 4, seed=1)
    for one, other in zip(straight, resumed, strict=True):
        other.resume_from(3 * 4)
        assert list(one)[3:] == list(other)
        assert list(one) == list(other)  # and the next epoch is whole again


def test_each_iteration_takes_the_next_epoch() -> None:
    (sampler,) = ranks(40, 1)
    first, second = list(sampler), list(sampler)
    assert (sampler.epoch, first != second) == (2, True)
    sampler.set_epoch(0)
    assert [list(sampler), list(sampler.iter_from(3))] == [first, second[3:]]


def test_the_loader_does_not_change_an_epoch_that_was_set() -> None:
    sampler, same = ranks(40, 1) + ranks(40, 1)
    with DataLoader(list(range(40)), batch_size=8, sampler=sampler, num_workers=0) as loader:
        for epoch in (5, 6, 3):
            sampler.set_epoch(epoch)
            same.set_epoch(epoch)
            assert [int(n) for batch in loader for n in batch] == list(same)
        assert [int(n) for batch in loader for n in batch] == list(same)
        loader.set_epoch(9)
        same.set_epoch(9)
        assert [int(n) for batch in loader for n in batch] == list(same)


def test_a_prefetched_epoch_counts_as_any_other() -> None:
    sampler, same = ranks(12, 1) + ranks(12, 1)
    options: Any = {"num_workers": 1, "persistent_workers": True, "prefetch_next_epoch": True}
    with DataLoader(list(range(12)), batch_size=4, sampler=sampler, **options) as loader:
        for _ in range(3):
            assert [int(n) for batch in loader for n in batch] == list(same)
            assert sampler.epoch == same.epoch


def test_the_state_repeats_the_iteration_on_any_rank() -> None:
    old, new = ranks(20, 2, seed=6), ranks(20, 4, seed=1)
    for sampler in old:
        sampler.set_epoch(4)
        sampler.resume_from(6)
    before = old[0].state_dict()
    shares = [list(sampler) for sampler in old]
    state = json.loads(json.dumps(old[1].state_dict()))
    assert before == state == {"seed": 6, "epoch": 4, "consumed": 6}
    for sampler in new:
        sampler.load_state_dict(state)
        assert sampler.state_dict() == state
        assert sampler.epoch == 0
    again = dealt([list(sampler) for sampler in new])
    assert again[:14] == dealt(shares)
    assert new[0].epoch == 5
    assert list(new[0]) != again
    assert new[0].state_dict() == {"seed": 1, "epoch": 5, "consumed": 0}


def test_a_state_without_consumed_is_that_of_a_whole_epoch() -> None:
    (sampler,) = ranks(20, 1)
    sampler.resume_from(15)
    sampler.load_state_dict({"seed": 0, "epoch": 2})
    assert len(list(sampler)) == 20
    for consumed in (-1, "3", None):
        with pytest.raises(StateError, match="consumed must be an int of 0 or more, got"):
            sampler.load_state_dict({"seed": 0, "epoch": 7, "consumed": consumed})  # type: ignore[dict-item]
    with pytest.raises(StateError, match="is a dict with 'seed'"):
        sampler.load_state_dict(5)  # type: ignore[arg-type]
    assert (sampler.epoch, len(list(sampler))) == (3, 20)


@pytest.mark.parametrize(
    ("world", "rank"), [("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"), ("WORLD_SIZE", "RANK")]
)
def test_environment_gives_ranks_that_are_not_passed(
    monkeypatch: pytest.MonkeyPatch, world: str, rank: str
) -> None:
    monkeypatch.setenv(world, "3")
    monkeypatch.setenv(rank, "2")
    sampler = DistributedSampler(range(10))
    assert (sampler.num_replicas, sampler.rank) == (3, 2)


def test_sampler_survives_pickle_with_its_epoch() -> None:
    (sampler,) = ranks(30, 1)
    sampler.set_epoch(5)
    sampler.resume_from(4)
    copy = pickle.loads(pickle.dumps(sampler))
    assert (copy.epoch, list(copy)) == (5, list(sampler))


def test_dataset_that_changed_its_length_is_noticed() -> None:
    dataset = [1, 2, 3]
    sampler = DistributedSampler(dataset, 2, 0)
    dataset.append(4)
    with pytest.raises(ConfigError, match=r"it had 3 samples when .* has 4 now\. Make a new"):
        list(sampler)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: DistributedSampler(5, 1, 0), ConfigTypeError, r"dataset with __len__, got 5"),
        (lambda: DistributedSampler("ab", 0, 0), ConfigError, r"num_replicas must be .* got 0"),
        (lambda: DistributedSampler("ab", 2, 2), ConfigError, r"rank=2 .* Ranks .* from 0 to 1"),
        (lambda: DistributedSampler("ab", 2, -1), ConfigError, r"rank must be .* got -1"),
        (lambda: DistributedSampler("ab", 2), ConfigError, r"has neither PADDLE_TRAINER_ID nor"),
        (lambda: DistributedSampler("ab", 1, 0, 1), ConfigTypeError, r"shuffle must be a bool"),
        (lambda: DistributedSampler("ab", 1, 0, seed=None), ConfigTypeError, r"All ranks need the"),
        (lambda: DistributedSampler("ab", 1, 0, seed=-1), ConfigError, r"seed must be .* got -1"),
        (lambda: DistributedSampler("ab", 1, 0, drop_last=2), ConfigTypeError, r"drop_last must"),
        (lambda: ranks(4, 1)[0].resume_from(-1), ConfigError, r"consumed must be .* together have"),
        (lambda: ranks(4, 1)[0].set_epoch(-1), ConfigError, r"epoch must be .* from 0"),
    ],
)
def test_bad_argument_is_refused(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()
