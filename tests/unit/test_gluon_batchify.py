"""Gluon's and GluonNLP's batchify functions: what the libraries give, and what they refuse."""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

import numpy as np
import pytest

from reader.compat.gluon import batchify
from reader.compat.gluon.arrays import is_nd
from reader.compat.gluon.nlp import batchify as nlp


class Pair(NamedTuple):
    a: Any
    b: Any


def told(value: Any) -> Any:
    """Return a batch with lists for arrays."""
    if isinstance(value, dict):
        return {key: told(each) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*map(told, value))
    if isinstance(value, (list, tuple)):
        return type(value)(map(told, value))
    if is_nd(value):
        value = value.asnumpy()
    return value.tolist() if isinstance(value, np.ndarray) else value


ONES = [np.ones((1, 2)), np.ones((2, 1))]


@pytest.mark.parametrize(
    ("function", "samples", "expected"),
    [
        (batchify.Stack(), [[1, 2], [3, 4]], [[1, 3], [2, 4]]),
        (batchify.Stack(), [(1, [2, 3]), (4, [5, 6])], [[1, 4], [[2, 5], [3, 6]]]),
        (batchify.Stack(use_shared_mem=True), [np.ones(2)] * 2, [[1, 1], [1, 1]]),
        (batchify.Pad(-1), ONES, [[[1, 1], [-1, -1]], [[1, -1], [1, -1]]]),
        (
            batchify.Pad(round_to=4),
            [[1, 2, 3, 4, 5], [6]],
            [[1, 2, 3, 4, 5, 0, 0, 0], [6] + [0] * 7],
        ),
        (batchify.Pad(), [np.ones(0), np.ones(1)], [[0], [1]]),
        (batchify.Append(), [1, [2, 3]], [[1], [[2, 3]]]),
        (batchify.Append(batch_axis=1), [[1, 2]], [[[1], [2]]]),
        (
            batchify.Append(expand=False),
            [np.ones((1, 2)), np.ones((1, 3))],
            [[[1, 1]], [[1, 1, 1]]],
        ),
        (batchify.AsList(), ["a", 1], ["a", 1]),
        (
            batchify.Group(batchify.Pad(val=1), batchify.Stack()),
            [([1, 2], 3), ([1], 4)],
            ([[1, 2], [1, 1]], [3, 4]),
        ),
        (batchify.Group([batchify.Stack(), batchify.AsList()]), [(1, "a")], ([1], ["a"])),
        (nlp.Stack(), [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        (nlp.Pad(pad_val=-1), [[], [0]], [[-1], [0]]),
        (nlp.Pad(pad_val=-1, round_to=2), [[], [0]], [[-1, -1], [0, -1]]),
        (
            nlp.Pad(axis=-1, pad_val=0, ret_length=True),
            [np.ones((1, 2), "i4"), np.ones((1, 1), "i4")],
            ([[[1, 1]], [[1, 0]]], [2, 1]),
        ),
        (nlp.Tuple(nlp.Stack(), nlp.List()), [(1, "a"), (2, "b")], ([1, 2], ["a", "b"])),
        (nlp.Dict({"a": nlp.Stack()}), [{"a": 1, "b": 2}, {"a": 3}], {"a": [1, 3]}),
        (
            nlp.NamedTuple(Pair, {"b": nlp.List(), "a": nlp.Stack()}),
            [Pair(1, "x")],
            Pair([1], ["x"]),
        ),
        (nlp.NamedTuple(Pair, [nlp.Stack(), nlp.List()]), [Pair(1, "x")], Pair([1], ["x"])),
    ],
)
def test_batches_are_those_of_the_libraries(function: Any, samples: Any, expected: Any) -> None:
    for each in (function, pickle.loads(pickle.dumps(function))):
        found = told(each(samples))
        assert found == expected
        assert type(found) is type(expected)


def test_element_types_are_those_of_the_libraries() -> None:
    assert np.dtype(batchify.Pad()([[1], [2, 3]]).dtype) == np.int64
    assert np.dtype(nlp.Pad(pad_val=0)([[1], [2, 3]]).dtype) == np.float32
    assert np.dtype(nlp.Pad(pad_val=0)([np.ones(1, "u1")]).dtype) == np.uint8
    assert np.dtype(nlp.Pad(pad_val=0, dtype="int32")([[1], [2]]).dtype) == np.int32
    _, lengths = nlp.Pad(pad_val=0, ret_length=True)([[1], [2]])
    assert np.dtype(lengths.dtype) == np.int32
    assert np.dtype(nlp.Stack("float16")([1, 2]).dtype) == np.float16


def test_a_pad_without_a_value_warns() -> None:
    with pytest.warns(UserWarning, match="Pad has no pad_val, and pads with 0"):
        nlp.Pad()


@pytest.mark.parametrize(
    ("act", "kind", "text"),
    [
        (lambda: batchify.Pad()([(1, 2)]), NotImplementedError, r"use Group\(Pad\(\)"),
        (
            lambda: batchify.Group(batchify.Stack(), batchify.Stack())([(1,)]),
            AssertionError,
            "The number of attributes in each data sample should contains 2 elements",
        ),
        (lambda: batchify.Group([len], len), TypeError, "one by one, or one list"),
        (lambda: batchify.Group(3), TypeError, "must be callable"),
        (lambda: nlp.Pad(pad_val=0)(ONES), ValueError, "may differ along axis 0 alone"),
        (lambda: nlp.Pad(None, 0), ValueError, "axis must be an int"),
        (lambda: nlp.Dict([len]), ValueError, "must be a dict"),
        (lambda: nlp.Dict({"a": 1}), ValueError, "'a' must be callable"),
        (lambda: nlp.Dict({"a": len})([{"b": 1}]), ValueError, "lacks"),
        (lambda: nlp.NamedTuple(dict, [len]), ValueError, "a class of named tuples"),
        (lambda: nlp.NamedTuple(Pair, [len]), ValueError, "got 1 functions"),
        (lambda: nlp.NamedTuple(Pair, {"c": len}), ValueError, r"got those of \['c'\]"),
        (lambda: nlp.NamedTuple(Pair, 3), ValueError, "a dict, a list or a tuple"),
        (lambda: nlp.NamedTuple(Pair, [len, len])([(1, 2)]), ValueError, "must be a Pair"),
    ],
)
def test_what_does_not_fit_is_refused(act: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        act()
