"""Kinds of samples, and the batches made of them, over workers and frameworks."""

from __future__ import annotations

import array
import collections
import dataclasses
import datetime
import decimal
import enum
import fractions
import pathlib
import types
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

from reader import CollateError, DataLoader, DatasetError, LoDTensor, register_container
from tests.datasets import Box, Calls, Colour, FrozenBox, Point, digest_of
from tests.versions import MOST_DIMENSIONS

WORKERS = pytest.mark.parametrize(
    "workers", [0, 1]
)  # there is one batch: a second has none to make


def load(make: Callable[[int], Any], workers: int, count: int = 4, **options: Any) -> Any:
    """The one batch of `count` samples."""
    with DataLoader(Calls(make, count), batch_size=count, num_workers=workers, **options) as loader:
        (batch,) = list(loader)
        return batch


DTYPES = [
    *"? b B h H i I l L q Q e f d g F D G S5 U3 V6".split(),
    *"M8[ns] M8[D] m8[ms] >i4 >f8 >U2 >c8 >M8[s]".split(),
]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("dtype", DTYPES)
@WORKERS
def test_arrays_of_every_dtype_are_stacked(workers: int, dtype: str) -> None:
    kind = np.dtype(dtype)

    def sample(index: int) -> np.ndarray:
        raw = np.arange(index, index + 6)
        if kind.kind in "SU":
            return np.array([f"{v}" for v in raw], kind).reshape(2, 3)
        if kind.kind == "V":
            return np.array([bytes([v] * 6) for v in raw], kind).reshape(2, 3)
        return raw.astype(kind).reshape(2, 3)

    batch = load(sample, workers)
    wanted = np.stack([sample(i) for i in range(4)])
    assert batch.dtype == kind.newbyteorder("=")
    assert batch.shape == (4, 2, 3)
    assert batch.dtype.isnative
    assert (batch == wanted).all()


@pytest.mark.parametrize(
    "name",
    ["bfloat16", "float8_e4m3fn", "float8_e5m2", "float8_e4m3b11fnuz", "float8_e8m0fnu"],
)
@WORKERS
def test_arrays_of_ml_dtypes_keep_their_type(workers: int, name: str) -> None:
    kind = getattr(ml_dtypes, name)
    batch = load(lambda i: np.array([1, 2, 4], kind)[::-1], workers)
    assert batch.dtype == np.dtype(kind)
    assert batch.astype(np.float32).tolist() == [[4, 2, 1]] * 4
    scalars = load(lambda i: kind(2), workers)
    assert scalars.dtype == np.dtype(kind)
    assert scalars.astype(np.float32).tolist() == [2] * 4


@WORKERS
def test_structured_arrays_keep_names_padding_and_nesting(workers: int) -> None:
    kind = np.dtype(
        [("a", "i1"), ("b", ">f8", (2,)), ("c", [("d", "U2"), ("e", "M8[s]")])], align=True
    )

    def sample(index: int) -> np.ndarray:
        made = np.zeros(3, kind)
        made["a"] = index
        made["b"] = index / 2
        made["c"]["d"] = f"{index}"
        made["c"]["e"] = np.datetime64(index, "s")
        return made

    batch = load(sample, workers)
    assert batch.shape == (4, 3)
    assert batch.dtype.names == ("a", "b", "c")
    for index in range(4):
        wanted = sample(index)
        assert batch[index]["a"].tolist() == wanted["a"].tolist()
        assert batch[index]["b"].tolist() == wanted["b"].tolist()
        assert batch[index]["c"].tolist() == wanted["c"].tolist()
    scalar = load(lambda i: sample(i)[0], workers)
    assert scalar.shape == (4,)
    assert scalar["a"].tolist() == [0, 1, 2, 3]


