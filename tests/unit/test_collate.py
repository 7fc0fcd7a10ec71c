"""Collate functions that write in place: padding, packing, fields, bad input, with all workers."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader import CollateError, ConfigError, ConfigTypeError, DataLoader
from reader._core.collate.rows import Rows
from reader.collate import AsList, Collate, Dict, Pack, Pad, Stack, Tuple
from tests.datasets import Point
from tests.streams import Items

TEXTS = [list(range(1, 2 + index * 7 % 11)) for index in range(40)]


def padded(samples: list[Any], value: Any, round_to: int, axes: Any) -> Any:
    """Pad with plain NumPy, as the definition says."""
    arrays = [np.asarray(sample) for sample in samples]
    shape = list(np.max([array.shape for array in arrays], axis=0))
    for axis in axes:
        shape[axis] = -(-shape[axis] // round_to) * round_to
    made = np.full((len(arrays), *shape), value, arrays[0].dtype)
    for row, array in zip(made, arrays, strict=True):
        row[tuple(map(slice, array.shape))] = array
    return made


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=6),
    st.sampled_from(["i1", "u2", "f4", "f8", "c16", "?", ">i4"]),
    st.integers(1, 5),
    st.sampled_from([0, 1]),
    st.booleans(),
)
def test_padding_equals_its_definition(
    lengths: list[int], kind: str, round_to: int, value: int, is_last: bool
) -> None:
    rng = np.random.default_rng(len(lengths))
    samples = [
        rng.integers(0, 2, (3, size) if is_last else (size, 3)).astype(kind) for size in lengths
    ]
    axis = 1 if is_last else 0
    made = Pad(axis=axis, value=value, round_to=round_to)(samples)
    expected = padded(samples, value, round_to, [axis])
    np.testing.assert_array_equal(made, expected)
    assert made.dtype == expected.dtype.newbyteorder("=")
    np.testing.assert_array_equal(
        Pad(axis=axis - 2, value=value, round_to=round_to)(samples), expected
    )


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=5))
def test_all_axes_are_padded_without_an_axis(shapes: list[tuple[int, int]]) -> None:
    samples = [np.arange(a * b, dtype="i4").reshape(a, b) for a, b in shapes]
    made = Pad(axis=None, value=-7, round_to=2)(samples)
    np.testing.assert_array_equal(made, padded(samples, -7, 2, [0, 1]))


@given(
    sizes=st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=4),
    is_first=st.booleans(),
    is_counted_from_the_end=st.booleans(),
)
def test_height_and_width_of_pictures_are_padded_and_rounded(
    sizes: list[tuple[int, int]], is_first: bool, is_counted_from_the_end: bool
) -> None:
    pictures = [np.ones((3, *size) if is_first else (*size, 3), np.float32) for size in sizes]
    axes = (1, 2) if is_first else (0, 1)
    given_axes = [axis - 3 for axis in axes] if is_counted_from_the_end else axes
    expected = padded(pictures, 5, 32, axes)
    np.testing.assert_array_equal(Pad(given_axes, value=5, round_to=32)(pictures), expected)
    made, lengths = Pad(given_axes, lengths=True)(pictures)
    assert lengths.tolist() == [list(size) for size in sizes]
    assert lengths.dtype == np.int64
    np.testing.assert_array_equal(made, padded(pictures, 0, 1, axes))


def test_samples_in_odd_layouts_are_padded_and_stacked() -> None:
    whole = np.arange(48, dtype="f4").reshape(6, 8)
    samples = [whole[::2, ::-1], whole[1:, :].T[:8, :5].T, whole.T[:3, :].repeat(2, 1)[:, :8]]
    np.testing.assert_array_equal(Pad()(samples), padded(samples, 0, 1, [0]))
    same = [whole[::2], whole[1::2]]
    np.testing.assert_array_equal(Stack()(same), np.stack(same))


def test_fields_are_padded_stacked_or_listed_by_their_type() -> None:
    samples = [
        {"ids": [1, 2, 3], "label": 1, "name": "a", "pair": (np.ones(2), None)},
        {"ids": [4], "label": 2, "name": "b", "pair": (np.ones(1), None)},
    ]
    made = Pad(value=9)(samples)
    assert made["ids"].tolist() == [[1, 2, 3], [4, 9, 9]]
    assert made["label"].tolist() == [1, 2]
    assert made["name"] == ["a", "b"]
    assert made["pair"][0].tolist() == [[1, 1], [1, 9]]
    assert made["pair"][1] == [None, None]
    named = Pad()([Point([1], 2.5), Point([1, 2], 3.5)])
    assert type(named) is Point
    assert named.x.tolist() == [[1, 0], [1, 2]]
    assert named.y.tolist() == [2.5, 3.5]


def test_lengths_come_with_each_padded_field() -> None:
    ids, lengths = Pad(lengths=True)([[1, 2, 3], [], [4]])
    assert ids.tolist() == [[1, 2, 3], [0, 0, 0], [4, 0, 0]]
    assert ids.dtype == np.int64
    assert lengths.tolist() == [3, 0, 1]
    assert lengths.dtype == np.int64
    wide = Pad(axis=-1, lengths=True)([np.ones((2, 3)), np.ones((2, 1))])
    assert wide[1].tolist() == [3, 1]


def test_packing_puts_samples_end_to_end() -> None:
    for samples in (TEXTS[:5], [np.ones((size, 2), "f4") for size in (3, 0, 2)]):
        made, offsets = Pack(value=1)(samples)
        np.testing.assert_array_equal(made, np.concatenate([np.asarray(s) for s in samples]))
        assert offsets.dtype == np.int32
        assert offsets.tolist() == [0, *np.cumsum([len(s) for s in samples])]
    tokens, offsets = Pack(budget=8, value=-1)([[1, 2], [3]])
    assert tokens.tolist() == [1, 2, 3, -1, -1, -1, -1, -1]
    assert offsets.tolist() == [0, 2, 3]
    assert Pack(round_to=4)([[1, 2], [3, 4, 5]])[0].shape == (8,)
    fields, numbers = Pack()([([1], 5), ([2, 3], 6)])
    assert fields[0].tolist() == [1, 2, 3]
    assert numbers.tolist() == [5, 6]


def test_each_field_may_have_its_own_function() -> None:
    both = Tuple(Pad(value=-1), Tuple(Stack(), AsList()), len)
    made = both([([1, 2], (3, "x"), None), ([4], (5, "y"), None)])
    assert made[0].tolist() == [[1, 2], [4, -1]]
    assert made[1][0].tolist() == [3, 5]
    assert made[1][1] == ["x", "y"]
    assert made[2] == 2
    some = Dict({"a": Pad(lengths=True), "b": sum})([{"a": [1], "b": 2, "c": 3}] * 2)
    assert some["a"][0].tolist() == [[1], [1]]
    assert some["b"] == 4
    assert set(some) == {"a", "b"}


def test_a_dtype_converts_and_a_list_takes_the_type_of_numbers() -> None:
    assert Pad(dtype="float32")([[1], [2, 3]]).dtype == np.float32
    assert Pad(axis=1, dtype=np.int8)([np.ones((1, 2)), np.ones((1, 1))]).tolist() == [
        [[1, 1]],
        [[1, 0]],
    ]
    assert Stack(dtype="float16")([1, 2]).dtype == np.float16
    assert Pad()([[], [1.5]]).tolist() == [[0.0], [1.5]]


def test_types_that_numpy_lacks_are_padded() -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes")
    torch = pytest.importorskip("torch")
    samples = [torch.tensor([1.0, 2.0], dtype=torch.bfloat16), torch.tensor([3.0]).bfloat16()]
    made = Pad(value=7)(samples)
    assert made.dtype == ml_dtypes.bfloat16
    assert made.astype("f4").tolist() == [[1, 2], [3, 7]]
    assert Pad(dtype="float32", value=0.5)(samples).tolist() == [[1, 2], [3, 0.5]]
    assert Pad(dtype="bfloat16", axis=1)([torch.ones(1, 2), torch.ones(1, 1)]).dtype == made.dtype


class Plain(Pad):
    """A subclass that is called as it is."""

    def __call__(self, samples: Any) -> Any:
        return super().__call__(samples) * 2


class Texts:
    def __len__(self) -> int:
        return len(TEXTS)

    def __getitem__(self, index: int) -> Any:
        return {"ids": TEXTS[index], "number": index, "text": str(index)}


FUNCTIONS: dict[str, Collate] = {
    "pad": Pad(value=-1, round_to=4),
    "lengths": Pad(lengths=True),
    "pack": Pack(budget=60),
    "dict": Dict({"ids": Pad(), "number": Plain(), "text": AsList()}),
}


def plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(each) for each in value]
    return value.tolist() if hasattr(value, "tolist") else value


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", FUNCTIONS)
@pytest.mark.parametrize(
    "workers", [{"num_workers": 0}, {"num_workers": 2}, {"num_workers": 2, "worker_type": "thread"}]
)
@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
def test_batches_are_the_same_by_every_worker_type(
    name: str, workers: dict[str, Any], framework: Any
) -> None:
    if framework != "numpy":
        library = pytest.importorskip(framework)
    function = FUNCTIONS[name]
    with DataLoader(
        Texts(), batch_size=5, collate_fn=function, framework=framework, **workers
    ) as loader:
        batches = list(loader)
    samples = Texts()
    for start, batch in zip(range(0, 40, 5), batches, strict=True):
        expected = function([samples[index] for index in range(start, start + 5)])
        assert plain(batch) == plain(expected)
    if framework != "numpy":
        ids = batches[0]["ids"]
        assert isinstance(ids if name in ("pad", "dict") else ids[1], library.Tensor)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_torch_face_gets_tensors(num_workers: int) -> None:
    torch = pytest.importorskip("torch")
    from reader.compat.torch import DataLoader as TorchLoader

    collate = Tuple(Pad(value=-1, lengths=True), AsList())
    data = [(text, str(len(text))) for text in TEXTS]
    for (ids, lengths), names in TorchLoader(data, 5, collate_fn=collate, num_workers=num_workers):
        assert type(ids) is torch.Tensor
        assert type(lengths) is torch.Tensor
        assert lengths.tolist() == [int(name) for name in names]
        assert (ids != -1).sum(1).tolist() == lengths.tolist()


def test_a_stream_is_padded_in_place() -> None:
    with DataLoader(Items(TEXTS), batch_size=7, collate_fn=Pad(), num_workers=2) as loader:
        found = [row[row > 0].tolist() for batch in loader for row in batch]
    assert sorted(found) == sorted(TEXTS * 2)  # each worker iterates its own copy


@pytest.mark.parametrize(
    ("function", "samples", "text"),
    [
        (Pad(), [], "no samples"),
        (Stack(), [np.ones(2), np.ones(3)], r"sample 1: it has shape \(3,\) and sample 0 has"),
        (
            Pad(),
            [np.ones((1, 2)), np.ones((1, 3))],
            "may differ along axis 0 alone; pass axis=1, or resize them",
        ),
        (
            Pad(),
            [np.ones((3, 9, 2)), np.ones((3, 9, 3)), np.ones((3, 8, 3))],
            r"sample 1: it has shape .*along axis 0 alone; pass axis=\(1, 2\), or resize",
        ),
        (
            Pad((0, 1)),
            [np.ones((3, 9, 2)), np.ones((3, 9, 3))],
            "may differ along axes 0, 1 alone; pass axis=2, or resize",
        ),
        (
            Pad((1, -2)),
            [np.ones((3, 9, 2))],
            r"\(1, -2\) of a sample .*: -2 names one that another",
        ),
        (Pad((1, 3)), [np.ones((3, 9, 2))], "cannot pad axis 3 of a sample of shape"),
        (Stack(), [np.ones(2), np.ones(3)], r"sample 0 has \(2,\); pad or resize them"),
        (Pad(), [np.ones(2), np.ones((2, 2))], r"shape \(2, 2\) and sample 0 has \(2,\)"),
        (Pad(), [np.ones(2), np.ones(2, "f4")], "has dtype float32 and others have float64"),
        (Pad(axis=2), [np.ones(2), np.ones(3)], "cannot pad axis 2 of a sample of shape"),
        (Pad(value=0.5), [[1], [2, 3]], "cannot pad with 0.5: the samples have dtype int64"),
        (Pad(value=300), [np.ones(1, "u1")], "cannot pad with 300"),
        (Pad(), [[1, 2], [[1], [2, 3]]], "no array of numbers"),
        (Pad(), [{"a": 1}, {"b": 1}], r"keys \['a'\] of sample 0"),
        (Pad(), [(1, 2), (1,)], "the 2 fields of sample 0"),
        (Pad(), [{"a": {"b": [1]}}, {"a": {"b": "x"}}], r"field \['a'\]\['b'\]: cannot collate"),
        (Pack(budget=2), [[1, 2], [3]], "cannot pack 2 samples with 3 rows in all into 2"),
        (Pack(), [np.ones((1, 2)), np.ones((1, 3))], "all but the first axis must agree"),
        (Tuple(Pad(), Pad()), [([1],)], "must be a tuple of 2 fields"),
        (Tuple(Pad(), Pad()), [([1], [1]), ([1], [[1]])], r"field \[1\]: cannot collate sample 1"),
        (Dict({"a": Pad()}), [{"b": 1}], r"lacks the keys \['a'\]"),
    ],
)
def test_samples_that_do_not_fit_are_named(function: Any, samples: Any, text: str) -> None:
    with pytest.raises(CollateError, match=text):
        function(samples)


@pytest.mark.parametrize(
    ("make", "kind", "text"),
    [
        (lambda: Pad(axis=()), ConfigError, r"axis must name one axis or several.*\(1, 2\) those"),
        (lambda: Pad(axis=(1, 1)), ConfigError, "each once, got"),
        (lambda: Pad(axis=(1, "x")), ConfigTypeError, "axis must be"),  # type: ignore[arg-type]
        (lambda: Pad(axis="x"), ConfigTypeError, "axis must be"),  # type: ignore[arg-type]
        (lambda: Pad(round_to=0), ConfigError, "round_to must be an int of 1 or more"),
        (lambda: Pad(value="x"), ConfigTypeError, "value must be a number"),
        (lambda: Pad(axis=None, lengths=True), ConfigError, "Pass an axis"),
        (lambda: Pad(dtype="nonsense"), ConfigTypeError, "dtype must be an element type"),
        (lambda: Pack(budget=0), ConfigError, "budget must be"),
        (Tuple, ConfigError, "got none"),
        (lambda: Tuple(3), ConfigTypeError, "field 0 must be callable"),  # type: ignore[arg-type]
        (lambda: Dict({}), ConfigTypeError, "needs a dict"),
    ],
)
def test_arguments_are_checked(make: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        make()


def test_functions_pickle_and_rows_are_made_by_their_names() -> None:
    for name, function in FUNCTIONS.items():
        copy = pickle.loads(pickle.dumps(function))
        samples = [Texts()[index] for index in range(3)]
        assert plain(copy(samples)) == plain(function(samples)), name
    with pytest.raises(TypeError, match=r"use Rows\.stacked"):
        Rows()
