"""The result of a collate_fn arrives as through the queue of PyTorch's workers."""

from __future__ import annotations

import collections
import dataclasses
import datetime
import fractions
import multiprocessing
import socket
import threading
from collections.abc import Iterator
from multiprocessing import resource_sharer
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.utils.rnn import pack_sequence

from reader.errors import DatasetError
from tests.datasets import Colour, Point
from tests.peers.torch_values import Road, bytes_of, check_same, queued
from tests.wire import wire

pytestmark = pytest.mark.filterwarnings(
    "ignore:The PyTorch API of nested tensors",
    "ignore:Sparse",
    "ignore:torch.quantize_per_tensor, torch.quantize_per_channel",
    "ignore:TypedStorage is deprecated",
)


class OwnTensor(torch.Tensor):
    """A tensor of a user's own class."""


class OwnDict(dict[Any, Any]):
    """A dict with attributes."""


class OwnList(list[Any]):
    """A list with attributes."""


class Slotted:
    __slots__ = ("x",)

    def __init__(self, x: Any) -> None:
        self.x = x


@dataclasses.dataclass
class Record:
    x: Any
    y: Any = 0


@dataclasses.dataclass(frozen=True)
class Frozen:
    x: Any


class Graph:
    """Holds its tensors in ways of its own, as the batches of graph libraries do."""

    def __init__(self, **parts: Any) -> None:
        self._store = parts

    def __getattr__(self, name: str) -> Any:
        if name == "_store" or name not in self._store:
            raise AttributeError(name)
        return self._store[name]


@pytest.fixture
def road() -> Iterator[Road]:
    with wire() as made:
        yield Road(made)


def with_attributes(value: Any, **attributes: Any) -> Any:
    vars(value).update(attributes)
    return value


def images() -> torch.Tensor:
    """Made anew for each use: PyTorch's queue moves storages into memory of its own."""
    return torch.arange(120.0).reshape(2, 3, 4, 5)


def views() -> Any:
    whole = torch.arange(100.0)
    return whole[:10], whole[5:50].reshape(5, 9), whole[::2]