LAYOUTS: dict[str, Callable[[], np.ndarray]] = {
    "transposed": lambda: np.arange(12.0).reshape(3, 4).T,
    "strided": lambda: np.arange(24.0).reshape(4, 6)[::2, ::-2],
    "broadcast": lambda: np.broadcast_to(np.arange(3.0), (4, 3)),
    "fortran": lambda: np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "read only": lambda: np.frombuffer(np.arange(5.0).tobytes()),
    "unaligned": lambda: np.frombuffer(b"x" + np.arange(5.0).tobytes(), offset=1, dtype="f8"),
    "0-d": lambda: np.array(3.5),
    "empty": lambda: np.zeros((0, 3)),
    "empty inside": lambda: np.zeros((2, 0, 3), "i4"),
    "63-d": lambda: np.zeros((1,) * (MOST_DIMENSIONS - 1)),  # one fewer than NumPy has
    "matrix": lambda: np.arange(4.0).reshape(2, 2).view(np.matrix),
    "large": lambda: np.arange(300_000.0).reshape(1000, 300)[::-1],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("layout", LAYOUTS)
@WORKERS
def test_arrays_of_every_layout_are_stacked(workers: int, layout: str) -> None:
    wanted = np.stack([np.asarray(LAYOUTS[layout]())] * 4)
    for options in ({}, {"collate_fn": lambda samples: np.stack([np.asarray(s) for s in samples])}):
        batch = load(lambda i: LAYOUTS[layout](), workers, **options)
        assert type(batch) is np.ndarray
        assert batch.shape == wanted.shape
        assert batch.dtype == wanted.dtype
        assert batch.flags.writeable
        assert batch.flags.c_contiguous
        assert (batch == wanted).all()
    (alone,) = DataLoader(Calls(lambda i: LAYOUTS[layout](), 1), batch_size=None)
    assert alone.shape == wanted.shape[1:]
    assert (np.asarray(alone) == wanted[0]).all()


@WORKERS
def test_array_with_more_dimensions_than_a_batch_can_have_is_refused(workers: int) -> None:
    with pytest.raises(CollateError, match=f"{MOST_DIMENSIONS} dimensions"):
        load(lambda i: np.zeros((1,) * MOST_DIMENSIONS), workers)


@WORKERS
def test_arrays_of_objects_come_as_a_list(workers: int) -> None:
    batch = load(lambda i: np.array([i, "x", None], object), workers)
    assert [one.tolist() for one in batch] == [[i, "x", None] for i in range(4)]


class Level(enum.IntEnum):
    HIGH = 7


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (5, "int64"),
        (-(2**63), "int64"),
        (2.5, "float64"),
        (True, "bool"),
        (1 + 2j, "complex128"),
        (np.int8(3), "int8"),
        (np.uint64(2**64 - 1), "uint64"),
        (np.float16(0.5), "float16"),
        (np.bool_(True), "bool"),
        (np.complex64(1j), "complex64"),
        (np.datetime64("2024-01-02"), "datetime64[D]"),
        (np.timedelta64(5, "s"), "timedelta64[s]"),
        (Level.HIGH, "int64"),
        (float("nan"), "float64"),
        (float("-inf"), "float64"),
    ],
    ids=repr,
)
@WORKERS
def test_numbers_become_an_array(workers: int, value: Any, dtype: str) -> None:
    batch = load(lambda i: value, workers)
    assert batch.dtype == np.dtype(dtype)
    assert batch.shape == (4,)
    assert (batch == np.array([value] * 4, dtype)).all() or value != value
    if value != value:
        assert np.isnan(batch).all()


class Kelvin(np.float64):
    """A number of the user's own, derived from one of NumPy's."""


