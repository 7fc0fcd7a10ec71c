"""Gluon's and GluonNLP's batchify functions: same results and same refusals as the libraries."""

from __future__ import annotations

import pickle
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from reader import collate
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
    with pytest.warns(UserWarning, match="^Padding value is not given") as told_of:
        pad = nlp.Pad()
    assert [each.filename for each in told_of] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert told(pad([[1], [2, 3]])) == [[1, 0], [2, 3]]
        nlp.Pad(pad_val=0)
        batchify.Pad()


# What GluonNLP 0.10 and MXNet 2.0.0b1 pad with, both under NumPy 1.23, and without a warning.
CASTS: list[tuple[Any, str, Any]] = [
    (-1, "uint8", 255),
    (300, "uint8", 44),
    (300, "int8", 44),
    (0.5, "uint8", 0),
    (-2.7, "int8", -2),
    (-2.7, "int64", -2),
    (True, "int32", 1),
    (2**31, "int32", -(2**31)),
    (2**63, "int64", -(2**63)),
    (2**63, "uint8", 0),
    (np.int64(-1), "uint8", 255),
    (np.float32(300), "uint8", 44),
    (-1, "uint16", 65535),
    (1e9, "float16", np.inf),
    (2**64, "float16", np.inf),
    (1e300, "float32", np.inf),
    (-1, "float32", -1),
    (-1, "bool", True),
    (0.5, "bool", True),
    (np.nan, "bool", True),
    (2**64, "bool", True),
]
BEYOND: list[tuple[Any, str]] = [
    (value, dtype)
    for value in (np.nan, np.inf, -np.inf, 1e9, -1.0, -1e300)
    for dtype in ("uint8", "int8", "int32", "int64")
]  # a cast in C; its result depends on the processor


def padded(value: Any, dtype: str) -> list[Any]:
    """Return the padded places by both libraries' functions, of arrays and of lists."""
    arrays, lists = [np.zeros(1, dtype), np.zeros(2, dtype)], [[0], [0, 0]]
    made = [
        batchify.Pad(value)(arrays),
        nlp.Pad(pad_val=value)(arrays),
        batchify.Pad(value, dtype=dtype)(lists),
        nlp.Pad(pad_val=value, dtype=dtype)(lists),
        nlp.Pad(pad_val=value, dtype=dtype)([np.zeros(1), np.zeros(2)]),
    ]
    assert {np.dtype(each.dtype) for each in made} == {np.dtype(dtype)}
    return [told(each)[0][1] for each in made]


