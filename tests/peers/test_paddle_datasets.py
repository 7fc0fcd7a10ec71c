"""The datasets of the face beside paddle.io's: same samples, same refusals, and both their classes.

Imports paddle and the face. Tests marked as a demonstration show what paddle.io 3.3.1 does
wrong; the test after each shows what we do.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import paddle
import paddle.io
import pytest
from hypothesis import given
from hypothesis import strategies as st
from paddle.base import core

import reader
from reader.compat.paddle import datasets
from reader.compat.paddle.errors import ArgumentError
from tests.peers.program import demonstration

pytestmark = pytest.mark.peer

OURS = SimpleNamespace(**{name: getattr(datasets, name) for name in datasets.__all__})


class Squares(datasets.Dataset):  # type: ignore[type-arg]
    def __init__(self, count: int = 4) -> None:
        self.count = count

    def __getitem__(self, index: int) -> Any:
        if not -self.count <= index < self.count:
            raise IndexError(index)
        return index, [index * index]

    def __len__(self) -> int:
        return self.count


class Stream(datasets.IterableDataset):  # type: ignore[type-arg]
    def __init__(self, *items: int) -> None:
        self.items = items

    def __iter__(self) -> Iterator[int]:
        yield from self.items


class OwnStream(reader.data.IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        yield 7


class OwnMap(reader.Dataset[int]):
    def __getitem__(self, index: int, /) -> int:
        return index

    def __len__(self) -> int:
        return 4


def told(act: Callable[[Any], Any], module: Any) -> Any:
    """Return the result or error of `act` with the datasets of `module`, from one global seed."""
    paddle.seed(5)
    try:
        return act(module)
    except Exception as error:
        return error


def agree(act: Callable[[Any], Any]) -> Any:
    """Assert that both give the same value, or errors of one type and one first sentence."""
    theirs, ours = told(act, paddle.io), told(act, OURS)
    if isinstance(theirs, Exception):
        sentence = str(theirs).removesuffix("!").removesuffix(".")
        assert isinstance(ours, type(theirs)), repr(ours)
        assert isinstance(ours, reader.ReaderError)
        assert str(ours).startswith(sentence)
        assert len(str(ours)) > len(sentence) + 10
    else:
        assert repr(ours) == repr(theirs)
    return ours


@pytest.mark.parametrize(
    "act",
    [
        lambda m: [
            m.TensorDataset([paddle.arange(3), paddle.ones([3, 2])])[i] for i in range(-3, 3)
        ],
        lambda m: len(m.TensorDataset((paddle.arange(3),))),
        lambda m: m.TensorDataset([np.arange(3)])[1],
        lambda m: m.TensorDataset(paddle.ones([2, 3]))[2],
        lambda m: [m.ComposeDataset([Squares(), Squares()])[i] for i in range(-4, 4)],
        lambda m: len(m.ComposeDataset((Squares(),))),
        lambda m: list(m.ChainDataset([Stream(1, 2), Stream(), Stream(3)]).__iter__()),
        lambda m: list(m.ConcatDataset([Squares(2), [5], Squares(3)])),
        lambda m: [m.ConcatDataset([Squares(2), [5], Squares(3)])[i] for i in range(-6, 6)],
        lambda m: m.ConcatDataset([[1], [], [2, 3]]).cumulative_sizes,
        lambda m: [m.Subset(Squares(), [3, 0])[i] for i in (0, 1, -1)],
        lambda m: len(m.Subset(Squares(), [3, 0])),
        lambda m: list(m.Subset([5, 6], (1,))),
    ],
)
def test_samples_are_paddles(act: Callable[[Any], Any]) -> None:
    agree(act)


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.TensorDataset([paddle.ones([2]), paddle.ones([3])]),
        lambda m: m.ComposeDataset([]),
        lambda m: m.ComposeDataset([[1, 2]]),
        lambda m: m.ComposeDataset([Squares(), Stream()]),
        lambda m: m.ComposeDataset([Squares(3), Squares(4)]),
        lambda m: m.ChainDataset([]),
        lambda m: m.ChainDataset([Stream(), [1]]),
        lambda m: m.ChainDataset([Squares()]),
        lambda m: m.ConcatDataset([]),
        lambda m: m.ConcatDataset([[1], Stream()]),
        lambda m: m.ConcatDataset([[1], [2]])[-3],
        lambda m: m.random_split([1, 2, 3], [1, 1]),
        lambda m: m.random_split([1, 2, 3], [4]),
        lambda m: m.random_split([1, 2, 3], [-0.5, 1.5]),
        lambda m: m.random_split([1, 2, 3], [1.5, -0.5]),
    ],
)
def test_what_paddle_refuses_is_refused_with_its_sentence_and_a_remedy(
    act: Callable[[Any], Any],
) -> None:
    assert isinstance(agree(act), reader.ConfigError)


@pytest.mark.parametrize("module", [paddle.io, OURS])
def test_index_past_the_end_is_an_index_error(module: Any) -> None:
    for dataset in (
        module.ConcatDataset([[1], [2]]),
        module.Subset([1, 2], [0]),
        module.TensorDataset([paddle.arange(2)]),
    ):
        with pytest.raises(IndexError):
            dataset[2]


@pytest.mark.parametrize(
    "act",
    [
        lambda m: m.Dataset()[0],
        lambda m: len(m.Dataset()),
        lambda m: iter(m.IterableDataset()),
        lambda m: m.IterableDataset()[0],
        lambda m: len(m.IterableDataset()),
        lambda m: len(m.ChainDataset([Stream()])),
        lambda m: m.ChainDataset([Stream()])[0],
    ],
)
def test_methods_that_are_missing_raise_paddles_errors(act: Callable[[Any], Any]) -> None:
    theirs, ours = told(act, paddle.io), told(act, OURS)
    assert isinstance(theirs, (NotImplementedError, RuntimeError))
    assert (type(ours), str(ours)) == (type(theirs), str(theirs))


def test_tensor_dataset_is_refused_in_static_mode() -> None:
    paddle.enable_static()
    try:
        error = agree(lambda m: m.TensorDataset([np.ones(2)]))
    finally:
        paddle.disable_static()
    assert isinstance(error, RuntimeError)
    assert "paddle.disable_static()" in str(error)


def test_parts_may_be_of_paddles_classes_and_of_the_engines() -> None:
    class Theirs(paddle.io.Dataset):  # type: ignore[type-arg]
        def __getitem__(self, index: int) -> Any:
            return (str(index),)

        def __len__(self) -> int:
            return 4

    class Old(paddle.io.IterableDataset):  # type: ignore[type-arg]
        def __iter__(self) -> Iterator[int]:
            yield 8

    assert datasets.ComposeDataset([Theirs(), OwnMap(), Squares()])[2] == ("2", 2, 2, [4])
    assert [*iter(datasets.ChainDataset([Old(), OwnStream()]))] == [8, 7]
    assert datasets.ConcatDataset([Theirs(), OwnMap()])[5] == 1
    nested = datasets.ComposeDataset([paddle.io.ComposeDataset([Theirs(), Theirs()]), OwnMap()])
    assert nested[1] == ("1", "1", 1)
    for make, part in (
        (datasets.ComposeDataset, OwnStream()),
        (datasets.ConcatDataset, OwnStream()),
        (datasets.ChainDataset, OwnMap()),
    ):
        with pytest.raises(ArgumentError, match="Dataset"):
            make([part])


def made() -> list[Any]:
    return [
        Squares(),
        Stream(1, 2),
        datasets.TensorDataset([paddle.arange(3)]),
        datasets.ComposeDataset([Squares(), Squares()]),
        datasets.ChainDataset([Stream(1), Stream(2)]),
        datasets.ConcatDataset([Squares(), Squares()]),
        datasets.Subset(Squares(), [1]),
    ]


@pytest.mark.parametrize("dataset", made(), ids=lambda dataset: type(dataset).__name__)
def test_dataset_is_paddles_class_and_survives_pickle(dataset: Any) -> None:
    name = type(dataset).__name__
    assert isinstance(dataset, getattr(paddle.io, name, paddle.io.Dataset))
    assert isinstance(dataset, datasets.Dataset)
    iterable = isinstance(dataset, paddle.io.IterableDataset)
    assert iterable == (name in ("Stream", "ChainDataset"))
    assert reader.data.iterable.is_iterable_dataset(dataset) == iterable
    copy = pickle.loads(pickle.dumps(dataset))
    assert type(copy) is type(dataset)
    assert repr([*iter(copy)]) == repr([*iter(dataset)])


def test_paddles_datasets_are_instances_of_the_abstract_classes_of_the_face() -> None:
    assert isinstance(paddle.io.Subset([1], [0]), datasets.Dataset)
    assert isinstance(paddle.io.ChainDataset([Stream()]), datasets.IterableDataset)


def indices_of(parts: list[Any]) -> list[Any]:
    return [part.indices for part in parts]


@given(count=st.integers(2, 60), cut=st.integers(0, 60), seed=st.integers(0, 2**31))
def test_split_is_paddles_for_the_same_seed(count: int, cut: int, seed: int) -> None:
    lengths = [min(cut, count), count - min(cut, count)]

    def act(module: Any) -> Any:
        paddle.seed(seed)
        return indices_of(module.random_split(range(count), lengths)), paddle.rand([1]).item()

    agree(act)


@pytest.mark.filterwarnings("ignore:Length of split")
@given(
    count=st.integers(0, 60),
    shares=st.lists(st.integers(1, 10), min_size=1, max_size=6),
)
def test_split_by_fractions_is_paddles(count: int, shares: list[int]) -> None:
    fractions = [share / sum(shares) for share in shares]
    if sum(fractions) <= 1:
        agree(lambda m: indices_of(m.random_split(range(count), fractions)))


def test_split_warns_of_an_empty_part_as_paddle_does() -> None:
    texts = []
    for module in (paddle.io, OURS):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            parts = module.random_split(range(3), [0.9, 0.1])
        assert [len(part) for part in parts] == [3, 0]
        texts.append(str(caught[0].message))
    assert texts[1].startswith(texts[0].removesuffix("."))


def test_parts_of_a_split_are_subsets_of_the_face() -> None:
    parts = datasets.random_split(Squares(), [1, 3])
    assert all(type(part) is datasets.Subset for part in parts)
    assert all(type(index) is int for part in parts for index in part.indices)


def split_by(generator: Any, split: Any = datasets.random_split) -> list[Any]:
    return indices_of(split(range(30), [10, 20], generator))


def own_generator(seed: int) -> Any:
    generator = core.Generator()
    generator.manual_seed(seed)
    return generator


@demonstration
def test_paddle_ignores_the_generator_of_a_split() -> None:
    paddle.seed(1)
    once = split_by(own_generator(9), paddle.io.random_split)
    assert split_by(own_generator(9), paddle.io.random_split) != once
    paddle.seed(1)
    assert split_by(own_generator(8), paddle.io.random_split) == once
    assert split_by("nonsense", paddle.io.random_split)


def test_split_draws_from_the_generator_it_is_given_and_no_other() -> None:
    paddle.seed(1)
    usual = paddle.rand([3]).tolist()
    paddle.seed(1)
    generator = own_generator(9)
    once, going_on = split_by(generator), split_by(generator)
    assert paddle.rand([3]).tolist() == usual
    assert split_by(own_generator(9)) == once != going_on
    assert split_by(own_generator(8)) != once
    paddle.seed(9)
    assert split_by(None) == once


def test_split_by_the_result_of_paddle_seed_equals_paddles() -> None:
    theirs = split_by(paddle.seed(3), paddle.io.random_split), paddle.rand([1]).item()
    assert (split_by(paddle.seed(3)), paddle.rand([1]).item()) == theirs


def test_split_takes_seeds_and_generators_of_numpy() -> None:
    assert split_by(4) == split_by(4) != split_by(5)
    assert split_by(np.random.default_rng(4)) == split_by(np.random.default_rng(4))
    with pytest.raises(reader.ConfigTypeError, match=r"generator must be an int .* got 'nonsense'"):
        split_by("nonsense")


def test_split_in_static_mode_follows_from_the_generator() -> None:
    paddle.enable_static()
    try:
        assert (
            split_by(own_generator(4)) == split_by(own_generator(4)) != split_by(own_generator(5))
        )
        paddle.seed(1)
        once = split_by(None)
        paddle.seed(1)
        assert split_by(None) == once
    finally:
        paddle.disable_static()


@demonstration
def test_paddle_cannot_split_at_random_in_static_mode() -> None:
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()), pytest.raises(AssertionError):
            split_by(None, paddle.io.random_split)
    finally:
        paddle.disable_static()


@demonstration
def test_paddle_cannot_compose_samples_that_are_none() -> None:
    class Nothing(Squares):
        def __getitem__(self, index: int) -> Any:
            return None

    with pytest.raises(TypeError, match="NoneType"):
        paddle.io.ComposeDataset([Nothing()])[0]
    assert datasets.ComposeDataset([Nothing(), Squares()])[1] == (None, 1, [1])


@pytest.mark.parametrize(
    ("name", "kinds"),
    [("Subset", int), ("ConcatDataset", int), ("ComposeDataset", (int, str)), ("Dataset", int)],
)
def test_classes_take_the_types_that_paddles_take(name: str, kinds: Any) -> None:
    for module in (paddle.io, datasets):
        found = getattr(module, name)
        assert found[kinds].__origin__ is found