@pytest.mark.sampled(2)
@pytest.mark.parametrize("code", [*"?bhilqBHILQefdgFDG", "Kelvin"])
@WORKERS
def test_numbers_of_numpy_keep_their_bytes(workers: int, code: str) -> None:
    values: Any = [Kelvin(n / 3) for n in range(4)]
    if code != "Kelvin":
        thirds = np.array([0, 1, 100, 126]) / (1 if code in "?bhilqBHILQ" else 3)
        values = list(thirds.astype(code))
    wanted = np.stack(values)
    batch = load(lambda index: values[index % 4], workers)
    assert batch.dtype == wanted.dtype
    assert batch.tobytes() == wanted.tobytes() or code in "gG"  # those have bytes without a meaning
    assert (batch == wanted).all()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "value",
    [
        "text",
        "",
        "\N{SNOWMAN}\0x",
        b"bytes\0",
        b"",
        Colour.RED,
        decimal.Decimal("1.5"),
        fractions.Fraction(1, 3),
        datetime.datetime(2024, 1, 2),
        pathlib.PurePosixPath("a/b"),
        uuid.UUID(int=5),
        frozenset({1, 2}),
        range(3),
        slice(1, 2),
        np.str_("np"),
        np.bytes_(b"np"),
        types.SimpleNamespace(a=1),
        array.array("i", [1, 2]),
        bytearray(b"xy"),
        int,
        len,
        ...,
        NotImplemented,
        2**31 * 1.0 + 0j and "x" * 70_000,
    ],
    ids=lambda v: repr(v)[:20],
)
@WORKERS
def test_other_values_come_as_a_list_one_per_sample(workers: int, value: Any) -> None:
    batch = load(lambda i: value, workers)
    assert type(batch) is list
    assert batch == [value] * 4
    assert all(type(one) is type(value) for one in batch)


@pytest.mark.parametrize("size", [1, 4])
@WORKERS
def test_batch_of_none_alone_says_that_getitem_returned_nothing(workers: int, size: int) -> None:
    for dataset in (Calls(lambda i: None, 4), Calls(lambda i: None if i < size else i, 4)):
        with DataLoader(dataset, batch_size=size, num_workers=workers) as loader:
            wanted = r"each sample of the batch is None \(dataset indices \[0.*collate_fn=list"
            with pytest.raises(CollateError, match=wanted):
                next(iter(loader))
    batches = DataLoader([None] * 4, batch_size=4, num_workers=workers, collate_fn=list)
    assert list(batches) == [[None] * 4]


@WORKERS
def test_masked_arrays_are_refused_by_name_or_keep_their_mask(workers: int) -> None:
    def masked(i: int) -> Any:
        return np.ma.masked_equal(np.arange(i, i + 3), 2)

    for sample in (masked, lambda i: {"a": [masked(i)]}, lambda i: np.ma.masked):
        with pytest.raises(CollateError, match=r"a masked array cannot be stacked.*numpy.ma.stack"):
            load(sample, workers)
    dataset = Calls(masked, 4)
    for collate in (np.ma.stack, lambda samples: {"x": (np.ma.stack(samples), np.zeros(2))}):
        (batch,) = DataLoader(dataset, batch_size=4, num_workers=workers, collate_fn=collate)
        found = batch["x"][0] if isinstance(batch, dict) else batch
        assert isinstance(found, np.ma.MaskedArray)
        assert found.mask.tolist() == [[j + i == 2 for j in range(3)] for i in range(4)]
        assert found.data.tolist() == [[i, i + 1, i + 2] for i in range(4)]
    (alone, *_) = DataLoader(dataset, batch_size=None, num_workers=workers)
    assert alone.mask.tolist() == [False, False, True]


@WORKERS
def test_strings_and_none_may_be_mixed(workers: int) -> None:
    values = ["a", None, b"b", Colour.RED]
    assert load(values.__getitem__, workers) == values


class Local(NamedTuple):
    x: Any


@dataclasses.dataclass
class Slotted:
    __slots__ = ("a", "b")
    a: Any
    b: Any


class Special(dict):  # type: ignore[type-arg]
    pass


class SpecialList(list):  # type: ignore[type-arg]
    pass


