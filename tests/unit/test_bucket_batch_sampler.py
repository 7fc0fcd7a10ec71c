"""Batches of similar length: each sample once, orders by seed, any position, ranks, bad input."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import BucketBatchSampler, ConfigError, ConfigTypeError, DataLoader, StateError

LENGTHS = np.random.default_rng(3).integers(1, 60, 203).tolist()


def flat(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=80),
    st.integers(1, 9),
    st.integers(1, 7),
    st.integers(0, 2**64 - 1),
    st.booleans(),
)
def test_each_sample_comes_once_in_a_batch_of_its_bucket(
    lengths: list[int], batch_size: int, buckets: int, seed: int, shuffle: bool
) -> None:
    sampler = BucketBatchSampler(lengths, batch_size, buckets=buckets, seed=seed, shuffle=shuffle)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert len(batches) == len(sampler)
    for batch in batches:
        assert 1 <= len(batch) <= batch_size
        assert len({np.searchsorted(sampler.edges, lengths[index]) for index in batch}) == 1
    for position in range(0, len(batches) + 2, 3):
        assert list(sampler.iter_from(position)) == batches[position:]


@pytest.mark.parametrize("shuffle", [True, False])
def test_no_batch_holds_more_tokens_than_it_may(shuffle: bool) -> None:
    sampler = BucketBatchSampler(LENGTHS, max_tokens=100, shuffle=shuffle, seed=1)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(len(LENGTHS)))
    for batch in batches:
        assert max(LENGTHS[index] for index in batch) * len(batch) <= 100
    assert max(map(len, batches)) > 10


def test_edges_may_be_given() -> None:
    sampler = BucketBatchSampler(LENGTHS, 4, buckets=[10, 20, 100], seed=0)
    assert sampler.edges == [10, 20, 100]
    assert sampler.counts == [
        sum(low < length <= high for length in LENGTHS)
        for low, high in ((0, 10), (10, 20), (20, 100))
    ]
    stats = sampler.stats()
    padded = sum(edge * count for edge, count in zip(sampler.edges, sampler.counts, strict=True))
    assert stats["padding"] == pytest.approx(1 - sum(LENGTHS) / padded)
    assert json.loads(json.dumps(stats)) == stats


def test_orders_are_functions_of_seed_and_epoch() -> None:
    def order(seed: int | None, epoch: int) -> list[list[int]]:
        sampler = BucketBatchSampler(LENGTHS, 4, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    assert order(1, 0) == order(1, 0)
    different = [order(1, 0), order(1, 1), order(2, 0), order(None, 0), order(None, 0)]
    assert len({str(each) for each in different}) == 5
    firsts = [order(seed, 0)[0] for seed in range(200)]
    assert len({np.searchsorted([10, 30, 50], LENGTHS[batch[0]]) for batch in firsts}) == 4


def test_short_batches_are_left_out_when_asked() -> None:
    sampler = BucketBatchSampler(LENGTHS, 7, buckets=3, drop_last=True, seed=0)
    batches = list(sampler)
    assert {len(batch) for batch in batches} == {7}
    assert len(batches) == len(sampler) == sum(count // 7 for count in sampler.counts)


@pytest.mark.parametrize("drop_last", [True, False])
@pytest.mark.parametrize("ranks", [2, 3, 5])
def test_ranks_have_equally_many_batches_and_together_all(ranks: int, drop_last: bool) -> None:
    options: dict[str, Any] = {"batch_size": 4, "seed": 5, "drop_last": drop_last}
    whole = list(BucketBatchSampler(LENGTHS, **options))
    shares = [
        list(BucketBatchSampler(LENGTHS, num_replicas=ranks, rank=rank, **options))
        for rank in range(ranks)
    ]
    assert len({len(share) for share in shares}) == 1
    dealt = [batch for step in zip(*shares, strict=True) for batch in step]
    if drop_last:
        assert dealt == whole[: len(whole) // ranks * ranks]
    else:
        assert dealt == whole + whole[: -len(whole) % ranks]


@pytest.mark.parametrize("workers", [(0, 2), (2, 0), (1, 3)])
def test_loader_resumes_at_any_batch_with_other_workers(workers: tuple[int, int]) -> None:
    def loader(count: int) -> DataLoader[Any, Any]:
        sampler = BucketBatchSampler(LENGTHS, max_tokens=300, seed=9)
        return DataLoader(
            range(len(LENGTHS)), batch_sampler=sampler, num_workers=count, framework="numpy"
        )

    with loader(workers[0]) as straight:
        states, epochs = [], []
        for _ in range(2):
            epoch = []
            for batch in straight:
                epoch.append(batch.tolist())
                states.append(json.loads(json.dumps(straight.state_dict())))
            epochs.append(epoch)
    assert epochs[0] != epochs[1]
    assert sorted(flat(epochs[1])) == list(range(len(LENGTHS)))
    size = len(epochs[0])
    for at in 0, 1, size // 2, size - 1, size, size + 7:
        with loader(workers[1]) as resumed:
            resumed.load_state_dict(states[at])
            rest = [batch.tolist() for batch in resumed]
        wanted = (epochs[0] if at < size else epochs[1])[at % size + 1 :]
        assert rest == wanted


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"lengths": [3, 0, 2]}, ConfigError, r"lengths\[1\] is 0: a length must be 1 or more"),
        ({"lengths": [3, -7]}, ConfigError, r"lengths\[1\] is -7"),
        ({"lengths": []}, (ConfigError, ConfigTypeError), "lengths"),
        ({"lengths": [1.5]}, ConfigTypeError, "one int for each sample"),
        ({"lengths": [[1]]}, ConfigTypeError, "one int for each sample"),
        ({"lengths": [[1], [1, 2]]}, ConfigTypeError, "lengths must be an array of numbers"),
        ({"lengths": [1], "max_tokens": 3}, ConfigError, "pass one of them"),
        ({"lengths": [1], "batch_size": None}, ConfigError, "pass one of them"),
        ({"lengths": [1], "batch_size": 0}, ConfigError, "batch_size"),
        (
            {"lengths": [1, 50], "batch_size": None, "max_tokens": 49},
            ConfigError,
            "max_tokens must be at least the length of the longest bucket, 50, got 49",
        ),
        ({"lengths": [5, 99], "buckets": [10, 50]}, ConfigError, r"lengths\[1\] is 99, .*ends at"),
        ({"lengths": [5], "buckets": [50, 10]}, ConfigError, "ascending"),
        ({"lengths": [5], "buckets": []}, ConfigError, "ascending"),
        ({"lengths": [5], "buckets": 0}, ConfigError, "buckets"),
        ({"lengths": [5], "num_replicas": 2, "rank": 2}, ConfigError, "rank"),
        ({"lengths": [5], "seed": -1}, ConfigError, "seed"),
    ],
    ids=str,
)
def test_invalid_arguments_are_refused_by_name(
    options: dict[str, Any], kind: Any, text: str
) -> None:
    with pytest.raises(kind, match=text):
        BucketBatchSampler(**{"batch_size": 4, **options})


def test_several_ranks_need_a_seed() -> None:
    with pytest.raises(ConfigError, match="seed must be an int, the same one in all 2 ranks"):
        BucketBatchSampler(LENGTHS, 4, num_replicas=2, rank=0)
    for rank in range(2):
        BucketBatchSampler(LENGTHS, 4, shuffle=False, num_replicas=2, rank=rank)


def test_a_state_of_other_buckets_or_ranks_is_refused() -> None:
    def loader(lengths: list[int] = LENGTHS, **options: Any) -> DataLoader[Any, Any]:
        sampler = BucketBatchSampler(lengths, 4, seed=9, **options)
        return DataLoader(range(len(lengths)), batch_sampler=sampler)

    begun = loader()
    next(iter(begun))
    state = json.loads(json.dumps(begun.state_dict()))
    for name, other in (
        ("buckets", loader(LENGTHS[::-1])),
        ("buckets", loader(buckets=3)),
        ("num_replicas", loader(num_replicas=2, rank=0)),
        ("shuffle", loader(shuffle=False)),
        ("drop_last", loader(drop_last=True)),
    ):
        with pytest.raises(StateError, match=rf"^{name} of BucketBatchSampler is .* in the state"):
            other.load_state_dict(state)
    for name in ("buckets", "num_replicas", "shuffle", "drop_last"):  # as earlier versions saved it
        del state["order"]["drawn"][name]
    again = loader()
    again.load_state_dict(state)
    assert len(list(again)) == len(begun) - 1
