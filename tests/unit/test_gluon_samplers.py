"""Gluon's samplers: orders and texts, the rules of last_batch, seeds, and loaders that resume."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import RandomSampler as TorchRandomSampler

import reader
from reader import ConfigError, ConfigTypeError, DataLoader, StateError
from reader.compat.gluon.batch_sampler import BatchSampler, SeekableBatchSampler
from reader.compat.gluon.samplers import (
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

COUNT = 10


class Own:
    """A user's sampler, which draws from the global generator with its first index."""

    def __iter__(self) -> Iterator[int]:
        yield from np.random.permutation(COUNT).tolist()

    def __len__(self) -> int:
        return COUNT


# -- single indices ------------------------------------------------------------------------------


def test_sequential_begins_where_it_should() -> None:
    assert list(SequentialSampler(4, start=6)) == [6, 7, 8, 9]
    assert len(SequentialSampler(4, start=6)) == 4


def test_random_without_a_seed_draws_as_gluon_does() -> None:
    sampler = RandomSampler(50)
    np.random.seed(7)
    found = [list(sampler) for _ in range(3)]
    np.random.seed(7)
    for order in found:
        wanted = np.arange(50)
        np.random.shuffle(wanted)
        assert order == wanted.tolist()
    assert type(found[0][0]) is int


def test_random_without_a_seed_repeats_an_order_and_leaves_the_global_generator_alone() -> None:
    np.random.seed(2)  # another test may have left the state that is set below
    sampler = RandomSampler(50)
    order = list(sampler)
    state = json.loads(json.dumps(sampler.state_dict()))
    np.random.seed(1)
    before = np.random.get_state()[1]
    other = RandomSampler(50)
    other.load_state_dict(state)
    assert other.state_dict() == state
    assert list(other.iter_from(20)) == order[20:]
    assert (np.random.get_state()[1] == before).all()
    assert list(other) != order


def test_random_with_a_seed_is_a_function_of_seed_and_epoch() -> None:
    sampler = RandomSampler(1000, seed=3)
    np.random.seed(1)
    before = np.random.get_state()[1]
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
    again = RandomSampler(1000, seed=3)
    again.load_state_dict({"seed": 3, "epoch": 0})
    assert list(again) == first == list(reader.RandomSampler(range(1000), seed=3))
    assert (np.random.get_state()[1] == before).all()


@pytest.mark.parametrize(
    "sampler",
    [
        SequentialSampler(13, 4),
        RandomSampler(13, seed=5),
        FilterSampler(lambda x: x % 3, range(20)),
        *(IntervalSampler(13, 3, rollover) for rollover in (True, False)),
        IntervalSampler(5, 5),
        IntervalSampler(6, 1),
    ],
)
def test_orders_begin_anywhere_and_length_is_what_comes(sampler: Sampler[int]) -> None:
    whole = list(sampler)
    assert len(sampler) == len(whole)
    for position in range(len(whole) + 3):
        assert list(sampler.iter_from(position)) == whole[position:]


def test_a_long_order_begins_anywhere_at_once() -> None:
    count = 10**12
    sampler = RandomSampler(count, seed=1)
    assert len(list(sampler.iter_from(count - 3))) == 3
    assert list(IntervalSampler(count, 10).iter_from(count - 2)) == [count - 11, count - 1]


def test_interval_rolls_over() -> None:
    whole = [0, 3, 6, 9, 12, 1, 4, 7, 10, 2, 5, 8, 11]
    assert list(IntervalSampler(13, 3)) == whole
    assert list(IntervalSampler(13, 3, rollover=False)) == whole[:5]
    assert len(IntervalSampler(13, 3, rollover=False)) == 5