@pytest.mark.parametrize(("value", "dtype", "expected"), CASTS)
def test_a_value_that_the_type_does_not_hold_is_cast(value: Any, dtype: str, expected: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert padded(value, dtype) == [expected] * 5


@pytest.mark.parametrize(("value", "dtype"), BEYOND)
def test_a_value_that_no_int_is_near_is_cast_as_numpy_casts(value: Any, dtype: str) -> None:
    with np.errstate(all="ignore"):
        expected = np.asarray(value).astype(dtype).item()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert padded(value, dtype) == [expected] * 5


@pytest.mark.parametrize("dtype", ["uint8", "int64", "float32"])
def test_a_complex_value_warns_as_numpy_warns(dtype: str) -> None:
    kind = getattr(np, "exceptions", np).ComplexWarning
    for make in (batchify.Pad, lambda value: nlp.Pad(pad_val=value)):
        with pytest.warns(kind, match="discards the imaginary part") as told_of:
            found = make(2 + 1j)([np.ones(1, dtype), np.ones(2, dtype)])
        assert len(told_of) == 1
        assert told(found) == [[1, 2], [1, 1]]


def test_lists_are_padded_in_the_type_that_the_library_gives_them() -> None:
    assert told(nlp.Pad(pad_val=0.5)([[1], [2, 3]])) == [[1, 0.5], [2, 3]]
    assert told(batchify.Pad(0.5)([[1], [2, 3]])) == [[1, 0], [2, 3]]
    assert told(batchify.Pad(-2.5)([[], [2, 3]])) == [[-2.5, -2.5], [2, 3]]
    assert told(batchify.Pad(-2.5)([[4], [2, 3]])) == [[4, -2], [2, 3]]
    assert told(batchify.Pad(-2.5)([[], []])) == [[], []]
    assert told(batchify.Pad(300)([[np.uint8(1)], [np.uint8(2)] * 2])) == [[1, 44], [2, 2]]
    assert told(nlp.Pad(pad_val=0.5)([(1,), (2, 3)])) == [[1, 0], [2, 3]]


def test_lists_of_floats_keep_their_values_where_the_padding_is_an_int() -> None:
    """GluonNLP makes the array in the type of the padding: 0.5 becomes 0."""
    assert told(nlp.Pad(pad_val=0)([[0.5], [1.5, 2.5]])) == [[0.5, 0], [1.5, 2.5]]


def test_a_type_beyond_numpy_takes_its_own_value() -> None:
    pytest.importorskip("ml_dtypes")
    rows = nlp.Pad(pad_val=-1.5, dtype="bfloat16").lay_out([[1.0], [2.0, 3.0]])
    assert rows.array().tolist() == [[0x3F80, 0xBFC0], [0x4000, 0x4040]]


class NDArray(np.ndarray[Any, Any]):
    """Looks like an array of MXNet."""

    def asnumpy(self) -> Any:
        return np.array(self)


NDArray.__module__ = "mxnet.standin"


@pytest.mark.parametrize("make", [lambda: batchify.Pad(-1), lambda: nlp.Pad(pad_val=-1)])
def test_a_pad_warns_of_ndarrays_once(make: Any) -> None:
    samples = [np.ones(size, "u1").view(NDArray) for size in (1, 2)]
    for pad in (make(), make()):
        with pytest.warns(UserWarning, match="^Using Pad with NDArrays is discouraged for speed"):
            found = pad(samples)
        assert told(found) == [[1, 255], [1, 1]]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert told(pad(samples)) == told(make()([np.ones(1, "u1"), samples[1]]))


@pytest.mark.parametrize("function", [batchify.Stack(), nlp.Stack(), nlp.Stack("bool")])
def test_ndarrays_of_bool_are_read_by_mxnet(function: Any) -> None:
    samples = [np.array(each).view(NDArray) for each in ([True, False], [False, False])]
    assert told(function(samples)) == [[True, False], [False, False]]


def test_the_refusal_of_a_value_stays_in_reader_collate() -> None:
    for value, dtype in ((-1, "u1"), (0.5, "i4"), (np.nan, "i8"), (2, "?"), (2**64, "i8")):
        with pytest.raises(ValueError, match="does not hold it"):
            collate.Pad(value=value)([np.ones(1, dtype), np.ones(2, dtype)])


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
        (lambda: nlp.Pad(pad_val=2**64, dtype="u1")([[1]]), OverflowError, r"\(int\) in uint8: "),
        (lambda: nlp.Pad(pad_val=-(2**63) - 1, dtype="i8")([[1]]), ValueError, "cannot pad with -"),
        (lambda: nlp.Pad(pad_val=2**1100)([[1]]), OverflowError, "in float32: "),
        (lambda: batchify.Pad(2**64)([[1]]), OverflowError, "in int64: "),
        (lambda: batchify.Pad(1)([[1, [2]]]), ValueError, "arrays? of numbers"),
        (lambda: batchify.Pad(1)(["a"]), ValueError, "only arrays of numbers"),
        (lambda: batchify.Pad(1)([["a"]]), ValueError, "only arrays of numbers"),
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
def test_samples_that_do_not_fit_are_refused_with_the_types_of_the_libraries(
    act: Any, kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        act()


def test_tensors_in_a_list_stay_tensors() -> None:
    torch = pytest.importorskip("torch")
    tensors = [torch.ones(2), torch.ones(3, requires_grad=True)]
    for found in (
        nlp.List()(tensors),
        nlp.Tuple(nlp.Stack(), nlp.List())([*zip([1, 2], tensors)])[1],
    ):
        assert [each is given for each, given in zip(found, tensors)] == [True, True]