CONTAINERS: dict[str, tuple[Callable[[int], Any], Callable[[Any], Any]]] = {
    "tuple": (lambda i: (i, i), lambda b: (type(b), b[1].tolist())),
    "list": (lambda i: [i, i], lambda b: (type(b), b[1].tolist())),
    "dict": (lambda i: {"k": i, 3: i}, lambda b: (type(b), list(b), b[3].tolist())),
    "ordered": (
        lambda i: collections.OrderedDict(z=i, a=i),
        lambda b: (type(b), list(b), b["a"].tolist()),
    ),
    "default": (
        lambda i: collections.defaultdict(list, k=i),
        lambda b: (type(b), b.default_factory, b["k"].tolist()),
    ),
    "special": (lambda i: Special(k=i), lambda b: (type(b), b["k"].tolist())),
    "special list": (lambda i: SpecialList([i]), lambda b: (type(b), b[0].tolist())),
    "mapping": (
        lambda i: types.MappingProxyType({"k": np.array(i)}),
        lambda b: (type(b), b["k"].tolist()),
    ),
    "namedtuple": (lambda i: Point(i, (i,)), lambda b: (type(b), b.x.tolist(), b.y[0].tolist())),
    "other namedtuple": (lambda i: Local(i), lambda b: (type(b), b.x.tolist())),
    "dataclass": (
        lambda i: Box(np.array(i), i, str(i)),
        lambda b: (type(b), b.image.tolist(), b.label.tolist(), b.name),
    ),
    "frozen": (lambda i: FrozenBox(i, i), lambda b: (type(b), b.image.tolist())),
    "slotted": (lambda i: Slotted(i, i), lambda b: (type(b), b.a.tolist())),
    "empty": (lambda i: ((), [], {}, i), lambda b: (b[:3], b[3].tolist())),
    "only empty": (lambda i: ((), [], {}), lambda b: b),
    "deep": (
        lambda i: {"a": [({"b": (i, [Point(str(i), Box(i, None))])},)]},
        lambda b: (
            b["a"][0][0]["b"][0].tolist(),
            b["a"][0][0]["b"][1][0].x,
            b["a"][0][0]["b"][1][0].y.image.tolist(),
            b["a"][0][0]["b"][1][0].y.label,
        ),
    ),
}
FOUR = [0, 1, 2, 3]
WANTED: dict[str, Any] = {
    "tuple": (tuple, FOUR),
    "list": (list, FOUR),
    "dict": (dict, ["k", 3], FOUR),
    "ordered": (collections.OrderedDict, ["z", "a"], FOUR),
    "default": (collections.defaultdict, list, FOUR),
    "special": (Special, FOUR),
    "special list": (SpecialList, FOUR),
    "mapping": (types.MappingProxyType, FOUR),
    "namedtuple": (Point, FOUR, FOUR),
    "other namedtuple": (Local, FOUR),
    "dataclass": (Box, FOUR, FOUR, ["0", "1", "2", "3"]),
    "frozen": (FrozenBox, FOUR),
    "slotted": (Slotted, FOUR),
    "empty": (((), [], {}), FOUR),
    "only empty": ((), [], {}),
    "deep": (FOUR, ["0", "1", "2", "3"], FOUR, [None] * 4),
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", CONTAINERS)
@WORKERS
def test_containers_keep_their_type(workers: int, kind: str) -> None:
    make, look = CONTAINERS[kind]
    assert look(load(make, workers)) == WANTED[kind]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kind", CONTAINERS)
@WORKERS
def test_collate_fn_may_return_any_container(workers: int, kind: str) -> None:
    make, _ = CONTAINERS[kind]
    batch = load(lambda i: i, workers, collate_fn=lambda samples: make(7))
    assert type(batch) is type(make(7))
    assert digest_of([batch]) == digest_of([make(7)]) or "array" in repr(batch) or batch == make(7)


@WORKERS
def test_local_container_classes_arrive_as_themselves(workers: int) -> None:
    class Inner(NamedTuple):
        a: Any

    @dataclasses.dataclass
    class Record:
        a: Any
        b: Any

    batch = load(lambda i: (Inner(i), Record(np.ones(2), str(i))), workers)
    assert type(batch[0]) is Inner
    assert type(batch[1]) is Record
    assert batch[1].a.shape == (4, 2)


class Pair:
    def __init__(self, a: Any, b: Any) -> None:
        self.a, self.b = a, b


@WORKERS
def test_registered_containers_are_taken_apart(workers: int) -> None:
    register_container(
        Pair, lambda v: ([v.a, v.b], "extra"), lambda children, extra: Pair(*children)
    )
    batch = load(lambda i: {"p": Pair(np.full(3, i), i)}, workers)
    assert type(batch["p"]) is Pair
    assert batch["p"].a[:, 0].tolist() == FOUR
    assert batch["p"].b.tolist() == FOUR


@WORKERS
def test_lod_tensors_are_stacked_as_arrays(workers: int) -> None:
    batch = load(lambda i: LoDTensor(np.full((2, 3), i, "f4")), workers)
    assert batch.shape == (4, 2, 3)
    assert batch[3, 0, 0] == 3


# ---- tensors of frameworks --------------------------------------------------------------------

TORCH = "float32 float64 float16 bfloat16 int8 uint8 int16 int32 int64 bool complex64 complex128"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*TORCH.split(), "float8_e4m3fn", "float8_e5m2"])
@pytest.mark.parametrize("framework", ["numpy", "torch"])
def test_torch_tensors_are_stacked(framework: str, name: str) -> None:
    torch = pytest.importorskip("torch")
    kind = getattr(torch, name)

    def sample(index: int) -> Any:
        return torch.tensor([[index, 1], [0, 2]]).to(kind)

    batch = load(sample, 2, framework=framework)
    if framework == "torch":
        wanted = torch.stack([sample(i).to(torch.complex64) for i in range(4)])
        assert batch.dtype is kind
        assert torch.equal(batch.to(torch.complex64), wanted)
    else:
        assert batch.dtype.name == name
        assert batch.astype("c8").real.tolist()[3] == [[3 if name != "bool" else 1, 1],
                                                       [0, 2 if name != "bool" else 1]]  # fmt: skip