def test_filter_calls_the_function_now_and_once() -> None:
    seen: list[Any] = []
    sampler = FilterSampler(lambda sample: seen.append(sample) or sample > 1, [1, 2, 3])
    assert list(sampler) == list(sampler) == [1, 2]
    assert seen == [1, 2, 3]


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: IntervalSampler(3, 4), AssertionError, "interval 4 must be at most the length, 3"),
        (lambda: IntervalSampler(3, 0), ConfigError, "interval must be"),
        (lambda: SequentialSampler(-1), ConfigError, "length must be"),
        (lambda: SequentialSampler(1, -1), ConfigError, "start must be"),
        (lambda: RandomSampler(2.5), ConfigTypeError, "length must be"),  # type: ignore[arg-type]
        (lambda: RandomSampler(2, seed=-1), ConfigError, "seed must be"),
        (lambda: FilterSampler(3, [1]), ConfigTypeError, "fn must be a function"),  # type: ignore[arg-type]
        (lambda: FilterSampler(bool, 3), ConfigTypeError, "a dataset with __len__"),
        (lambda: BatchSampler([1], 0), ConfigError, "batch_size must be"),
        (lambda: BatchSampler(iter([1]), 1), ConfigError, "one-shot"),
        (lambda: len(BatchSampler(iter_only(), 1)), ConfigTypeError, "no __len__"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    make: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        make()


def iter_only() -> Any:
    class Endless:
        def __iter__(self) -> Iterator[int]:
            return iter(range(3))

    return Endless()


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"seed": 1, "epoch": 0},
        {"numpy": 3},
        {"numpy": {}},
        {"numpy": {"bit_generator": "seed"}},
        {"numpy": {"bit_generator": "MT19937", "state": {"key": [], "pos": 0}}},
    ],
)
def test_a_state_of_another_object_than_a_random_sampler_is_refused(state: Any) -> None:
    np.random.seed(4)
    sampler = RandomSampler(5)
    with pytest.raises(StateError):
        sampler.load_state_dict(state)
    with pytest.raises(StateError):
        RandomSampler(5, seed=1).load_state_dict({"numpy": {}})
    order = np.arange(5)
    found = list(sampler)
    np.random.seed(4)
    np.random.shuffle(order)
    assert found == order.tolist()


# -- batches ------------------------------------------------------------------------------------


def epochs(batches: BatchSampler, count: int) -> list[tuple[int, list[list[int]]]]:
    return [(len(batches), list(batches)) for _ in range(count)]


