"""Default batches of the torch face are those of torch.utils.data.default_collate."""

from __future__ import annotations

import collections
import datetime
import re
from collections.abc import Iterator
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from torch.utils.data._utils import collate

from tests.datasets import Point
from tests.peers.torch_values import Road, check_same, collated
from tests.wire import wire


class Own(torch.Tensor):
    """A tensor of a user's own class."""


@pytest.fixture(params=[False, True], ids=["process", "thread"])
def road(request: pytest.FixtureRequest) -> Iterator[Road]:
    with wire(is_thread=request.param) as made:
        yield Road(made)


pytestmark = pytest.mark.filterwarnings(
    "ignore:ComplexHalf support",
    "ignore:The given NumPy array is not writable",
    "ignore:The PyTorch API of nested tensors",
    "ignore:Sparse invariant",
)


def of(make: Any, count: int = 3) -> Any:
    """Samples that a test makes by row: what making them warns about is its own."""
    return lambda: [make(row) for row in range(count)]


def made(samples: Any) -> list[Any]:
    return samples() if callable(samples) else samples


FLOATS = ["float16", "float32", "float64", "bfloat16", "complex32", "complex64", "complex128"]
FLOATS += ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"]
INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "bool"]
SCALARS = [np.bool_, np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32]
SCALARS += [np.float16, np.float32, np.float64, np.complex64, np.complex128, np.longlong]


def typed(name: str) -> list[torch.Tensor]:
    if name == "bool":
        return list(torch.arange(24).reshape(3, 2, 4) % 3 == 1)
    raw = torch.arange(96).to(torch.uint8).view(getattr(torch, name))
    return list(raw.reshape(3, 2, -1))


ALIKE: dict[str, Any] = {
    "tensors without elements": of(lambda i: torch.empty(0, 3)),
    "tensors without dimensions": of(lambda i: torch.tensor(i)),
    "tensors with steps": of(lambda i: torch.arange(24.0).reshape(4, 6)[::2, 1::3] + i),
    "transposed tensors": of(lambda i: torch.arange(6.0).reshape(2, 3).T),
    "channels last": of(lambda i: torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)),
    "expanded tensors": of(lambda i: torch.ones(3, 1).expand(3, 4)),
    "one sample": [torch.ones(3)],
    "large tensors": of(lambda i: torch.full((3, 200, 200), float(i))),
    **{
        f"arrays of {kind.__name__}": of(lambda i, k=kind: np.arange(4).astype(k))
        for kind in [*SCALARS[:-1], np.uint64]
    },
    "arrays without dimensions": of(lambda i: np.array(i)),
    "arrays without elements": of(lambda i: np.empty((2, 0), np.float32)),
    "arrays with steps": of(lambda i: np.arange(24.0).reshape(4, 6)[::2, ::3]),
    "arrays in Fortran's order": of(lambda i: np.asfortranarray(np.arange(6.0).reshape(2, 3))),
    **{f"scalars {kind.__name__}": of(kind) for kind in SCALARS},
    "ints": [1, -(1 << 63), (1 << 63) - 1],
    "bools": [True, False],
    "floats": [1.0, float("inf"), -0.0],
    "ints and bools": [2, True, 3],
    "bools and ints": [True, 2, 3],
    "ints and floats": [1, 2.5],
    "floats and ints": [2.5, 1],
    "strings": ["a", "", "ü" * 100],
    "bytes": [b"a", b""],
    "strings and bytes": ["a", b"b"],
    "NumPy's strings": of(lambda i: np.str_(i)),
    "tuples": of(lambda i: (torch.ones(2), i)),
    "tuples of strings": of(lambda i: (str(i), i, b"x")),
    "lists": of(lambda i: [i, [float(i), str(i)]]),
    "tuples of no parts": of(lambda i: ()),
    "lists of no parts": of(lambda i: []),
    "dicts": of(lambda i: {"a": np.ones(3), "b": str(i), "c": (str(i), {"d": str(i)})}),
    "dicts of no keys": of(lambda i: {}),
    "dicts in another order": [{"a": 1, "b": 2}, {"b": 4, "a": 3}],
    "dicts with more keys behind": [{"a": 1}, {"a": 2, "b": 3}],
    "dicts with other keys": of(lambda i: {1: i, None: i, (1, 2): i, 2.5: i}),
    "ordered dicts": of(lambda i: collections.OrderedDict(b=i, a=i)),
    "default dicts": of(lambda i: collections.defaultdict(list, {"a": i})),
    "user dicts": of(lambda i: collections.UserDict({"a": i})),
    "named tuples": of(lambda i: Point(i, (str(i), torch.ones(2)))),
    "ranges": of(lambda i: range(3)),
    "records": of(lambda i: torch.nn.Parameter(torch.ones(2), requires_grad=False)),
    "own tensors": of(lambda i: torch.ones(2).as_subclass(Own)),
    "memory maps": of(lambda i: np.arange(4.0).view(np.memmap)),
    "matrices": of(lambda i: np.arange(4).view(np.recarray)),
    "tensors and a later array": [(torch.ones(2), 1), (torch.zeros(2), 2.5)],
    "an array and a tensor": [np.ones(2), torch.ones(2)],
    "deep lists": of(lambda i: [[[[[[[[torch.ones(1)]]]]]]]]),
}