@WORKERS
def test_torch_tensors_of_every_layout_are_stacked(workers: int) -> None:
    torch = pytest.importorskip("torch")
    makers = [
        lambda: torch.arange(12.0).reshape(3, 4).t(),
        lambda: torch.arange(12.0)[::3],
        lambda: torch.ones(3).expand(2, 3),
        lambda: torch.tensor(1.5),
        lambda: torch.zeros(0, 3),
        lambda: torch.nn.Parameter(torch.ones(2)),
        lambda: torch.ones(2, requires_grad=True) * 2,
        lambda: torch.tensor([1 + 2j]).conj(),
        lambda: torch.ones(1, 2, 3, 4).to(memory_format=torch.channels_last),
    ]
    for make in makers:
        batch = load(lambda i, make=make: make(), workers, framework="torch")
        wanted = torch.stack([make().detach()] * 4)
        assert torch.equal(batch, wanted)
        assert batch.dtype is wanted.dtype
        assert not batch.requires_grad


@pytest.mark.filterwarnings("ignore:.*quantize:UserWarning")
@WORKERS
def test_odd_torch_tensors_are_refused_by_name(workers: int) -> None:
    torch = pytest.importorskip("torch")
    for make, text in (
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.ones(2, device="meta"), "meta"),
        (lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.quint8), "quantized"),
    ):
        with pytest.raises(ValueError, match=text) as info:
            try:
                load(lambda i, make=make: make(), workers)
            except RuntimeError as error:
                raise ValueError(str(error)) from error
        assert "torch tensor" in str(info.value)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", [*TORCH.split(), "str", "datetime", "uint16", "void"])