def test_last_batch_as_in_gluon() -> None:
    keep = [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert epochs(BatchSampler(SequentialSampler(10), 4), 2) == [(3, keep)] * 2
    assert epochs(BatchSampler(SequentialSampler(10), 4, "discard"), 2) == [(2, keep[:2])] * 2
    rolled = [[8, 9, 0, 1], [2, 3, 4, 5], [6, 7, 8, 9]]
    found = epochs(BatchSampler(SequentialSampler(10), 4, "rollover"), 4)
    assert found == [(2, keep[:2]), (3, rolled)] * 2
    short = epochs(BatchSampler(SequentialSampler(3), 4, "rollover"), 5)
    lists: list[list[list[int]]] = [[], [[0, 1, 2, 0]], [[1, 2, 0, 1]], [[2, 0, 1, 2]], []]
    assert short == [(len(each), each) for each in lists]


def test_rolled_over_indices_are_taken_at_the_begin_and_kept_at_the_end_of_an_epoch() -> None:
    batches = BatchSampler(SequentialSampler(10), 4, "rollover")
    list(batches)
    first, second = iter(batches), iter(batches)
    assert next(second) == [8, 9, 0, 1]  # whoever begins first
    assert len(batches) == 2
    assert next(first) == [0, 1, 2, 3]
    assert list(second) == [[2, 3, 4, 5], [6, 7, 8, 9]]
    del first, second
    assert len(batches) == 2
    list(batches)
    for _ in batches:
        break
    assert list(batches) == [[0, 1, 2, 3], [4, 5, 6, 7]]  # the rolled over indices are lost


@pytest.mark.parametrize("word", ["keeep", None])
def test_an_unknown_last_batch_is_refused_late(word: Any) -> None:
    said = f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {word}"
    batches = BatchSampler(SequentialSampler(5), 4, word)
    with pytest.raises(ValueError, match=said):
        len(batches)
    iterator = iter(batches)
    assert next(iterator) == [0, 1, 2, 3]
    with pytest.raises(ValueError, match=said):
        next(iterator)
    assert list(iterator) == []
    assert list(iter(BatchSampler(SequentialSampler(4), 4, word))) == [[0, 1, 2, 3]]


def test_an_exception_of_the_sampler_ends_the_epoch() -> None:
    class Bad(Own):
        def __iter__(self) -> Iterator[int]:
            yield 0
            raise KeyError("mine")

    iterator = iter(BatchSampler(Bad(), 2))
    with pytest.raises(KeyError, match="mine"):
        next(iterator)
    assert list(iterator) == []


@given(
    st.integers(1, 12),
    st.integers(1, 9),
    st.integers(0, 2**64 - 1),
    st.integers(0, 9),
)
def test_epochs_of_a_seed_are_one_sequence_cut_into_batches(
    count: int, batch_size: int, seed: int, position: int
) -> None:
    sampler, sequence, found = RandomSampler(count, seed), [], []
    for epoch in range(7):
        sampler.set_epoch(epoch)
        sequence += list(sampler)
        batches = BatchSampler(RandomSampler(count, seed), batch_size, "rollover")
        batches.set_epoch(epoch)
        whole = list(batches)
        assert len(batches) == len(whole)
        assert list(batches.iter_from(position)) == whole[position:]
        found += whole
    size = len(sequence) // batch_size * batch_size
    assert found == np.reshape(sequence[:size], (-1, batch_size)).tolist()


@pytest.mark.parametrize("last_batch", ["keep", "discard"])
def test_batches_of_a_seekable_sampler_open_at_any_position(last_batch: str) -> None:
    batches = BatchSampler(IntervalSampler(13, 3), 4, last_batch)
    assert isinstance(batches, SeekableBatchSampler)
    whole = list(batches)
    assert [list(batches.iter_from(at)) for at in range(6)] == [whole[at:] for at in range(6)]
    plain = BatchSampler(Own(), 4, last_batch)
    assert type(plain) is BatchSampler
    assert len(list(plain.iter_from(1))) == len(plain) - 1


def test_copies_keep_the_rolled_over_indices() -> None:
    for sampler in SequentialSampler(10), RandomSampler(10, seed=2):
        batches = BatchSampler(sampler, 4, "rollover")
        list(batches)
        batches.set_epoch(1)
        copies = [copy.deepcopy(batches), pickle.loads(pickle.dumps(batches))]
        wanted = list(batches)
        assert len(wanted) == 3
        assert [list(each) for each in copies] == [wanted, wanted]
        assert {type(each) for each in copies} == {type(batches)}


# -- loaders ------------------------------------------------------------------------------------


def torchs() -> TorchRandomSampler:
    return TorchRandomSampler(range(COUNT), generator=torch.Generator().manual_seed(4))


EXACT: dict[str, Callable[[], Any]] = {
    "sequential": lambda: SequentialSampler(COUNT),
    "seeded": lambda: RandomSampler(COUNT, seed=5),
    "list": lambda: list(range(COUNT)),
    "ranks": lambda: reader.DistributedSampler(range(2 * COUNT), 2, 1),
    "torch's": torchs,
}
# These draw without a seed: the begun epoch is repeated, later ones are fresh.
FRESH: dict[str, Callable[[], Any]] = {
    "random": lambda: RandomSampler(COUNT),
    "own": Own,
    "reader's": lambda: reader.RandomSampler(range(COUNT)),
}
SAMPLERS = {**EXACT, **FRESH}


def loader_of(kind: str, last_batch: str, **options: Any) -> DataLoader[Any, Any]:
    batches = BatchSampler(SAMPLERS[kind](), 4, last_batch)
    return DataLoader(range(2 * COUNT), batch_sampler=batches, framework="numpy", **options)


def lists(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


THREADS = {"num_workers": 2, "worker_type": "thread"}
CELLS: list[tuple[str, str, dict[str, Any]]] = [
    *((kind, mode, {}) for kind in SAMPLERS for mode in ("rollover", "keep", "discard")),
    *((kind, "rollover", THREADS) for kind in SAMPLERS),
    ("sequential", "rollover", {"num_workers": 2}),  # the order is the trainer's
    ("sequential", "rollover", {"snapshot_every_n_steps": 3}),
    ("own", "rollover", {"snapshot_every_n_steps": 0}),
    ("seeded", "rollover", {"seed": 1}),
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("kind", "last_batch", "options"), CELLS, ids=str)
def test_a_loader_resumes_where_it_stopped(
    kind: str, last_batch: str, options: dict[str, Any]
) -> None:
    states, wanted = [], []
    with loader_of(kind, last_batch, **options) as straight:
        for number in range(4):
            epoch: list[list[int]] = []
            if kind in EXACT:
                states.append((number, 0, json.dumps(straight.state_dict())))
            for batch in straight:
                epoch.append(batch.tolist())
                states.append((number, len(epoch), json.dumps(straight.state_dict())))
            wanted.append(epoch)
    if last_batch == "rollover":
        assert [len(epoch) for epoch in wanted] == [2, 3, 2, 3]
    for number, batches, state in states:
        with loader_of(kind, last_batch, **options) as resumed:
            resumed.load_state_dict(json.loads(state))
            assert lists(resumed) == wanted[number][batches:]
            if kind in EXACT and number < 3:
                assert lists(resumed) == wanted[number + 1]


def test_a_loader_that_was_saved_before_its_first_batch_repeats_what_it_had_drawn() -> None:
    for kind in "random", "own", "reader's":
        with loader_of(kind, "rollover", **THREADS) as straight:
            lists(straight)
            iterator = iter(straight)
            state = straight.state_dict()
            wanted = lists(iterator)
            del iterator
        with loader_of(kind, "rollover", **THREADS) as resumed:
            resumed.load_state_dict(state)
            assert lists(resumed) == wanted


def test_set_epoch_of_a_loader_gives_the_batches_of_that_epoch() -> None:
    with loader_of("seeded", "rollover") as loader:
        wanted = [lists(loader) for _ in range(4)]
        for epoch in 3, 1, 2, 0:
            loader.set_epoch(epoch)
            assert lists(loader) == wanted[epoch]
            assert len(wanted[epoch]) == (3 if epoch % 2 else 2)


def test_a_state_of_another_seed_brings_its_rolled_over_indices() -> None:
    with loader_of("seeded", "rollover") as straight:
        lists(straight)
        iterator = iter(straight)
        next(iterator)
        state = straight.state_dict()
        wanted = lists(iterator)
        del iterator
    batches = BatchSampler(RandomSampler(COUNT, seed=6), 4, "rollover")
    with DataLoader(range(2 * COUNT), batch_sampler=batches, framework="numpy") as other:
        other.load_state_dict(state)
        assert lists(other) == wanted


@pytest.mark.parametrize(
    ("load", "text"),
    [
        (lambda: rollover().load_state_dict({}), "a dict with 'carry'"),
        (lambda: rollover().load_state_dict({"carry": [1, 2, 3, 4]}), "batch_size=4"),
        (lambda: iterator().load_state_dict({"carry": 3}), "a dict with 'carry'"),
        (lambda: iterator().load_state_dict({"carry": []}), "'taken'"),
        (lambda: iterator().load_state_dict({"carry": [], "taken": 0}), "'order' in the state"),
        (lambda: begun().load_state_dict({}), "this iterator has begun"),
        (lambda: seekable().load_state_dict({}), "that of its sampler, RandomSampler"),
        (lambda: seekable().load_state_dict({"sampler": {"seed": 1}}), "epoch"),
    ],
)
def test_a_state_of_another_object_than_a_batch_sampler_is_refused(
    load: Callable[[], None], text: str
) -> None:
    with pytest.raises(StateError, match=text):
        load()


def rollover() -> BatchSampler:
    return BatchSampler(SequentialSampler(10), 4, "rollover")


def seekable() -> BatchSampler:
    return BatchSampler(RandomSampler(10, seed=1), 4, "rollover")


def iterator() -> Any:
    return iter(rollover())


def begun() -> Any:
    found = iterator()
    next(found)
    return found
