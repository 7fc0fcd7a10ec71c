"""GluonNLP's other samplers: sorted, in windows, parts, budgets and shards; orders and states."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import BucketBatchSampler, ConfigError, DataLoader, StateError
from reader.compat.gluon.nlp.bucket_sampler import FixedBucketSampler
from reader.compat.gluon.nlp.budget_sampler import BoundedBudgetSampler
from reader.compat.gluon.nlp.samplers import SortedBucketSampler, SortedSampler, SplitSampler
from reader.compat.gluon.nlp.sharded_iterator import ShardedIterator

KEYS = np.random.RandomState(3).randint(1, 60, 50).tolist()
Options = dict[str, Any]


def flat(batches: Any) -> list[int]:
    return [index for batch in batches for index in batch]


# -- sorted ----------------------------------------------------------------------------------------


def test_sorted_samples_come_greatest_first() -> None:
    assert list(SortedSampler([3, 1, 2])) == [0, 2, 1]
    assert list(SortedSampler([3, 1, 2, 1], reverse=False)) == [1, 3, 2, 0]
    assert list(SortedSampler([(1, "b"), (1, "a")], reverse=False)) == [1, 0]


@given(st.lists(st.integers(0, 5), min_size=1, max_size=40), st.booleans())
def test_samples_with_equal_keys_keep_their_order(keys: list[int], reverse: bool) -> None:
    sampler = SortedSampler(keys, reverse)
    order = list(sampler)
    assert order == sorted(range(len(keys)), key=keys.__getitem__, reverse=reverse)
    assert len(sampler) == len(keys)
    assert list(sampler.iter_from(3)) == order[3:]


@pytest.mark.parametrize("make", [SortedSampler, lambda keys: SortedBucketSampler(keys, 2)])
def test_keys_of_no_samples_are_refused(make: Callable[..., Any]) -> None:
    with pytest.raises(AssertionError, match="sort_keys is empty"):
        make([])


# -- in windows ------------------------------------------------------------------------------------


def test_windows_are_sorted_and_cut_into_batches() -> None:
    sampler = SortedBucketSampler([5, 1, 4, 2, 3, 9, 8], 2, mult=2)
    assert list(sampler) == [[0, 2], [3, 1], [5, 6], [4]]
    rising = SortedBucketSampler([5, 1, 4, 2, 3, 9, 8], 2, mult=2, reverse=False)
    assert list(rising) == [[1, 3], [2, 0], [4, 6], [5]]


@given(
    st.integers(1, 60),
    st.integers(1, 6),
    st.sampled_from([1, 1.5, 2, 3.3, 100]),
    st.sampled_from([{}, {"shuffle": True}, {"shuffle": True, "seed": 3}]),
)
def test_windows_have_each_sample_once_and_the_length_is_right(
    count: int, batch_size: int, mult: float, options: Options
) -> None:
    keys = KEYS[:count]
    sampler = SortedBucketSampler(keys, batch_size, mult, **options)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(len(keys)))
    assert len(sampler) == len(batches)
    for batch in batches:
        assert [keys[index] for index in batch] == sorted((keys[i] for i in batch), reverse=True)
    state = json.loads(json.dumps(sampler.state_dict()))
    for position in range(len(batches) + 2):
        sampler.load_state_dict(state)
        assert list(sampler.iter_from(position)) == batches[position:]


def test_the_length_is_right_where_a_window_is_no_whole_number_of_batches() -> None:
    sampler = SortedBucketSampler([5, 1, 4, 2, 3, 9, 8], 2, mult=1.5)
    assert len(sampler) == len(list(sampler)) == 5


def test_windows_without_a_seed_are_drawn_as_gluonnlp_draws_them() -> None:
    np.random.seed(5)
    batches = list(SortedBucketSampler(KEYS, 4, mult=2.5, shuffle=True))
    drawn = np.random.RandomState(5)
    order = drawn.permutation(len(KEYS)).tolist()
    wanted = []
    for start in range(0, len(KEYS), 10):
        window = sorted(order[start : start + 10], key=KEYS.__getitem__, reverse=True)
        starts = list(range(0, len(window), 4))
        drawn.shuffle(starts)
        wanted += [window[at : at + 4] for at in starts]
    assert batches == wanted


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"mult": 0.5}, AssertionError, "^Bucket size multiplier must be larger than 1"),
        ({"batch_size": 0}, AssertionError, "batch_size must be larger than 0"),
        ({"batch_size": 1.5}, TypeError, "batch_size must be an int"),
    ],
)
def test_invalid_windows_are_refused(options: Options, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        SortedBucketSampler(**{"sort_keys": KEYS, "batch_size": 2, **options})


# -- parts -----------------------------------------------------------------------------------------


def parts(length: int, count: int, **options: Any) -> list[list[int]]:
    return [list(SplitSampler(length, count, index, **options)) for index in range(count)]


def test_parts_are_contiguous() -> None:
    assert parts(9, 4, shuffle=False) == [[0, 1, 2], [3, 4], [5, 6], [7, 8]]
    assert parts(4, 4, shuffle=False) == [[0], [1], [2], [3]]


@given(
    st.integers(1, 40),
    st.integers(1, 9),
    st.booleans(),
    st.integers(1, 3),
    st.booleans(),
    st.sampled_from([None, 5]),
)
def test_parts_have_each_sample_once_in_each_pass(
    length: int, count: int, even: bool, repeat: int, shuffle: bool, seed: int | None
) -> None:
    count = min(count, length)
    options: Options = {"even_size": even, "repeat": repeat, "shuffle": shuffle, "seed": seed}
    shares = [SplitSampler(length, count, index, **options) for index in range(count)]
    orders = [list(share) for share in shares]
    assert [len(share) for share in shares] == [len(order) for order in orders]
    whole = flat(orders)
    assert set(whole) == set(range(length))
    if even:
        assert {len(order) for order in orders} == {-(-length // count) * repeat}
    else:
        assert sorted(whole) == sorted([*range(length)] * repeat)
    if seed is not None:
        once = [order[: len(order) // repeat] for order in orders]
        assert [len(set(order)) for order in once] == [len(order) for order in once]
    for share, order in zip(shares, orders, strict=True):
        state = json.loads(json.dumps(share.state_dict()))
        for position in (0, 1, len(order) // 2, len(order), len(order) + 1):
            share.load_state_dict(state)
            assert list(share.iter_from(position)) == order[position:]


def test_parts_without_a_seed_are_drawn_by_the_module_random() -> None:
    random.seed(5)
    order = list(SplitSampler(10, 4, 3, even_size=True, repeat=2))
    drawn = random.Random(5)
    wanted = []
    for _ in range(2):
        samples = [9, *drawn.sample(range(10), 2)]
        drawn.shuffle(samples)
        wanted += samples
    assert order == wanted


def test_each_pass_and_each_epoch_has_another_order() -> None:
    sampler = SplitSampler(30, repeat=2, seed=1)
    order = list(sampler)
    assert order[:30] != order[30:]
    sampler.set_epoch(1)
    assert list(sampler) != order
    sampler.set_epoch(0)
    assert list(sampler) == order
    unseeded = SplitSampler(30)
    assert list(unseeded) != list(unseeded)


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"length": 2, "num_parts": 3}, AssertionError, r"^Length \(2\) must be greater than or"),
        ({"part_index": 2}, AssertionError, r"part_index must be in \[0, 1\], got 5"),
        ({"part_index": 5}, AssertionError, r"part_index must be in \[0, 1\], got 5"),
        ({"part_index": -1}, AssertionError, "part_index"),
        ({"num_parts": 0}, AssertionError, "num_parts must be larger than 0"),
        ({"repeat": 0}, ConfigError, "repeat must be an int of 1 or more"),
    ],
)
def test_invalid_parts_are_refused(options: Options, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text.replace("got 5", f"got {options.get('part_index')}")):
        SplitSampler(**{"length": 6, "num_parts": 2, **options})


# -- budgets ---------------------------------------------------------------------------------------


def test_batches_take_what_the_budget_allows() -> None:
    lengths = [3, 9, 2, 8, 9, 1]
    in_tokens = BoundedBudgetSampler(lengths, 18, shuffle=False)
    assert list(in_tokens) == [[5, 2, 0], [3, 1], [4]]
    in_samples = BoundedBudgetSampler(lengths, max_num_sentences=4, shuffle=False)
    assert list(in_samples) == [[5, 2, 0, 3], [1, 4]]
    in_both = BoundedBudgetSampler(lengths, 18, 2, shuffle=False)
    assert list(in_both) == [[5, 2], [0, 3], [1, 4]]
    unsorted = BoundedBudgetSampler(lengths, 18, sort_type="none", shuffle=False)
    assert list(unsorted) == [[0, 1], [2, 3], [4, 5]]
    of_pairs = BoundedBudgetSampler([(1, 3), (9, 1), (2, 2)], 9, shuffle=False)
    assert list(of_pairs) == [[2, 0], [1]]


def test_batches_have_a_multiple_of_samples_where_the_budget_allows() -> None:
    sampler = BoundedBudgetSampler([2] * 7 + [9, 9, 9], 14, -1, 4, shuffle=False)
    assert list(sampler) == [[0, 1, 2, 3], [4, 5, 6], [7], [8], [9]]


@given(
    st.lists(st.integers(1, 20), min_size=1, max_size=80),
    st.integers(20, 90),
    st.sampled_from([-1, 1, 4, 7]),
    st.integers(1, 4),
    st.sampled_from(["max", "none"]),
    st.sampled_from([{"shuffle": False}, {"seed": 5}, {}]),
)
def test_no_batch_exceeds_its_budget_and_each_sample_comes_once(
    lengths: list[int], tokens: int, most: int, multiple: int, sort_type: str, options: Options
) -> None:
    sampler = BoundedBudgetSampler(lengths, tokens, most, multiple, sort_type, **options)
    batches = list(sampler)
    assert sorted(flat(batches)) == list(range(len(lengths)))
    assert len(sampler) == len(batches)
    sizes = [len(batch) for batch in batches]
    assert most == -1 or max(sizes) <= most
    assert all(size * max(lengths[i] for i in b) <= tokens for size, b in zip(sizes, batches))
    if options == {"shuffle": False}:
        assert all(size % multiple == 0 or size < multiple for size in sizes[:-1])
    state = sampler.state_dict()
    for position in (0, 1, len(batches)):
        sampler.load_state_dict(state)
        assert list(sampler.iter_from(position)) == batches[position:]


@pytest.mark.parametrize(
    ("options", "kind", "text"),
    [
        ({"lengths": []}, AssertionError, "BoundedBudgetSampler does not support empty lengths"),
        ({"lengths": [0, 1]}, AssertionError, "lengths must be ints larger than 0"),
        ({"lengths": [1.5]}, AssertionError, "lengths must be ints larger than 0"),
        ({"max_num_tokens": -1}, AssertionError, "one of them at least must be larger than 0"),
        ({"max_num_tokens": 3}, ValueError, "max_num_tokens=3 is less than .* sample 1, 5. Pass"),
        ({"required_batch_size_multiple": 0}, AssertionError, "must be larger than 0, got 0"),
        ({"sort_type": "up"}, AssertionError, "sort_type must be one of .* got 'up'"),
    ],
)
def test_invalid_budgets_are_refused(options: Options, kind: Any, text: str) -> None:
    with pytest.raises(kind, match=text):
        BoundedBudgetSampler(**{"lengths": [1, 5, 2], "max_num_tokens": 9, **options})


# -- shards ----------------------------------------------------------------------------------------


@given(st.integers(0, 30), st.integers(1, 6), st.booleans())
def test_shards_have_each_batch_once_and_even_ones_equally_many(
    count: int, shards: int, even: bool
) -> None:
    batches = [[number] for number in range(count)]
    sharded = [ShardedIterator(batches, shards, index, even, seed=4) for index in range(shards)]
    items = [list(each) for each in sharded]
    assert [len(each) for each in sharded] == [len(each) for each in items]
    whole = flat(flat(items))
    assert set(whole) == set(range(count))
    if even:
        assert len({len(each) for each in items}) == 1
        assert all(len({*flat(each)}) == len(each) for each in items)
    else:
        assert whole == list(range(count))
    for each, found in zip(sharded, items, strict=True):
        for position in range(len(found) + 2):
            assert list(each.iter_from(position)) == found[position:]


def test_the_batch_that_is_added_depends_on_seed_and_epoch() -> None:
    def added(seed: int, epoch: int) -> int:
        sharded = ShardedIterator(range(101), 2, 1, even_size=True, seed=seed)
        sharded.set_epoch(epoch)
        return list(sharded)[-1]

    assert added(1, 0) == added(1, 0)
    assert len({added(seed, epoch) for seed in range(5) for epoch in range(5)}) > 9


def test_shards_pass_the_epoch_on() -> None:
    sampler = FixedBucketSampler(KEYS, 4, shuffle=True, seed=2)
    sharded = [ShardedIterator(sampler, 3, index) for index in range(3)]
    sharded[0].set_epoch(7)
    assert sampler.epoch == 7
    assert [batch for each in sharded for batch in each] == list(sampler)
    assert [*ShardedIterator(KEYS, 3, 2)] == KEYS[34:]


def test_invalid_shards_are_refused() -> None:
    with pytest.raises(AssertionError, match=r"part_index must be in \[0, 1\], got 2"):
        ShardedIterator(KEYS, 2, 2)
    sharded = ShardedIterator(FixedBucketSampler(KEYS, 4, shuffle=True, seed=2), 2, 0, seed=1)
    with pytest.raises(StateError, match="must have 'sampler', the state of its"):
        sharded.load_state_dict({"seed": 1, "epoch": 0})
    with pytest.raises(StateError, match="is a dict with 'seed'"):
        sharded.load_state_dict({"seed": 1, "epoch": 0, "sampler": {}})


# -- states ----------------------------------------------------------------------------------------

SHUFFLED: dict[str, Callable[[], Options]] = {
    "sorted": lambda: {"sampler": SortedSampler(KEYS)},
    "windows": lambda: {"batch_sampler": SortedBucketSampler(KEYS, 4, 2.5, shuffle=True)},
    "seeded windows": lambda: {
        "batch_sampler": SortedBucketSampler(KEYS, 4, 2.5, shuffle=True, seed=3)
    },
    "windows in order": lambda: {"batch_sampler": SortedBucketSampler(KEYS, 4, 2.5)},
    "part": lambda: {"sampler": SplitSampler(50, 3, 2, even_size=True, repeat=2)},
    "seeded part": lambda: {"sampler": SplitSampler(50, 3, 2, True, 2, seed=3)},
    "budget": lambda: {"batch_sampler": BoundedBudgetSampler(KEYS, 90)},
    "seeded budget": lambda: {"batch_sampler": BoundedBudgetSampler(KEYS, 90, seed=4)},
    "shard": lambda: {
        "batch_sampler": ShardedIterator(FixedBucketSampler(KEYS, 3, shuffle=True), 3, 2, True)
    },
    "seeded shard": lambda: {
        "batch_sampler": ShardedIterator(BucketBatchSampler(KEYS, 3, seed=1), 3, 2, True, seed=2)
    },
}


@pytest.mark.sampled(3)
@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", SHUFFLED)
def test_01_loader_resumes_at_any_batch(kind: str, workers: int) -> None:
    def loader(count: int) -> DataLoader[Any, Any]:
        options = SHUFFLED[kind]()
        if "sampler" in options:
            options["batch_size"] = 3
        return DataLoader(range(50), num_workers=count, worker_type="thread", **options)

    with loader(workers) as straight:
        epochs, states = [], []
        for _ in range(2):
            epoch = []
            for batch in straight:
                epoch.append(batch.tolist())
                np.random.rand(), random.random()  # the trainer draws as well
                states.append(json.dumps(straight.state_dict()))
            epochs.append(epoch)
    assert len(epochs[0]) > 3
    size = len(epochs[0])
    for at, state in enumerate(states):
        np.random.seed(77), random.seed(77)
        epoch, before = at // size, random.getstate()
        with loader(1 - workers) as resumed:
            resumed.load_state_dict(json.loads(state))
            if (at + 1) % size:
                assert [batch.tolist() for batch in resumed] == epochs[epoch][at % size + 1 :]
                assert random.getstate() == before  # it draws nothing
                assert np.random.rand() == np.random.RandomState(77).rand()


@pytest.mark.parametrize("make", [lambda: SplitSampler(50), SHUFFLED["windows"]])
def test_a_state_from_before_the_first_iteration_is_that_of_the_first(make: Any) -> None:
    made, other = make(), make()
    if isinstance(made, dict):
        made, other = made["batch_sampler"], other["batch_sampler"]
    other.load_state_dict(made.state_dict())
    assert list(made) == list(other)
    assert list(made) != list(other)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        ({"seed": 1, "epoch": 0}, "is a dict with 'random'"),
        (None, "is a dict with 'random'"),
        (SplitSampler(5).state_dict(), "is a dict with 'random'"),
        ({"random": {"numpy": {"bit_generator": "x"}}}, "random in the state .* cannot be set"),
        ({"random": {"bytes": "?"}}, "cannot be read"),
    ],
    ids=["seeded", "none", "python's", "damaged", "unreadable"],
)
def test_a_state_of_something_else_changes_nothing(state: Any, text: str) -> None:
    sampler = SortedBucketSampler(KEYS, 4, shuffle=True)
    np.random.seed(2)
    with pytest.raises(StateError, match=text):
        sampler.load_state_dict(state)
    order = list(sampler)
    np.random.seed(2)
    assert order == list(sampler)
    with pytest.raises(StateError, match="is a dict with 'seed'"):
        SortedBucketSampler(KEYS, 4, shuffle=True, seed=1).load_state_dict({"random": {}})


@pytest.mark.parametrize("kind", SHUFFLED)
def test_copies_have_the_same_order(kind: str) -> None:
    (sampler,) = SHUFFLED[kind]().values()
    state = sampler.state_dict() if hasattr(sampler, "state_dict") else None
    copies = [copy.deepcopy(sampler), pickle.loads(pickle.dumps(sampler))]
    orders = []
    for each in copies:
        if state is not None:
            each.load_state_dict(state)
        orders.append(list(each))
    assert orders[0] == orders[1]