@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_numpy_samples_become_tensors_where_the_framework_has_the_type(
    framework: str, name: str
) -> None:
    module: Any = pytest.importorskip(framework)
    kind: Any = {"bfloat16": ml_dtypes.bfloat16, "str": "U3", "datetime": "M8[s]", "void": "V4"}
    dtype = np.dtype(kind.get(name, name))

    def sample(index: int) -> Any:
        if name == "void":
            return np.zeros((2, 3), "V4")
        return np.arange(index, index + 6).reshape(2, 3).astype(dtype)

    batch = load(sample, 2, framework=framework)
    if name in TORCH.split() or name == "uint16":
        assert isinstance(batch, module.Tensor)
        # Paddle has no uint16: the numbers come in a wider type
        assert ("int32" if (framework, name) == ("paddle", "uint16") else name) in str(batch.dtype)
        assert list(batch.shape) == [4, 2, 3]
        if not name.startswith("complex"):
            found = batch.to(module.float64) if framework == "torch" else batch.astype("float64")
            assert np.asarray(found).tolist() == [sample(i).astype("f8").tolist() for i in range(4)]
    else:
        assert isinstance(batch, np.ndarray)
        assert batch.dtype == dtype


@pytest.mark.parametrize("framework", ["torch", "paddle"])
@WORKERS
def test_odd_shapes_reach_frameworks(workers: int, framework: str) -> None:
    module: Any = pytest.importorskip(framework)
    for shape in ((), (0,), (3, 0, 2), (1, 1, 1)):
        batch = load(lambda i, shape=shape: np.ones(shape, "f4"), workers, framework=framework)
        assert isinstance(batch, module.Tensor)
        assert list(batch.shape) == [4, *shape]
    single = load(lambda i: np.array(2.5), workers, framework=framework, count=1)
    assert list(single.shape) == [1]
    with DataLoader(
        [np.array(2.5), np.zeros((0, 2))], batch_size=None, framework=framework, num_workers=workers
    ) as loader:
        assert [list(one.shape) for one in loader] == [[], [0, 2]]


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
@WORKERS
def test_nested_batches_are_converted_leaf_by_leaf(workers: int, framework: str) -> None:
    module: Any = pytest.importorskip(framework)
    leaf = np.ndarray if framework == "numpy" else module.Tensor
    batch = load(
        lambda i: {"p": Point(np.ones(2, "f4"), [i, "s"]), "n": None, "b": Box(1.5, True, "x")},
        workers,
        framework=framework,
    )
    assert isinstance(batch["p"].x, leaf)
    assert isinstance(batch["p"].y[0], leaf)
    assert batch["p"].y[1] == ["s"] * 4
    assert batch["n"] == [None] * 4
    assert isinstance(batch["b"].label, leaf)
    assert batch["b"].name == ["x"] * 4


@pytest.mark.parametrize("name", "float32 float64 float16 bfloat16 int32 int64 uint8 bool".split())
@pytest.mark.parametrize("framework", ["numpy", "paddle"])
def test_paddle_tensors_are_stacked(framework: str, name: str) -> None:
    paddle = pytest.importorskip("paddle")

    def sample(index: int) -> Any:
        return paddle.to_tensor([[index, 1], [0, 2]]).astype(name)

    # in the trainer's thread and in a forked worker alike
    for workers in (0, 1):
        batch = load(sample, workers, framework=framework)
        assert list(batch.shape) == [4, 2, 2]
        if framework == "paddle":
            assert isinstance(batch, paddle.Tensor)
            assert name in str(batch.dtype)
            batch = batch.astype("float64").numpy()
        assert np.asarray(batch).astype("f8")[3].tolist() == [
            [3 if name != "bool" else 1, 1],
            [0, 2 if name != "bool" else 1],
        ]


