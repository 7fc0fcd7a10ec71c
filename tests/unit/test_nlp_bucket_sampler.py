"""GluonNLP's buckets: keys, batch sizes, orders, shards, states, and what is refused."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import ConfigError, DataLoader, StateError
from reader.compat.gluon.nlp.bucket_sampler import FixedBucketSampler
from reader.compat.gluon.nlp.bucket_schemes import (
    ConstWidthBucket,
    ExpWidthBucket,
    LinearWidthBucket,
)

LENGTHS = np.random.RandomState(3).randint(1, 60, 203).tolist()
Options = dict[str, Any]


def flat(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch]


@pytest.mark.parametrize(
    ("scheme", "keys"),
    [
        (ConstWidthBucket(), [100, 82, 64, 46, 28]),
        (LinearWidthBucket(), [17, 29, 47, 71, 100]),
        (ExpWidthBucket(), [25, 41, 59, 78, 100]),
        (ExpWidthBucket(bucket_len_step=2), [13, 19, 30, 54, 100]),
    ],
)
def test_schemes_compute_the_keys_of_gluonnlp(
    scheme: Callable[..., list[Any]], keys: list[int]
) -> None:
    assert scheme(100, 10, 5) == keys
    assert scheme(np.int64(100), np.int32(10), 5) == keys
    assert scheme((100, 100), (10, 10), 5) == [(key, key) for key in keys]
    assert scheme(np.array([100, 7]), [10, 7], 5)[keys.index(100)] == (100, 7)


def test_each_component_has_widths_of_its_own() -> None:
    assert ConstWidthBucket()((100, 50), (10, 5), 3) == [(100, 50), (70, 35), (40, 20)]


def test_keys_of_equal_lengths_are_one_key() -> None:
    assert ConstWidthBucket()(5, 5, 3) == [5, 5, 5]
    assert list(FixedBucketSampler([5, 5, 5], 2)) == [[0, 1], [2]]


@pytest.mark.parametrize(
    ("options", "sizes", "batches"),
    [
        ({"batch_size": 2}, [2, 2, 2], [2, 1, 2, 1, 2, 2]),
        ({"batch_size": 2, "ratio": 1.0}, [5, 2, 2], [2, 1, 2, 1, 4]),
        ({"batch_size": 12, "use_average_length": True}, [3, 1, 1], [1, 1, 1, 1, 1, 1, 3, 1]),
    ],
)
def test_batch_sizes_are_those_of_gluonnlp(
    options: Options, sizes: list[int], batches: list[int]
) -> None:
    sampler = FixedBucketSampler(range(1, 11), num_buckets=3, **options)
    lines = sampler.stats().splitlines()
    assert lines[2] == "  key=[4, 7, 10]"
    assert lines[4] == f"  batch_size={sizes}"
    assert [len(batch) for batch in sampler] == batches


def test_stats_are_gluonnlps_text() -> None:
    assert FixedBucketSampler(range(16, 32), 8, num_buckets=2).stats() == (
        "FixedBucketSampler:\n  sample_num=16, batch_num=2\n  key=[23, 31]\n  cnt=[8, 8]\n"
        "  batch_size=[8, 8]"
    )
    of_pairs = FixedBucketSampler([(100, 50), (10, 5), (70, 3)], 8, num_buckets=3)
    assert "key=[(40, 18), (70, 34), (100, 50)]" in of_pairs.stats()


def test_the_largest_bucket_comes_first_and_samples_keep_their_order() -> None:
    sampler = FixedBucketSampler([1, 9, 2, 8, 3, 9, 9], 2, bucket_keys=[3, 9])
    assert list(sampler) == [[1, 3], [5, 6], [0, 2], [4]]
    assert list(sampler.iter_from(2)) == [[0, 2], [4]]


def test_a_sample_of_several_lengths_goes_where_it_is_padded_least() -> None:
    keys = [(4, 9), (9, 4), (9, 9)]
    sampler = FixedBucketSampler([(4, 4), (3, 8), (8, 3), (5, 5), (1, 9)], 4, bucket_keys=keys)
    assert list(sampler) == [[3], [2], [0, 1, 4]]


@given(
    st.lists(st.integers(1, 40), min_size=1, max_size=80),
    st.integers(1, 9),
    st.integers(1, 7),
    st.sampled_from([ConstWidthBucket(), LinearWidthBucket(), ExpWidthBucket()]),
    st.sampled_from([{}, {"shuffle": True}, {"shuffle": True, "seed": 7}]),
    st.integers(0, 5),
)
@pytest.mark.filterwarnings("ignore:Some buckets are empty")
def test_each_sample_comes_once_and_any_position_is_entered(
    lengths: list[int], batch_size: int, buckets: int, scheme: Any, options: Options, shards: int
) -> None:
    options = {"num_buckets": buckets, "bucket_scheme": scheme, **options}
    sampler = FixedBucketSampler(lengths, batch_size, **options)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert len(batches) == len(sampler)
    sharded = FixedBucketSampler(lengths, batch_size, num_shards=shards, **options)
    groups = list(sharded)
    assert len(groups) == len(sharded)
    if shards:
        assert {len(group) for group in groups} == {shards}
        assert {index for group in groups for index in flat(group)} == set(range(len(lengths)))
        groups[-1:] = [[]]
        assert len(flat(flat(groups))) == len(set(flat(flat(groups))))  # only the last repeats
    for position in range(0, len(batches) + 2, 3):
        state = json.loads(json.dumps(sampler.state_dict()))
        sampler.load_state_dict(state)
        assert list(sampler.iter_from(position)) == batches[position:]


def test_a_last_group_that_is_short_begins_earlier() -> None:
    groups = list(FixedBucketSampler([1] * 100, 2, num_shards=4))
    assert len(groups) == 13
    assert groups[-1] == [[92, 93], [94, 95], [96, 97], [98, 99]]
    drawn = flat(flat(groups))
    assert (len(drawn), len(set(drawn))) == (104, 100)


def test_fewer_batches_than_shards_lose_no_sample() -> None:
    sampler = FixedBucketSampler([1] * 6, 2, num_shards=4)
    assert list(sampler) == [[[0, 1], [2, 3], [4, 5], [0, 1]]]
    assert len(sampler) == 1
    shuffled = FixedBucketSampler([1] * 6, 2, num_shards=4, shuffle=True, seed=1)
    (group,) = shuffled
    assert set(flat(group)) == set(range(6))


def test_without_a_seed_shuffles_are_those_of_numpy_and_accumulate() -> None:
    sampler = FixedBucketSampler(range(1, 10), 2, num_buckets=2, shuffle=True)
    batches, buckets = [0, 1, 2, 3, 4], [[0, 1, 2, 3, 4], [5, 6, 7, 8]]
    assert "key=[5, 9]" in sampler.stats()
    drawn = np.random.RandomState(5)
    np.random.seed(5)
    for _ in range(3):
        drawn.shuffle(batches)
        for bucket in buckets:
            drawn.shuffle(bucket)
        parts = [buckets[1][:2], buckets[1][2:], buckets[0][:2], buckets[0][2:4], buckets[0][4:]]
        assert list(sampler) == [parts[number] for number in batches]


def test_the_order_is_drawn_with_the_first_item_and_belongs_to_its_iterator() -> None:
    sampler = FixedBucketSampler(LENGTHS, 4, shuffle=True)
    np.random.seed(1)
    first = iter(sampler)
    assert np.random.get_state()[2] == np.random.RandomState(1).get_state()[2]
    head = next(first)
    others = list(sampler)
    np.random.seed(1)
    whole = list(FixedBucketSampler(LENGTHS, 4, shuffle=True))
    assert [head, *first] == whole
    assert others != whole


def test_with_a_seed_orders_are_functions_of_seed_and_epoch() -> None:
    def order(seed: int, epoch: int) -> list[list[int]]:
        sampler = FixedBucketSampler(LENGTHS, 4, shuffle=True, seed=seed)
        sampler.set_epoch(epoch)
        return list(sampler)

    np.random.seed(4)
    before = np.random.get_state()[1].tolist()
    assert order(1, 0) == order(1, 0)
    assert len({str(each) for each in (order(1, 0), order(1, 1), order(2, 0))}) == 3
    assert np.random.get_state()[1].tolist() == before


@pytest.mark.parametrize("seed", [None, 9], ids=["global", "seeded"])
@pytest.mark.parametrize("workers", [0, 1])
def test_01_loader_resumes_at_any_batch(seed: int | None, workers: int) -> None:
    def loader(count: int) -> DataLoader[Any, Any]:
        sampler = FixedBucketSampler(LENGTHS, 8, shuffle=True, seed=seed)
        options: Options = {"num_workers": count, "worker_type": "thread"}
        return DataLoader(range(len(LENGTHS)), batch_sampler=sampler, **options)

    with loader(workers) as straight:
        epochs, states = [], []
        for _ in range(3):
            epoch = []
            for batch in straight:
                epoch.append(batch.tolist())
                np.random.rand()  # the trainer draws as well
                states.append(json.dumps(straight.state_dict()))
            epochs.append(epoch)
    assert epochs[1] != epochs[2]
    assert all(sorted(flat(epoch)) == list(range(len(LENGTHS))) for epoch in epochs)
    size = len(epochs[0])
    for at in (0, 1, size // 2, size - 2, size, 2 * size, 2 * size + 5, 3 * size - 2):
        np.random.seed(77)
        with loader(1 - workers) as resumed:
            resumed.load_state_dict(json.loads(states[at]))
            assert [batch.tolist() for batch in resumed] == epochs[at // size][at % size + 1 :]
        assert np.random.rand() == np.random.RandomState(77).rand()  # it draws nothing


def test_01_later_shuffles_build_on_an_order_that_was_loaded() -> None:
    def sampler() -> FixedBucketSampler:
        return FixedBucketSampler(LENGTHS, 8, shuffle=True)

    straight = sampler()
    orders = [list(straight), list(straight)]
    state, random = straight.state_dict(), np.random.get_state()
    orders.append(list(straight))
    resumed = sampler()
    resumed.load_state_dict(state)
    np.random.set_state(random)
    assert [list(resumed), list(resumed)] == orders[1:]


def test_a_state_from_before_the_first_iteration_is_that_of_the_first() -> None:
    sampler = FixedBucketSampler(LENGTHS, 8, shuffle=True)
    state = sampler.state_dict()
    other = FixedBucketSampler(LENGTHS, 8, shuffle=True)
    other.load_state_dict(state)
    assert list(sampler) == list(other)
    assert list(sampler) != list(other)


@pytest.mark.parametrize("seed", [None, 3], ids=["global", "seeded"])
def test_copies_have_the_same_order(seed: int | None) -> None:
    sampler = FixedBucketSampler(LENGTHS, 8, shuffle=True, seed=seed, num_shards=2)
    list(sampler)
    orders = []
    for each in (sampler, copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))):
        np.random.seed(0)
        orders.append(list(each))
    assert orders[0] == orders[1] == orders[2]


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"seed": 1, "epoch": 0}, "is a dict with 'batches'"),
        ([], "is a dict with 'batches'"),
        ({"batches": {"dtype": "<f4", "bytes": ""}}, "is a dict with 'batches'"),
        ({"batches": {"dtype": "<u4", "bytes": "?"}}, "cannot be read"),
        (FixedBucketSampler([1, 2], 1, shuffle=True).state_dict(), "are not the 203 samples in"),
        (FixedBucketSampler(LENGTHS[::-1], 8, shuffle=True).state_dict(), "are not the 203"),
    ],
)
def test_a_state_of_something_else_changes_nothing(state: Any, text: str) -> None:
    sampler = FixedBucketSampler(LENGTHS, 8, shuffle=True)
    with pytest.raises(StateError, match=text):
        sampler.load_state_dict(state)
    np.random.seed(2)
    order = list(sampler)
    np.random.seed(2)
    assert order == list(FixedBucketSampler(LENGTHS, 8, shuffle=True))


def test_a_seeded_sampler_refuses_an_order() -> None:
    state = FixedBucketSampler(LENGTHS, 8, shuffle=True).state_dict()
    with pytest.raises(StateError, match="is a dict with 'seed'"):
        FixedBucketSampler(LENGTHS, 8, shuffle=True, seed=1).check_state(state)


UNFIT = (
    r"^Find elements in seq_lengths that cannot fit in the given buckets, seq_length=\[11 12\],"
    r" bucket_keys=\[5, 10\]\. You must increase the bucket size\..*index 1 is the first"
)
REFUSED: list[tuple[Options, type[Exception], str]] = [
    ({"lengths": []}, AssertionError, "^FixedBucketSampler does not support empty lengths."),
    ({"batch_size": 0}, AssertionError, "^Batch size must be larger than 0."),
    ({"batch_size": "4"}, AssertionError, "^Batch size must be larger than 0."),
    ({"ratio": -1}, AssertionError, "^batch size scaling ratio cannot be negative."),
    ({"ratio": None}, AssertionError, "^batch size scaling ratio cannot be negative."),
    ({"lengths": [3, 0]}, AssertionError, "^Sequence lengths must all be larger than 0."),
    ({"lengths": [(3, 1), (1, -1)]}, AssertionError, "lengths must all be larger than 0."),
    (
        {"num_buckets": 0},
        AssertionError,
        "^num_buckets must be set when bucket_keys is None. Received num_buckets=0",
    ),
    ({"num_buckets": None}, AssertionError, "Received num_buckets=None"),
    ({"lengths": [1.5]}, AssertionError, "^Elements in lengths must be either int or tuple/list"),
    ({"lengths": [(1, 2), (3,)]}, AssertionError, r"Received lengths=\[\(1, 2\), \(3,\)\]"),
    ({"lengths": ["a"]}, AssertionError, "Elements in lengths"),
    (
        {"lengths": [3, 11, 12], "bucket_keys": [5, 10]},
        ValueError,
        UNFIT,
    ),
    ({"lengths": [(3, 3)], "bucket_keys": [(9, 2)]}, ValueError, "cannot fit in the given"),
    ({"bucket_keys": []}, AssertionError, "bucket_keys must be one or more ints"),
    ({"bucket_keys": [(1, 2)]}, AssertionError, "bucket_keys must be one or more ints"),
    ({"lengths": [(3, 3)], "bucket_keys": [9]}, AssertionError, "or more tuples of 2 ints"),
    ({"bucket_keys": [(9, 2), (1,)]}, AssertionError, "bucket_keys must be"),
    ({"num_shards": -1}, ConfigError, "num_shards must be an int of 0 or more"),
    ({"seed": -1}, ConfigError, "seed"),
]


@pytest.mark.parametrize(("options", "kind", "text"), REFUSED)
def test_invalid_arguments_are_refused_in_gluonnlps_words(
    options: Options, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text) as caught:
        FixedBucketSampler(**{"lengths": [1, 5], "batch_size": 4, **options})
    assert isinstance(caught.value, ConfigError)


@pytest.mark.parametrize(
    ("step", "kind", "text"),
    [
        (1, ConfigError, "bucket_len_step must be greater than 1, got 1. .*ConstWidthBucket"),
        ("2", TypeError, "bucket_len_step must be a number"),
    ],
)
def test_a_factor_that_makes_no_widths_is_refused(step: Any, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        ExpWidthBucket(step)
    with pytest.raises(AssertionError, match="num_buckets must be set"):
        ExpWidthBucket()(9, 1, 0)


def test_unused_arguments_give_a_warning() -> None:
    with pytest.warns(UserWarning, match=r"^Some buckets are empty .* Unused bucket keys=\[4, 7\]"):
        FixedBucketSampler([1, 10], 2, bucket_keys=[1, 4, 7, 10])
    with pytest.warns(UserWarning, match="^num_buckets will not be used if bucket_keys is not"):
        FixedBucketSampler([1, 10], 2, 5, bucket_keys=[1, 10])
    with pytest.warns(UserWarning, match="^ratio=0.5 is ignored when use_average_length is True"):
        FixedBucketSampler([1, 10], 2, 2, ratio=0.5, use_average_length=True)


def test_lengths_may_be_whole_numbers_of_any_type() -> None:
    wanted = list(FixedBucketSampler([3, 9, 4], 2, 2))
    for given_ in (np.array([3.0, 9.0, 4.0], np.float32), (3, 9, 4), np.array([3, 9, 4], np.uint8)):
        assert list(FixedBucketSampler(given_, 2, 2)) == wanted