@pytest.mark.parametrize("samples", ALIKE.values(), ids=ALIKE)
def test_a_default_batch_is_that_of_default_collate(road: Road, samples: Any) -> None:
    samples = made(samples)
    theirs = collated(samples)
    for _ in range(2):  # the first of its form, and one that is like it
        check_same(road.collate(samples), theirs)
    check_same(road.draw(samples), theirs)


@pytest.mark.parametrize("name", FLOATS + INTEGERS)
def test_tensors_of_each_type_are_stacked(road: Road, name: str) -> None:
    samples = typed(name)
    check_same(road.collate(samples), collated(samples))


@pytest.mark.parametrize("kind", ["conj", "imag"])
def test_lazily_changed_tensors_are_stacked_where_workers_of_pytorch_fail(
    road: Road, kind: str
) -> None:
    value = torch.tensor([1 + 2j]).conj()
    samples = [value] * 3 if kind == "conj" else [value.imag] * 3
    with pytest.raises(RuntimeError, match="doesn't correspond to a device"):
        collated(samples)
    for send in (road.collate, road.draw):
        ours = send(samples)
        assert not ours.is_conj()
        assert not ours.is_neg()
        assert torch.equal(ours, torch.stack(samples))


def test_alternating_forms_are_each_collated_right(road: Road) -> None:
    forms = [
        made(ALIKE[name]) for name in ("tuples", "dicts", "strings", "ints", "ints and floats")
    ]
    for samples in [*forms, *reversed(forms), *forms]:
        check_same(road.collate(samples), collated(samples))
        check_same(road.draw(samples), collated(samples))