@WORKERS
def test_odd_paddle_tensors_are_stacked(workers: int) -> None:
    paddle = pytest.importorskip("paddle")
    for make, shape in (
        (lambda: paddle.to_tensor(1.5), []),
        (lambda: paddle.zeros([0, 3]), [0, 3]),
        (lambda: paddle.arange(6).reshape([2, 3]).t(), [3, 2]),
        (lambda: paddle.arange(6.0)[::2], [3]),
        (lambda: paddle.arange(6.0)[4:], [2]),
        (lambda: paddle.expand(paddle.arange(3.0), [4, 3]), [4, 3]),
        (lambda: paddle.complex(paddle.arange(6.0), paddle.ones([6])).reshape([2, 3]).t(), [3, 2]),
        (lambda: paddle.arange(40000.0), [40000]),  # copied without the GIL
        (lambda: paddle.arange(40000.0).reshape([200, 200]).t(), [200, 200]),
        (lambda: constant_parameter(paddle), [2]),
    ):
        batch = load(lambda i, make=make: make(), workers, framework="paddle")
        assert list(batch.shape) == [4, *shape]
        assert (batch[1].numpy() == make().numpy()).all()
        assert batch.stop_gradient


@WORKERS
@pytest.mark.parametrize("size", [3, 200], ids=["small", "large"])
def test_layouts_of_tensors_may_differ_from_sample_to_sample(workers: int, size: int) -> None:
    paddle = pytest.importorskip("paddle")
    torch = pytest.importorskip("torch")
    values = np.arange(size * size, dtype="f4").reshape(size, size)
    for make in (paddle.to_tensor, torch.tensor):

        def sample(index: int, make: Callable[[Any], Any] = make) -> Any:
            return make(values + index) if index % 2 else make((values + index).T.copy()).t()

        for order in (sample, lambda index, sample=sample: sample(3 - index)):
            batch = load(order, workers)
            wanted = [np.asarray(order(index)) for index in range(4)]
            assert np.array_equal(batch, wanted)


def test_a_reused_tensor_of_a_dataset_is_read_as_by_the_library() -> None:
    paddle = pytest.importorskip("paddle")
    from reader.compat.paddle import DataLoader as PaddleLoader

    kept = paddle.zeros([2])

    def sample(index: int) -> Any:
        kept[0] = float(index)
        return kept

    assert load(sample, 0).tolist() == [[0.0, 0.0], [1.0, 0.0], [2.0, 0.0], [3.0, 0.0]]
    (batch,) = PaddleLoader(Calls(sample, 4), batch_size=4)
    assert batch.tolist() == [[3.0, 0.0]] * 4  # as paddle.io, which reads after the last sample

    def replaced(index: int) -> Any:
        kept.data = paddle.full([2], float(index))
        return kept

    (batch,) = PaddleLoader(Calls(replaced, 4), batch_size=4)
    assert batch.tolist() == [[3.0, 3.0]] * 4


@pytest.mark.parametrize("size", [2, 40000])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("float32", "int64"),
        ("int64", "float32"),
        ("bfloat16", "float32"),
        ("float32", "longer"),
        ("float8_e4m3fn", "float32"),
    ],
)
def test_tensors_that_paddle_does_not_stack_are_refused_in_its_words(
    first: str, second: str, size: int
) -> None:
    paddle = pytest.importorskip("paddle")
    from paddle.io.dataloader.collate import default_collate_fn

    from reader.compat.paddle import DataLoader as PaddleLoader

    def make(name: str) -> Any:
        if name == "longer":
            return paddle.ones([size + 1])
        return paddle.ones([size]).astype(name)

    samples = [make(first), make(second)]
    with pytest.raises((ValueError, TypeError, RuntimeError)) as theirs:
        default_collate_fn(samples)
    with pytest.raises(theirs.type):
        next(iter(PaddleLoader(samples, batch_size=2)))


