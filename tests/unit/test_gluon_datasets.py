"""Gluon's datasets: results of its methods, its texts, copies, and concurrent reads of records."""

from __future__ import annotations

import copy
import operator
import pickle
import random
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import reader
from reader import ConfigError, ConfigTypeError, DataLoader, DatasetError
from reader.compat.gluon.datasets import (
    ArrayDataset,
    Dataset,
    RecordFileDataset,
    SimpleDataset,
)
from reader.compat.gluon.samplers import IntervalSampler, RandomSampler, SequentialSampler

COUNT = 3000


def items(dataset: Any) -> list[Any]:
    return [dataset[index] for index in range(len(dataset))]


class Called:
    """A function that counts its calls."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.fn = fn
        self.calls: list[Any] = []

    def __call__(self, *args: Any) -> Any:
        self.calls.append(args)
        return self.fn(*args)


def test_transform_is_called_with_the_fields_of_a_tuple_as_arguments() -> None:
    pairs = ArrayDataset([1, 2], [3, 4])
    assert items(pairs.transform(operator.add)) == [4, 6]
    assert items(SimpleDataset([[1, 2], [3, 4]]).transform(sum)) == [3, 7]  # a list is one argument


def test_transform_is_lazy_by_default() -> None:
    for lazy, before, after in ((True, 0, 4), (False, 2, 2)):
        fn = Called(operator.neg)
        dataset = SimpleDataset([1, 2]).transform(fn, lazy)
        assert len(fn.calls) == before
        assert items(dataset) == items(dataset) == [-1, -2]
        assert len(fn.calls) == after


@pytest.mark.parametrize("lazy", [True, False])
def test_transform_first_changes_the_first_field_alone(lazy: bool) -> None:
    triples = ArrayDataset([1, 2], [3, 4], [5, 6])
    assert items(triples.transform_first(operator.neg, lazy)) == [(-1, 3, 5), (-2, 4, 6)]
    assert items(ArrayDataset([1, 2]).transform_first(operator.neg, lazy)) == [-1, -2]
    assert items(SimpleDataset([[1, 2]]).transform_first(tuple, lazy)) == [(1, 2)]


def test_filter_reads_all_samples_now_and_transforms_again_on_access() -> None:
    change = Called(operator.neg)
    keep = Called(lambda sample: sample < -1)
    dataset = SimpleDataset([1, 2, 3]).transform(change).filter(keep)
    assert (len(change.calls), keep.calls) == (3, [(-1,), (-2,), (-3,)])
    assert items(dataset) == [-2, -3]
    assert (len(change.calls), len(keep.calls)) == (5, 3)
    assert items(ArrayDataset([1, 2], [3, 4]).filter(lambda pair: pair[1] > 3)) == [(2, 4)]


@given(st.integers(0, 30), st.integers(1, 9))
def test_shards_lie_side_by_side_and_the_first_are_longer(count: int, number: int) -> None:
    shards = [items(SimpleDataset(range(count)).shard(number, index)) for index in range(number)]
    assert [sample for shard in shards for sample in shard] == list(range(count))
    lengths = [len(shard) for shard in shards]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] - lengths[-1] <= 1


def test_shards_as_in_gluon() -> None:
    def of(count: int) -> list[list[int]]:
        return [items(SimpleDataset(range(count)).shard(4, index)) for index in range(4)]

    assert of(9) == [[0, 1, 2], [3, 4], [5, 6], [7, 8]]
    assert of(2) == [[0], [1], [], []]


def test_take_gives_at_most_the_whole_dataset() -> None:
    dataset = SimpleDataset([1, 2, 3])
    assert [items(dataset.take(count)) for count in (None, 9, 2, 0)] == [
        [1, 2, 3],
        [1, 2, 3],
        [1, 2],
        [],
    ]


def test_sample_draws_the_order_once_and_counts_what_was_drawn() -> None:
    dataset = SimpleDataset("abcdefghijklm")
    found = dataset.sample(IntervalSampler(13, 5, rollover=False))
    assert (len(found), items(found)) == (3, ["a", "f", "k"])
    shuffled = dataset.sample(RandomSampler(13))
    assert items(shuffled) == items(shuffled)
    assert sorted(items(shuffled)) == sorted(dataset)
    assert items(dataset.sample(reader.SequenceSampler("ab"))) == ["a", "b"]
    assert items(dataset.sample(SequentialSampler(2, 4))[1]) == ["f"]


def test_sample_takes_a_sampler_of_mxnet() -> None:
    base = type("Sampler", (), {"__module__": "mxnet.gluon.data.sampler"})
    sampler = type("Mine", (base,), {"__iter__": lambda self: iter([2, 0])})()
    assert items(SimpleDataset("abc").sample(sampler)) == ["c", "a"]


def test_array_dataset_gives_bare_items_of_one_array() -> None:
    array = np.arange(6).reshape(3, 2)
    assert ArrayDataset(array)[1].tolist() == [2, 3]
    row, label = ArrayDataset(array, ["a", "b", "c"])[2]
    assert (row.tolist(), label, len(ArrayDataset(array))) == ([4, 5], "c", 3)


def test_array_dataset_makes_numpy_of_an_mxnet_array_of_one_dimension() -> None:
    kind = type(
        "NDArray",
        (),
        {
            "__module__": "mxnet.ndarray.ndarray",
            "__init__": lambda self, array: setattr(self, "array", array),
            "__len__": lambda self: len(self.array),
            "__getitem__": lambda self, index: ("nd", self.array[index]),
            "shape": property(lambda self: self.array.shape),
            "asnumpy": lambda self: self.array,
        },
    )
    rows, labels = kind(np.eye(2)), kind(np.array([7, 8]))
    row, label = ArrayDataset(rows, labels)[1]
    assert row[0] == "nd"
    assert (type(label), label) == (np.int64, 8)


def test_methods_are_those_of_any_dataset_and_chain() -> None:
    class Mine(Dataset):
        def __getitem__(self, index: int) -> tuple[int, int]:
            return index, -index

        def __len__(self) -> int:
            return 8

    found = Mine().shard(2, 1).transform_first(str).filter(lambda pair: pair[0] > "5").take(1)
    assert items(found) == [("6", -6)]


def test_many_samples_are_fetched_in_one_call_where_the_dataset_has_it() -> None:
    class Many(SimpleDataset):
        asked: list[list[int]] = []  # noqa: RUF012

        def __getitems__(self, indices: list[int]) -> list[Any]:
            self.asked.append(indices)
            return [self[index] for index in indices]

    found = Many(range(10)).take(8).transform(operator.neg)
    assert found.__getitems__([1, 7]) == [-1, -7]  # type: ignore[attr-defined]
    assert Many.asked == [[1, 7]]
    assert not hasattr(SimpleDataset([1]).transform(abs), "__getitems__")


def test_epochs_reach_the_wrapped_dataset() -> None:
    class Counting(SimpleDataset):
        epoch = 0

        def set_epoch(self, epoch: int) -> None:
            self.epoch = epoch

    inner = Counting([1, 2])
    inner.transform(abs).take(1).transform_first(abs).set_epoch(4)  # type: ignore[attr-defined]
    assert inner.epoch == 4


def test_datasets_are_copied_with_what_they_wrap() -> None:
    dataset = ArrayDataset(np.arange(6), list("abcdef")).filter(lambda pair: pair[0] > 1)
    dataset = copy.copy(dataset).transform_first(abs).transform(operator.mul).shard(2, 0)
    for again in copy.deepcopy(dataset), pickle.loads(pickle.dumps(dataset)):
        assert items(again) == items(dataset) == ["cc", "ddd"]


simple = SimpleDataset([1, 2, 3])


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: simple.shard(4, 4), AssertionError, "^Shard index of out bound: 4 out of 4"),
        (lambda: simple.shard(0, -1), AssertionError, "^Number of shards must be greater than 0"),
        (lambda: simple.shard(3, -1), AssertionError, "^Index must be non-negative"),
        (lambda: simple.take(-1), ConfigError, "count must be an int of 0 or more, got -1"),
        (
            lambda: simple.sample([0, 1]),
            TypeError,
            "^Invalid sampler type: <class 'list'>. Expected gluon.data.Sampler instead.",
        ),
        (lambda: ArrayDataset(), AssertionError, "^Needs at least 1 arrays"),
        (
            lambda: ArrayDataset([1], [1], [1, 2]),
            AssertionError,
            r"^All arrays must have the same length; array\[0\] has length 1 while array\[2\] has",
        ),
        (lambda: ArrayDataset([1], 3), ConfigTypeError, r"array\[1\] of an ArrayDataset must have"),
        (lambda: SimpleDataset(3), ConfigTypeError, "data must have __len__ and __getitem__"),
        (lambda: simple.transform(3), ConfigTypeError, "fn must be a function of a sample"),  # type: ignore[arg-type]
        (lambda: simple.transform(abs, 3), ConfigTypeError, "lazy must be a bool"),  # type: ignore[arg-type]
        (lambda: RecordFileDataset("none.rec"), ConfigError, "'none.rec' cannot be opened"),
    ],
)
def test_invalid_arguments_are_refused_by_name(
    make: Callable[[], Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        make()


# -- records ------------------------------------------------------------------------------------


def content(number: int) -> bytes:
    return random.Random(number).randbytes(number % 700)


@pytest.fixture(scope="module")
def records(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("records") / "some.rec"
    with reader.RecordWriter(path) as file:
        for number in range(COUNT):
            file.write(content(number), key=COUNT - number)
    return path


def wrong_in(dataset: Dataset, seed: int) -> int:
    order = random.Random(seed).sample(range(COUNT), COUNT)
    return sum(dataset[number] != content(number) for number in order)


def test_four_threads_read_the_same_records(records: Path) -> None:
    dataset = RecordFileDataset(str(records))
    assert (len(dataset), dataset.idx_file) == (COUNT, str(records.with_suffix(".idx")))
    with ThreadPoolExecutor(4) as pool:
        assert sum(pool.map(wrong_in, [dataset] * 4, range(4))) == 0


@pytest.mark.parametrize("options", [{"start_method": "fork"}, {"worker_type": "thread"}], ids=str)
def test_two_workers_read_the_same_records(records: Path, options: dict[str, Any]) -> None:
    numbered = ArrayDataset(range(COUNT), RecordFileDataset(records))
    assert numbered[17] == (17, content(17))  # the file is open before the workers are there
    with DataLoader(
        numbered, batch_size=64, shuffle=True, num_workers=2, collate_fn=list, **options
    ) as loader:
        found = [pair for batch in loader for pair in batch]
    assert sum(record != content(number) for number, record in found) == 0
    assert sorted(number for number, _ in found) == list(range(COUNT))


def test_records_have_the_methods_of_datasets(records: Path) -> None:
    dataset = RecordFileDataset(records).take(20).transform(len)
    assert items(pickle.loads(pickle.dumps(dataset))) == list(range(20))


def test_a_damaged_record_is_reported_by_name(tmp_path: Path) -> None:
    path = tmp_path / "bad.rec"
    with reader.RecordWriter(path) as file:
        file.write(b"abc")
        file.write(b"defg")
    whole = path.read_bytes()
    path.write_bytes(whole[:12] + b"\0" + whole[13:])
    dataset = RecordFileDataset(path)
    assert dataset[0] == b"abc"
    with pytest.raises(DatasetError, match=r"record 1 of '.*bad\.rec', at offset 12, is damaged"):
        dataset[1]