BAD: dict[str, Any] = {
    "None": [None, None],
    "None within": [(1, None), (2, None)],
    "None later": [1, None],
    "complex": [1j, 2j],
    "a set": [{1}, {2}],
    "an object": [object(), object()],
    "a date": [datetime.date(2020, 1, 1)] * 2,
    "arrays of strings": of(lambda i: np.array(["a", "b"])),
    "arrays of objects": of(lambda i: np.array([None, 1], object)),
    "arrays of dates": of(lambda i: np.zeros(2, "M8[s]")),
    "arrays of records": of(lambda i: np.zeros(2, "i4,f4")),
    "arrays of the other byte order": of(lambda i: np.zeros(2, ">f4")),
    "arrays of long doubles": of(lambda i: np.zeros(2, np.longdouble)),
    "arrays backwards": of(lambda i: np.arange(4)[::-1]),
    "a later array backwards": [np.arange(4), np.arange(4)[::-1]],
    "arrays with odd steps": of(lambda i: np.zeros(3, "i1,f4")["f1"]),
    "scalars of dates": [np.datetime64("2020-01-01")] * 2,
    "an int too large": [1, 1 << 63],
    "a first int too large": [1 << 70, 1],
    "tensors of two shapes": [torch.ones(2), torch.ones(3)],
    "arrays of two shapes": [np.ones(2), np.ones((2, 1))],
    "tensors of two types": [torch.ones(2, dtype=torch.int32), torch.ones(2)],
    "a tensor and an array": [torch.ones(2), np.ones(2)],
    "a tensor and a number": [torch.ones(()), 1],
    "a number and a tensor": [1, torch.ones(2)],
    "a number and a string": [1, "a"],
    "tuples of two lengths": [(1, 2), (1,)],
    "lists of two lengths": [[1], [1, 2]],
    "a missing key": [{"a": 1, "b": 2}, {"a": 1}],
    "a dict and a list": [{"a": 1}, [1]],
    "tensors that need a gradient": of(lambda i: torch.ones(2, requires_grad=True)),
    "a later one that needs a gradient": [torch.ones(2), torch.ones(2, requires_grad=True)],
    "sparse tensors": of(lambda i: torch.eye(2).to_sparse()),
    "nested tensors": of(lambda i: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)])),
    "tensors on the meta device and on the CPU": [torch.ones(2), torch.ones(2, device="meta")],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("samples", BAD.values(), ids=BAD)
def test_samples_that_default_collate_refuses_are_refused_in_its_words(
    road: Road, samples: Any
) -> None:
    samples = made(samples)
    with pytest.raises(Exception) as theirs:  # noqa: PT011
        collated(samples)
    for send in (road.collate, road.draw):
        with pytest.raises(theirs.type, match=re.escape(str(theirs.value).splitlines()[0])):
            send(samples)
        check_same(road.collate([1, 2]), torch.tensor([1, 2]))


def test_a_function_that_the_user_put_in_the_map_is_used(road: Road) -> None:
    samples = [(torch.ones(2), Own(torch.ones(1))), (torch.ones(3), Own(torch.ones(1)))]

    def longest(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return torch.nn.utils.rnn.pad_sequence(list(batch), batch_first=True)

    with mock.patch.dict(collate.default_collate_fn_map, {torch.Tensor: longest}):
        check_same(road.collate(samples), collated(samples))
        even = [torch.ones(2), torch.ones(2)]
        check_same(road.collate(even), collated(even))


def test_a_function_for_containers_in_the_map_is_used(road: Road) -> None:
    def joined(batch: Any, *, collate_fn_map: Any = None) -> Any:
        return sum(batch, ())

    with mock.patch.dict(collate.default_collate_fn_map, {tuple: joined}):
        assert road.collate([(1, 2), (3,)]) == (1, 2, 3)
        check_same(road.collate([1, 2]), torch.tensor([1, 2]))  # no tuple: stacked in place


def test_a_replaced_default_collate_is_used(road: Road) -> None:
    with mock.patch.object(collate, "default_collate", lambda batch: ("mine", batch)):
        assert road.collate([1, 2]) == ("mine", [1, 2])


def test_a_default_device_counts(road: Road) -> None:
    with torch.device("meta"):
        theirs = collated([1.0, 2.0])
        ours = road.collate([1.0, 2.0])
    assert theirs.is_meta
    check_same(ours, theirs)


def test_rows_stacked_before_an_unlike_sample_keep_their_types(road: Road) -> None:
    seen: list[Any] = []

    def look(batch: Any) -> Any:
        seen.extend(batch)
        return len(batch)

    rules = mock.patch.object(collate, "default_collate", look)
    name = "float8_e5m2"
    kept = [
        (torch.ones(2, dtype=torch.bfloat16), np.ones(2, "f2"), np.float32(1), 2.0, True, 3, "a"),
        (torch.ones(2).to(getattr(torch, name)), np.arange(2), np.int8(1), 2.0, False, 4, b"a"),
    ]
    for sample in kept:
        road.collate([sample, sample])
        seen.clear()
        with rules:
            road.collate([sample, sample, ("other",)])
        for again in seen[:2]:
            check_same(again, sample)