BATCHES: dict[str, Any] = {
    "a tensor": lambda: torch.arange(6.0).reshape(2, 3),
    "no dimensions": lambda: torch.tensor(3),
    "no elements": lambda: [torch.empty(0, 3), torch.empty(3, 0), torch.empty(0)],
    "no elements, turned": lambda: torch.empty(0, 3).t(),
    "two turned": lambda: [images().permute(3, 0, 1, 2), images()[0, 0].T],
    "channels last": lambda: images().contiguous(memory_format=torch.channels_last),
    "one channel, channels last": lambda: images()[:, :1].contiguous(
        memory_format=torch.channels_last
    ),
    "expanded": lambda: torch.ones(3, 1).expand(3, 4),
    "steps": lambda: images()[:, ::2, 1:, ::3],
    "overlapping": lambda: torch.arange(8.0).unfold(0, 3, 1),
    "views of one storage": views,
    "a leaf": lambda: torch.ones(2, 2, requires_grad=True),
    "a turned leaf": lambda: torch.ones(2, 3).t().requires_grad_(),
    "a parameter": lambda: torch.nn.Parameter(torch.ones(2)),
    "a parameter of integers": lambda: torch.nn.Parameter(torch.ones(2).int(), requires_grad=False),
    "a buffer": lambda: torch.nn.Buffer(torch.ones(2)),
    "a tensor with attributes": lambda: with_attributes(torch.ones(2), mine=3),
    "an own tensor": lambda: torch.arange(6).reshape(2, 3).as_subclass(OwnTensor),
    "an own tensor with attributes": lambda: with_attributes(
        torch.ones(2).as_subclass(OwnTensor), mine=torch.ones(3)
    ),
    "sparse coo": lambda: torch.eye(3).to_sparse(),
    "sparse csr": lambda: torch.eye(3).to_sparse_csr(),
    "sparse csc": lambda: torch.eye(3).to_sparse_csc(),
    "sparse bsr": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "meta": lambda: torch.ones(2, 3, device="meta"),
    "uint4": lambda: torch.arange(6, dtype=torch.uint8).view(torch.uint4),
    "bits": lambda: torch.arange(6, dtype=torch.uint8).view(torch.bits8),
    "fp4": lambda: torch.arange(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
    "a packed sequence": lambda: pack_sequence([torch.ones(3), torch.ones(2)]),
    "sizes and types": lambda: [torch.Size([1, 2]), torch.float32, torch.device("cpu")],
    "layouts": lambda: (torch.strided, torch.channels_last, torch.per_tensor_affine),
    "an array": lambda: np.arange(6).reshape(2, 3),
    "arrays": lambda: (np.array(3.0), np.empty((0, 2), "f4"), np.array(True)),
    "an array in Fortran's order": lambda: np.asfortranarray(np.ones((2, 3))),
    "an array with steps": lambda: np.arange(24).reshape(4, 6)[::-2, ::3],
    "the other byte order": lambda: np.arange(3, dtype=">i4"),
    "long doubles": lambda: np.arange(3, dtype=np.longdouble),
    "dates": lambda: [np.array(["2020-01-01"], "M8[D]"), np.ones(2, "m8[ns]")],
    "texts": lambda: [np.array(["a", "bcd"]), np.array([b"a"])],
    "records": lambda: np.zeros(2, [("a", "i4"), ("b", "f8", 2)]),
    "objects": lambda: np.array([None, "a", 3], object),
    "a masked array": lambda: np.ma.array([1, 2], mask=[0, 1]).filled(7),
    "a matrix": lambda: np.arange(4).view(np.recarray),
    "scalars": lambda: [np.float32(1), np.int8(2), np.bool_(True), np.str_("a"), np.uint64(3)],
    "a date": lambda: np.datetime64("2020-01-01"),
    "None": lambda: None,
    "an int": lambda: 3,
    "a large int": lambda: 1 << 100,
    "a bool": lambda: True,
    "a float": lambda: float("nan"),
    "a complex": lambda: 1j,
    "a string": lambda: "ü",
    "bytes": lambda: [b"a", bytearray(b"b")],
    "a list": list,
    "a dict": dict,
    "a tuple": lambda: (),
    "a set": lambda: {1, 2},
    "a range": lambda: range(3),
    "a slice": lambda: slice(1, 2),
    "a fraction": lambda: fractions.Fraction(1, 3),
    "an enum": lambda: [Colour.RED, datetime.date(2020, 1, 1), ...],
    "a class": lambda: [Point, len, np.float32, torch.nn.Linear],
    "both": lambda: (torch.ones(2), np.ones(2), 3, "a", None, [torch.ones(1)], ("b",)),
    "a dict of both": lambda: {"x": torch.ones(2), "y": np.ones(2), 3: "a", "z": {}},
    "odd keys": lambda: {True: torch.ones(1), None: np.ones(1), (1, 2): torch.ones(1), 2.0: 3},
    "a named tuple": lambda: Point(torch.ones(2), [np.ones(1), "a"]),
    "an ordered dict": lambda: collections.OrderedDict(b=torch.ones(1), a=np.ones(2000)),
    "a default dict": lambda: collections.defaultdict(list, {"a": torch.ones(1)}),
    "a counter": lambda: collections.Counter("abca"),
    "a user dict": lambda: with_attributes(collections.UserDict(a=torch.ones(2000)), mine=3),
    "an own dict": lambda: with_attributes(OwnDict(a=torch.ones(2)), mine=np.ones(2)),
    "an own list": lambda: with_attributes(OwnList([torch.ones(2)]), mine="a"),
    "a deque": lambda: collections.deque([torch.ones(2)], maxlen=4),
    "a dataclass": lambda: Record(torch.ones(2), np.ones(2)),
    "a dataclass with attributes": lambda: with_attributes(Record(torch.ones(2)), mine=3),
    "a frozen dataclass": lambda: Frozen(torch.ones(2)),
    "slots": lambda: Slotted(torch.ones(2)),
    "an own object": lambda: Graph(x=torch.ones(2000), edges=[np.ones(2000), torch.eye(3).T]),
    "a storage": lambda: [torch.arange(3.0).untyped_storage(), torch.ones(2)],
    "deep": lambda: [[[[[[[[(torch.ones(1), {"a": [np.ones(1)]})]]]]]]]],
    "deeper than structures": lambda: nested_list(300),
    "many tensors": lambda: [torch.full((2,), float(i)) for i in range(3000)],
}


def nested_list(depth: int) -> Any:
    made: Any = torch.ones(2)
    for _ in range(depth):
        made = [made]
    return made


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_a_batch_arrives_as_through_pytorchs_queue(road: Road, make: Any) -> None:
    batch = make()
    theirs = queued(make())
    for _ in range(2):
        check_same(road.send(batch), theirs)


@pytest.mark.parametrize("make", BATCHES.values(), ids=BATCHES)
def test_successive_batches_are_distinguished(road: Road, make: Any) -> None:
    other = [(torch.ones(2), np.ones(2), "a")]
    check_same(road.send(other), other)
    check_same(road.send(make()), queued(make()))
    check_same(road.send(other), other)


def test_the_batch_of_a_thread_arrives_unchanged() -> None:
    with wire(is_thread=True) as made:
        road = Road(made)
        for make in BATCHES.values():
            batch = make()
            ours = road.send(batch)
            assert type(ours) is type(batch)
        leaf = torch.ones(2, requires_grad=True) * 2
        assert road.send([leaf])[0] is leaf


def test_batches_do_not_share_memory_with_what_they_were_made_of(road: Road) -> None:
    batch = (torch.zeros(3), np.zeros(3), torch.zeros(2, 3).t(), Record(torch.zeros(3)))
    ours = road.send(batch)
    for part in (ours[0], ours[1], ours[2], ours[3].x):
        part += 1
    assert not any(float(part.sum()) for part in (*batch[:3], batch[3].x))


def test_a_view_is_sent_without_its_larger_storage(road: Road) -> None:
    whole = torch.arange(1_000_000.0).reshape(1000, 1000)
    batch = [whole[5:8].t(), whole[:, 3], whole[::100, ::100]]
    ours = road.send(batch)
    for one, other in zip(ours, batch, strict=True):
        assert torch.equal(one, other)
        assert one.untyped_storage().nbytes() <= 3 * 4000
    assert ours[0].stride() == torch.empty(3, 1000).t().stride()


@pytest.mark.parametrize("where", ["alone", "within"])
def test_a_tensor_that_is_no_leaf_is_refused_in_pytorchs_words(road: Road, where: str) -> None:
    value = torch.ones(2, requires_grad=True) * 2
    batch = value if where == "alone" else {"x": Record(value)}
    words = "Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd"
    with pytest.raises(RuntimeError, match=words):
        queued(batch)
    with pytest.raises(RuntimeError, match=words):
        road.send(batch)
    check_same(road.send(torch.ones(1)), torch.ones(1))
    assert road.wire.arena.stats()["writing_slots"] == 0


def test_a_leaf_with_hooks_is_sent_with_pytorchs_warning(road: Road) -> None:
    value = torch.ones(2, requires_grad=True)
    value.register_hook(abs)
    with pytest.warns(UserWarning, match="backward hook .* will not be serialized"):
        check_same(road.send(value), torch.ones(2, requires_grad=True))


@pytest.mark.parametrize("kind", ["conj", "imag"])
def test_lazily_changed_tensors_keep_the_values_that_pytorch_loses(road: Road, kind: str) -> None:
    value = torch.tensor([1 + 2j, 3 - 1j]).conj()
    value = value if kind == "conj" else value.imag
    assert not torch.equal(queued(value), value)
    assert torch.equal(road.send(value), value)


def test_quantized_tensors_keep_the_scales_that_pytorch_loses(road: Road) -> None:
    values = torch.arange(4.0).reshape(2, 2)
    one = torch.quantize_per_tensor(values, 0.5, 3, torch.quint8)
    scales, zeros = torch.tensor([0.5, 1.0]), torch.tensor([0, 1])
    other = torch.quantize_per_channel(values, scales, zeros, 0, torch.qint8)
    with pytest.raises(RuntimeError):
        queued(one).dequantize()
    ours = road.send([one, other])
    assert torch.equal(ours[0], one)
    assert (ours[0].q_scale(), ours[0].q_zero_point()) == (0.5, 3)
    assert torch.equal(ours[1].dequantize(), other.dequantize())


def test_a_jagged_tensor_arrives_with_its_parts(road: Road) -> None:
    parts = [torch.ones(2), torch.ones(3)]
    value = torch.nested.nested_tensor(parts, layout=torch.jagged)
    ours = road.send(value)
    assert ours.layout is torch.jagged
    assert all(map(torch.equal, ours.unbind(), parts))


def test_a_generator_arrives_with_its_state(road: Road) -> None:
    generator = torch.Generator().manual_seed(3)
    generator_state = generator.get_state()
    assert torch.equal(road.send([generator])[0].get_state(), generator_state)


def test_every_byte_of_a_large_object_arrives(road: Road) -> None:
    graph = Graph(x=torch.rand(300_000), y=np.arange(300_000), z="z" * 1_000_000)
    ours = road.send(graph)
    assert bytes_of(ours.x) == bytes_of(graph.x)
    assert np.array_equal(ours.y, graph.y)
    assert ours.z == graph.z


def test_connections_arrive_as_in_pytorch(road: Road) -> None:
    one, other = multiprocessing.Pipe()
    left, right = socket.socketpair()
    try:
        ours = road.send([torch.ones(1), one, left])
        with ours[1], ours[2]:
            other.send("hello")
            assert ours[1].recv() == "hello"
            right.send(b"x")
            assert ours[2].recv(1) == b"x"
    finally:
        resource_sharer.stop()
        for each in (one, other, left, right):
            each.close()


@pytest.mark.parametrize("value", [lambda: 3, threading.Lock(), (i for i in ())])
def test_what_cannot_be_pickled_is_an_error_that_names_its_place(road: Road, value: Any) -> None:
    with pytest.raises(DatasetError, match=r"field \['b'\]\[1\] of the batch .* cannot be pickled"):
        road.send({"a": torch.ones(1), "b": [torch.ones(2), value]})
    check_same(road.send(torch.ones(1)), torch.ones(1))


def test_an_object_that_cannot_be_unpickled_is_an_error_when_it_is_opened(road: Road) -> None:
    class Local:
        def __reduce__(self) -> Any:
            return int, ("no number",)

    with pytest.raises(ValueError, match="no number"):
        road.send([torch.ones(1), Local()])
    check_same(road.send(torch.ones(1)), torch.ones(1))


@pytest.mark.parametrize("workers", [0, 1])
def test_masks_are_dropped_as_pytorch_drops_them_and_refused_elsewhere(workers: int) -> None:
    """In silence: a program may rely on it. The engine's own face refuses them."""
    import reader.compat.torch

    samples = [np.ma.masked_array([1.0, 2.0], mask=[0, 1]) for _ in range(2)]
    found = []
    for kind in (torch.utils.data.DataLoader, reader.compat.torch.DataLoader):
        (batch,) = kind(samples, batch_size=2, num_workers=workers)  # type: ignore[arg-type]
        found.append((type(batch), batch.tolist()))
        (first, _) = kind(samples, batch_size=None, num_workers=workers)  # type: ignore[arg-type]
        found.append((type(first), first.mask.tolist()))
    assert found == [(torch.Tensor, [[1.0, 2.0]] * 2), (np.ma.MaskedArray, [False, True])] * 2
    with pytest.raises(reader.CollateError, match="its mask would be lost"):
        list(reader.DataLoader(samples, batch_size=2, num_workers=workers))


def test_tensors_of_workers_lie_in_memory_that_torch_does_not_know_as_shared() -> None:
    """They lie in the arena, which torch's own `is_shared` does not look for."""
    import reader.compat.torch

    samples = [torch.ones(3) for _ in range(4)]
    (theirs,) = torch.utils.data.DataLoader(samples, batch_size=4, num_workers=1)
    assert theirs.is_shared()
    with reader.compat.torch.DataLoader(samples, batch_size=4, num_workers=1) as loader:
        (ours,) = loader
        assert not ours.is_shared()
        assert ours.share_memory_().is_shared()  # a copy, as for any tensor that is not shared
        assert torch.equal(ours, theirs)
