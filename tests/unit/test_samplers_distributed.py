"""The split over ranks: block by block, as many batches for each, the same order everywhere."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.data import DistributedBatchSampler
from reader.errors import ConfigError, ConfigTypeError

VARIABLES = ("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID", "WORLD_SIZE", "RANK")


@pytest.fixture(autouse=True)
def _no_launcher(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.delenv(name, raising=False)


def ranks(
    count: int, batch_size: int, num_replicas: int, **options: Any
) -> list[DistributedBatchSampler]:
    return [
        DistributedBatchSampler(range(count), batch_size, num_replicas, rank, **options)
        for rank in range(num_replicas)
    ]


@pytest.mark.parametrize(
    ("shape", "drop_last", "expected"),
    [
        ((10, 2, 3), False, [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [0, 1]]]),
        ((10, 2, 3), True, [[[0, 1], [6, 7]], [[2, 3], [8, 9]], [[4, 5], [0, 1]]]),
        ((10, 4, 2), False, [[[0, 1, 2, 3], [8]], [[4, 5, 6, 7], [9]]]),
        ((10, 4, 2), True, [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]),
        ((3, 2, 4), False, [[[0]], [[1]], [[2]], [[0]]]),
        ((3, 2, 4), True, [[], [], [], []]),
        ((1, 2, 5), False, [[[0]]] * 5),
        ((0, 2, 3), False, [[], [], []]),
    ],
)
def test_split_is_by_blocks(
    shape: tuple[int, int, int], drop_last: bool, expected: list[list[list[int]]]
) -> None:
    samplers = ranks(*shape, drop_last=drop_last)
    assert [list(sampler) for sampler in samplers] == expected
    assert [len(sampler) for sampler in samplers] == [len(batches) for batches in expected]


@given(
    count=st.integers(0, 200),
    batch_size=st.integers(1, 20),
    num_replicas=st.integers(1, 9),
    shuffle=st.booleans(),
    drop_last=st.booleans(),
    epoch=st.integers(0, 2**40),
)
def test_ranks_cover_the_dataset_with_equal_shares(
    count: int, batch_size: int, num_replicas: int, shuffle: bool, drop_last: bool, epoch: int
) -> None:
    samplers = ranks(count, batch_size, num_replicas, shuffle=shuffle, drop_last=drop_last)
    shares = []
    for sampler in samplers:
        sampler.set_epoch(epoch)
        shares.append(list(sampler))
        assert len(shares[-1]) == len(sampler)
        assert all(len(batch) == batch_size for batch in shares[-1][:-1])
        assert all(type(index) is int for batch in shares[-1] for index in batch)
    assert len({tuple(map(len, share)) for share in shares}) == 1
    flat = [index for share in shares for batch in share for index in batch]
    if drop_last:
        assert len(set(flat)) >= len(flat) - num_replicas + 1
    else:
        total = -(-count // num_replicas) * num_replicas
        assert sorted(flat) == sorted([*range(count), *(i % count for i in range(count, total))])


def test_each_iteration_that_shuffles_takes_the_next_epoch() -> None:
    (sampler,) = ranks(40, 8, 1, shuffle=True)
    first, second = list(sampler), list(sampler)
    assert (sampler.epoch, first != second) == (2, True)
    sampler.set_epoch(0)
    assert [list(sampler), list(sampler)] == [first, second]


def test_iteration_in_order_does_not_count_epochs() -> None:
    (sampler,) = ranks(4, 2, 1)
    assert list(sampler) == list(sampler)
    assert sampler.epoch == 0


def test_order_is_that_of_the_seed() -> None:
    one, same = ranks(40, 8, 1, shuffle=True) + ranks(40, 8, 1, shuffle=True, seed=0)
    (other,) = ranks(40, 8, 1, shuffle=True, seed=1)
    assert list(one) == list(same) != list(other)


# What ALGORITHM 1 draws. Change it only with a note in the changelog: seeded runs change.
def test_order_stays_what_it_was_in_earlier_versions() -> None:
    samplers = ranks(7, 2, 2, shuffle=True, seed=1)
    assert [list(sampler) for sampler in samplers] == GOLDEN


GOLDEN = [[[1, 3], [5, 2]], [[0, 0], [4, 6]]]


@pytest.mark.parametrize(
    ("world", "rank"), [("PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ID"), ("WORLD_SIZE", "RANK")]
)
def test_environment_gives_ranks_that_are_not_passed(
    monkeypatch: pytest.MonkeyPatch, world: str, rank: str
) -> None:
    monkeypatch.setenv(world, "3")
    monkeypatch.setenv(rank, "2")
    sampler = DistributedBatchSampler(range(10), 2)
    assert (sampler.nranks, sampler.local_rank) == (3, 2)
    assert DistributedBatchSampler(range(10), 2, 4, 3).nranks == 4


@pytest.mark.parametrize("text", ["two", "-1", "0"])
def test_environment_with_nonsense_is_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("WORLD_SIZE", text)
    with pytest.raises(ConfigError, match=rf"variable WORLD_SIZE must be .*, got '{text}'"):
        DistributedBatchSampler(range(10), 2, rank=0)


def test_sampler_survives_pickle_with_its_epoch() -> None:
    (sampler,) = ranks(30, 4, 1, shuffle=True)
    sampler.set_epoch(5)
    copy = pickle.loads(pickle.dumps(sampler))
    assert (copy.epoch, list(copy)) == (5, list(sampler))


def test_dataset_that_changed_its_length_is_noticed() -> None:
    dataset = [1, 2, 3]
    sampler = DistributedBatchSampler(dataset, 2, 2, 0)
    dataset.append(4)
    assert list(sampler) == [[0, 1]]
    dataset.append(5)
    with pytest.raises(ConfigError, match=r"4 indices .* has 5 samples now\. Make a new sampler"):
        list(sampler)


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: DistributedBatchSampler(5, 1, 1, 0), ConfigTypeError, r"dataset with __len__"),
        (lambda: DistributedBatchSampler("ab", 0, 1, 0), ConfigError, r"batch_size must be .* 0"),
        (lambda: DistributedBatchSampler("ab", 1, 0, 0), ConfigError, r"num_replicas must be"),
        (lambda: DistributedBatchSampler("ab", 1, 1, -1), ConfigError, r"rank must be .* got -1"),
        (lambda: DistributedBatchSampler("ab", 1, 2, 2), ConfigError, r"rank=2 .* from 0 to 1"),
        (lambda: DistributedBatchSampler("ab", 1, 1, 0, 1), ConfigTypeError, r"shuffle must be a"),
        (lambda: DistributedBatchSampler("ab", 1, 1, 0, True, 1), ConfigTypeError, r"drop_last mu"),
        (lambda: DistributedBatchSampler("ab", 1, 1, 0, seed=-1), ConfigError, r"seed must .* -1"),
        (lambda: DistributedBatchSampler("ab", 1, rank=0), ConfigError, r"NUM nor WORLD_SIZE\. St"),
        (lambda: DistributedBatchSampler("ab", 1, 2), ConfigError, r"PADDLE_TRAINER_ID nor RANK"),
        (lambda: ranks(4, 1, 1)[0].set_epoch(-1), ConfigError, r"epoch must be .* from 0"),
    ],
)
def test_bad_argument_is_refused(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()
