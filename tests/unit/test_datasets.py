"""Datasets made of others: each sample in its place, many at once if a part can fetch so."""

from __future__ import annotations

import itertools
import pickle
import random
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from reader.data import (
    ChainDataset,
    ComposeDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    Subset,
    TensorDataset,
    random_split,
)
from reader.data.iterable import is_iterable_dataset
from reader.data.without import without
from reader.errors import ConfigError, ConfigTypeError, SampleIndexError


class Stream(IterableDataset[int]):
    def __init__(self, *items: int) -> None:
        self.items = items
        self.epoch = -1

    def __iter__(self) -> Iterator[int]:
        yield from self.items

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


class Table(Dataset[int]):
    """Counts in how many calls its samples were asked for."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.calls: list[list[int]] = []
        self.epoch = -1

    def __getitem__(self, index: int, /) -> int:
        raise AssertionError("one by one")

    def __getitems__(self, indices: list[int]) -> list[int]:
        self.calls.append(indices)
        return [index * 10 for index in indices]

    def __len__(self) -> int:
        return self.count

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch


def test_iterable_dataset_without_iter_cannot_be_made() -> None:
    class Nothing(IterableDataset[int]): ...

    with pytest.raises(TypeError, match="__iter__"):
        Nothing()  # type: ignore[abstract]


class TorchStream(torch.utils.data.IterableDataset):  # type: ignore[type-arg]
    def __iter__(self) -> Iterator[int]:
        yield 1


class Both(Stream):
    def __getitem__(self, index: int) -> int:
        return index


class OnlyIter:
    def __iter__(self) -> Iterator[int]:
        yield 1


class NoItems(list):  # type: ignore[type-arg]
    __getitem__ = None  # type: ignore[assignment]


@pytest.mark.parametrize(
    "dataset", [Stream(), Both(), TorchStream(), OnlyIter(), {1}, {1: 2}.keys(), NoItems()]
)
def test_objects_with_iter_alone_are_iterable_datasets(dataset: Any) -> None:
    assert is_iterable_dataset(dataset)


@pytest.mark.parametrize(
    "dataset",
    [[], range(3), {}, "ab", np.zeros(3), Table(1), Stream, OnlyIter, iter([]), map(int, ()), 3],
)
def test_lists_classes_and_one_shot_iterators_are_not_iterable_datasets(dataset: Any) -> None:
    assert not is_iterable_dataset(dataset)


def test_class_of_the_name_from_elsewhere_is_judged_by_its_methods() -> None:
    class IterableDataset:
        def __getitem__(self, index: int) -> int:
            return index

    assert not is_iterable_dataset(IterableDataset())


def test_tensor_dataset_yields_rows_of_anything_that_has_rows() -> None:
    dataset = TensorDataset([np.eye(2), torch.arange(2), ["a", "b"], range(5, 7)])
    row, number, letter, place = dataset[1]
    assert row.tolist() == [0, 1]
    assert (int(number), letter, place, len(dataset)) == (1, "b", 6, 2)
    assert dataset[-1][2] == "b"
    assert [sample[2] for sample in dataset] == ["a", "b"]


def test_compose_flattens_lists_and_tuples_and_keeps_the_rest() -> None:
    dataset = ComposeDataset([[(1, 2), [3]], [None, {"k": 1}], ["a", "b"]])
    assert (dataset[0], dataset[1], len(dataset)) == ((1, 2, None, "a"), (3, {"k": 1}, "b"), 2)


@given(st.lists(st.lists(st.integers(), max_size=5), min_size=1, max_size=5))
def test_concat_holds_each_sample_in_its_place(parts: list[list[int]]) -> None:
    dataset: ConcatDataset[int] = ConcatDataset(parts)
    flat = [item for part in parts for item in part]
    assert len(dataset) == len(flat)
    assert [dataset[index] for index in range(len(flat))] == flat
    assert [dataset[index] for index in range(-len(flat), 0)] == flat
    assert list(dataset) == flat
    if flat:
        assert dataset[np.int64(0)] == flat[0]


def test_chain_yields_the_parts_in_order_and_anew_each_epoch() -> None:
    dataset: ChainDataset[int] = ChainDataset([Stream(1, 2), Stream(), [3]])
    assert [list(dataset), list(dataset)] == [[1, 2, 3]] * 2
    assert is_iterable_dataset(dataset)


def test_subset_takes_the_samples_its_indices_name() -> None:
    for indices in ([3, 1], (3, 1), np.array([3, 1]), range(3, 0, -2)):
        subset: Subset[str] = Subset(list("abcd"), indices)  # type: ignore[arg-type]
        assert ([subset[0], subset[1], subset[-1]], len(subset)) == (["d", "b", "b"], 2)
        assert list(subset) == ["d", "b"]


def test_wrappers_fetch_many_at_once_if_a_part_can() -> None:
    table = Table(4)
    fetch = Subset(table, [3, 2, 1]).__getitems__
    assert (fetch([0, 2]), table.calls) == ([30, 10], [[3, 1]])
    one, other = Table(2), Table(3)
    concat: ConcatDataset[int] = ConcatDataset([one, [7], other])
    assert concat.__getitems__([5, 0, 2, -6, 3]) == [20, 0, 7, 0, 0]
    assert (one.calls, other.calls) == ([[0, 0]], [[2, 0]])
    composed = ComposeDataset([Table(2), ["a", "b"]])
    assert composed.__getitems__([1, 0]) == [(10, "b"), (0, "a")]
    deep = Subset(ConcatDataset([Subset(Table(2), [1, 0])]), [0])
    assert deep.__getitems__([0]) == [10]


@pytest.mark.parametrize(
    "dataset",
    [Subset([1], [0]), ConcatDataset([[1]]), ComposeDataset([[1]]), TensorDataset([[1]])],
)
def test_wrappers_of_plain_parts_do_not_claim_to_fetch_many(dataset: Any) -> None:
    assert not hasattr(dataset, "__getitems__")


def test_part_that_returns_too_few_samples_is_named() -> None:
    class Short(Table):
        def __getitems__(self, indices: list[int]) -> list[int]:
            return indices[1:]

    with pytest.raises(SampleIndexError, match=r"Short got 2 indices and returned 1 samples"):
        Subset(Short(4), [0, 1]).__getitems__([0, 1])


def test_wrappers_pass_the_epoch_to_parts_with_set_epoch() -> None:
    tables, streams = [Table(2), Table(2)], [Stream(), Stream()]
    Subset(tables[0], [0]).set_epoch(3)
    assert tables[0].epoch == 3
    for dataset in (ComposeDataset([tables[0], [1, 2]]), ConcatDataset([[1], *tables])):
        dataset.set_epoch(4)
        assert tables[0].epoch == 4
        tables[0].epoch = -1
    ChainDataset([[1], *streams]).set_epoch(5)
    assert [tables[1].epoch, *(stream.epoch for stream in streams)] == [4, 5, 5]


def test_every_wrapper_survives_pickle() -> None:
    datasets: Sequence[Any] = [
        TensorDataset([np.eye(2)]),
        ComposeDataset([[1], [2]]),
        ConcatDataset([[1], [2]]),
        ChainDataset([[1], [2]]),
        Subset(list("abc"), [1]),
    ]
    for dataset in datasets:
        copy = pickle.loads(pickle.dumps(dataset))
        assert type(copy) is type(dataset)
        assert repr(list(copy)) == repr(list(dataset))


AB = ["a", "b"]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: TensorDataset(np.eye(2)), ConfigTypeError, r"list or tuple .* got a ndarray"),
        (lambda: TensorDataset([]), ConfigError, r"one array or more, got none"),
        (
            lambda: TensorDataset([[1], "a"]),
            ConfigTypeError,
            r"arrays, got 'a' .* at position 1, which",
        ),
        (
            lambda: ComposeDataset("ab"),
            ConfigTypeError,
            r"a list of datasets, got 'ab' \(str\), which",
        ),
        (
            lambda: ConcatDataset([[], "t.csv"]),
            ConfigTypeError,
            r"datasets, got 't.csv' .*position 1",
        ),
        (
            lambda: ConcatDataset({"a": [1]}),
            ConfigTypeError,
            r"got .* whose items are its keys\. Pas",
        ),
        (
            lambda: ChainDataset([b"ab"]),
            ConfigTypeError,
            r"got b'ab' .* 0, which holds bytes\. Open the",
        ),
        (
            lambda: ChainDataset({"a": [1]}),
            ConfigTypeError,
            r"list of datasets, got .* list\(d\.val",
        ),
        (
            lambda: Subset("abc", [1]),
            ConfigTypeError,
            r"Subset takes a dataset, got 'abc' \(str\), w",
        ),
        (
            lambda: Subset([1, 2], "01"),
            ConfigTypeError,
            r"indices must be a list .* got '01' \(str\)",
        ),
        (lambda: random_split("t.csv", [1]), ConfigTypeError, r"random_split takes a dataset, got"),
        (lambda: without("abc", [1]), ConfigTypeError, r"without takes datasets, got 'abc'"),
        (lambda: TensorDataset([[1], [1, 2]]), ConfigError, r"number of rows, got \[1, 2\]"),
        (lambda: TensorDataset([np.float32(1)]), ConfigTypeError, r"first dimension, got .* 0\."),
        (lambda: TensorDataset([5]), ConfigTypeError, r"first dimension, got 5 \(int\)"),
        (lambda: ComposeDataset([]), ConfigError, r"ComposeDataset takes one dataset or more"),
        (lambda: ComposeDataset(5), ConfigTypeError, r"takes a list of datasets, got 5 \(int\)"),
        (lambda: ComposeDataset([[1], []]), ConfigError, r"equal length, got lengths \[1, 0\]"),
        (lambda: ComposeDataset([Stream()]), ConfigTypeError, r"map-style .* position 0"),
        (lambda: ConcatDataset([[], {1}]), ConfigTypeError, r"map-style .*\{1\}.* position 1"),
        (lambda: ConcatDataset([list]), ConfigTypeError, r"map-style datasets, with __geti"),
        (lambda: ConcatDataset(list), ConfigTypeError, r"takes a list of datasets, got <class"),
        (lambda: ChainDataset([]), ConfigError, r"ChainDataset takes one dataset or more"),
        (lambda: ChainDataset([[], iter([])]), ConfigError, r"fresh iterator .* at position 1"),
        (lambda: ChainDataset([Table(1)]), ConfigTypeError, r"without __iter__.*ConcatDataset"),
        (lambda: ChainDataset([Stream]), ConfigTypeError, r"takes iterable datasets, got <class"),
        (
            lambda: ConcatDataset([["a", "b"]])[2],
            SampleIndexError,
            r"index 2 of a Con.* 2 samples.*\)",
        ),
        (
            lambda: ConcatDataset([["a", "b"]])[-3],
            SampleIndexError,
            r"^absolute value .* got index -3",
        ),
        (lambda: random_split(AB, [1, 2]), ConfigError, r"^Sum of input lengths .* sum to 3"),
        (lambda: random_split(AB, [-1, 3]), ConfigError, r"lengths\[0\] must be .* got -1"),
        (lambda: random_split(AB, [0.5, 1.5]), ConfigTypeError, r"lengths\[0\] must be .* 0\.5"),
        (lambda: random_split(AB, [-0.5, 1.5]), ConfigError, r"^Fraction at index 0 is not bet"),
        (lambda: random_split(AB, 2), ConfigTypeError, r"lengths must be a list of numbers"),
        (lambda: random_split(AB, [2], -1), ConfigError, r"generator must be .* got -1"),
        (lambda: random_split(AB, [2], "x"), ConfigTypeError, r"generator must be .* got 'x'"),
    ],
)
def test_bad_argument_is_refused(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


@given(
    count=st.integers(0, 60),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    seed=st.one_of(st.none(), st.integers(0, 2**64 - 1)),
)
def test_split_puts_each_sample_in_one_part(count: int, cuts: list[int], seed: int | None) -> None:
    places = [0, *sorted(min(cut, count) for cut in cuts), count]
    lengths = [end - start for start, end in itertools.pairwise(places)]
    if sum(lengths) == 1:
        return  # lengths that are read as fractions
    parts = random_split(range(count), lengths, seed)
    assert [len(part) for part in parts] == lengths
    assert sorted(index for part in parts for index in part.indices) == list(range(count))
    assert all(type(index) is int for part in parts for index in part.indices)


def indices_of(parts: list[Subset[Any]]) -> list[Any]:
    return [part.indices for part in parts]


def test_split_follows_from_its_seed_or_generator() -> None:
    def split(generator: Any) -> list[Any]:
        return indices_of(random_split(range(50), [20, 30], generator))

    assert split(7) == split(7) != split(8)
    assert split(None) != split(None)
    assert split(np.random.default_rng(3)) == split(np.random.default_rng(3))
    assert split(np.random.RandomState(3)) == split(np.random.RandomState(3))
    going_on = np.random.default_rng(3)
    assert split(going_on) != split(going_on)


def test_split_leaves_global_random_state_alone() -> None:
    before = repr((random.getstate(), np.random.get_state(legacy=False)))
    random_split(range(5), [2, 3])
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == before


@pytest.mark.filterwarnings("ignore:Length of split")  # seven samples for ten parts
def test_split_by_fractions_rounds_down_and_divides_the_rest() -> None:
    assert list(map(len, random_split(range(10), [0.33, 0.33, 0.34]))) == [4, 3, 3]
    assert list(map(len, random_split(range(7), [0.1] * 10, 1))) == [1] * 7 + [0] * 3


def test_empty_part_warns_at_the_line_of_the_caller() -> None:
    with pytest.warns(UserWarning, match=r"^Length of split at index 1 is 0\. ") as caught:
        random_split(range(3), [0.9, 0.1])
    assert caught[0].filename == __file__