def test_paddle_tensors_that_are_not_dense_are_refused_by_name() -> None:
    paddle = pytest.importorskip("paddle")
    sparse = paddle.sparse.sparse_coo_tensor([[0, 1], [0, 1]], [1.0, 2.0])
    with pytest.raises(DatasetError, match="sparse"):
        load(lambda _: sparse, 0)


@WORKERS
def test_paddle_tensors_of_eight_bits_keep_their_type(workers: int) -> None:
    paddle = pytest.importorskip("paddle")
    is_3 = int(paddle.__version__.partition(".")[0]) >= 3  # 2.6 has no floats of eight bits
    for name in ("int8", "uint8", *(["float8_e4m3fn", "float8_e5m2"] if is_3 else [])):
        one = paddle.to_tensor([1.0, 2.0]).astype(name)
        batch = load(lambda _, one=one: one, workers, framework="paddle")
        assert name in str(batch.dtype)
        assert (batch[2].astype("float32").numpy() == [1.0, 2.0]).all()


def constant_parameter(paddle: Any) -> Any:
    return paddle.create_parameter(
        [2], "float32", default_initializer=paddle.nn.initializer.Constant(3.0)
    )


def test_mixed_frameworks_in_one_sample_become_the_requested_one() -> None:
    torch = pytest.importorskip("torch")
    paddle = pytest.importorskip("paddle")

    def sample(index: int) -> Any:
        return torch.ones(2), paddle.ones([2]), np.ones(2, "f4")

    for framework, kind in (("numpy", np.ndarray), ("torch", torch.Tensor),
                            ("paddle", paddle.Tensor)):  # fmt: skip
        batch = load(sample, 1, framework=framework)
        assert [type(one) for one in batch] == [kind] * 3


@WORKERS
def test_paddle_static_mode_gets_dense_tensors_in_a_feed(workers: int) -> None:
    paddle = pytest.importorskip("paddle")
    from reader.frameworks.paddle_version import DenseTensor

    paddle.enable_static()
    try:
        for sample in (
            lambda i: (np.full(3, i, "f4"), i),
            lambda i: {"label": i, "image": np.full(3, i, "f4")},
        ):
            with DataLoader(
                Calls(sample, 8), ["image", "label"], batch_size=4, return_list=False,
                framework="paddle", num_workers=workers,
            ) as loader:  # fmt: skip
                (first,), (second,) = list(loader)
            assert list(first) == ["image", "label"]
            assert isinstance(first["image"], DenseTensor)
            assert np.array(second["image"])[:, 0].tolist() == [4, 5, 6, 7]
            assert np.array(second["label"]).tolist() == [4, 5, 6, 7]
        with DataLoader(
            Calls(lambda i: (i, i, i), 4), ["image", "label"], batch_size=4, return_list=False,
            framework="paddle", num_workers=workers,
        ) as loader, pytest.raises(ValueError, match=r"names 2 inputs.*3 fields"):  # fmt: skip
            list(loader)
    finally:
        paddle.disable_static()


@WORKERS
def test_collate_fn_may_return_tensors(workers: int) -> None:
    torch = pytest.importorskip("torch")
    batch = load(
        lambda i: torch.full((2,), i),
        workers,
        framework="torch",
        collate_fn=lambda samples: {"t": torch.stack(samples).t(), "n": [1, (2.5, "s")]},
    )
    assert batch["t"].tolist() == [FOUR, FOUR]
    assert batch["n"] == [1, (2.5, "s")]


@WORKERS
def test_collate_fn_may_return_the_dataset_s_own_array(workers: int) -> None:
    table = np.arange(12.0)
    with DataLoader(
        Calls(lambda i: i, 4), batch_size=2, collate_fn=lambda samples: table[3:6],
        num_workers=workers,
    ) as loader:  # fmt: skip
        for batch in loader:
            batch[:] = -1  # the batch is the user's, and the dataset's array is the dataset's
        assert table[3:6].tolist() == [3, 4, 5]
