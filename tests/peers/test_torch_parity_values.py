"""The values of a batch: PyTorch's collating and converting, and ours, type by type.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.utils.data as data
from torch.utils.data._utils.collate import default_collate_fn_map

import reader.compat.torch
from tests.datasets import Point
from tests.peers.torch_parity import check_same, describe

pytestmark = pytest.mark.peer
THEIRS = data.DataLoader
OURS = reader.compat.torch.DataLoader
WORKERS = pytest.mark.parametrize("workers", [0, 1])
DTYPES = [
    *(torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.complex64),
    *(torch.complex128, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    *(torch.bool, torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn),
    torch.float8_e5m2,
]


@dataclasses.dataclass
class Thing:
    """Nothing that PyTorch knows."""

    x: int


class Marked(dict[str, Any]):
    """A mapping of the user's, with an attribute."""

    def __init__(self, *args: Any, mark: str = "none") -> None:
        super().__init__(*args)
        self.mark = mark


class Row(list[Any]):
    """A list of the user's, with an attribute."""

    mark = "none"


class Frozen(collections.abc.Mapping[str, Any]):
    """A mapping that cannot be changed."""

    def __init__(self, items: dict[str, Any]) -> None:
        self.items_of = items

    def __getitem__(self, key: str) -> Any:
        return self.items_of[key]

    def __iter__(self) -> Any:
        return iter(self.items_of)

    def __len__(self) -> int:
        return len(self.items_of)


class Fussy(Frozen):
    """A mapping that cannot be made of a dict alone."""

    def __init__(self, items: dict[str, Any], more: int) -> None:
        super().__init__(items)


class Sequence(collections.abc.Sequence[Any]):
    """A sequence that is neither list nor tuple."""

    def __init__(self, items: list[Any]) -> None:
        self.own = list(items)

    def __getitem__(self, index: Any) -> Any:
        return self.own[index]

    def __len__(self) -> int:
        return len(self.own)


def marked(index: int) -> Marked:
    return Marked({"a": index, "b": float(index)}, mark=f"mark {index}")


def row(index: int) -> Row:
    made = Row([index, torch.tensor([index])])
    made.mark = f"mark {index}"
    return made


KINDS: dict[str, Callable[[int], Any]] = {
    **{
        str(dtype): lambda i, dtype=dtype: torch.tensor([i, i + 1, 1]).to(dtype) for dtype in DTYPES
    },
    "0-d": lambda i: torch.tensor(i * 1.5),
    "empty": lambda i: torch.zeros(0, 3),
    "strided": lambda i: torch.arange(12.0).reshape(3, 4).t() + i,
    "sliced": lambda i: torch.arange(20)[i::4],
    "expanded": lambda i: torch.tensor([i]).expand(4),
    "channels last": lambda i: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "leaf with grad": lambda i: torch.nn.Parameter(torch.tensor([float(i)])).detach(),
    "array": lambda i: np.full((2, 2), i, np.float32),
    "array, 0-d": lambda i: np.array(i),
    "array, bool": lambda i: np.array([True, i > 1]),
    "array, reversed": lambda i: np.arange(4)[::1] + i,
    "numpy float": lambda i: np.float32(i),
    "numpy int": lambda i: np.int16(i),
    "numpy bool": lambda i: np.bool_(i),
    "float": lambda i: i / 3,
    "int": lambda i: i,
    "big int": lambda i: 2**62 + i,
    "bool": lambda i: i > 1,
    "ints, then floats": lambda i: i if i == 0 else i + 0.5,
    "str": str,
    "bytes": lambda i: bytes([i]),
    "nan": lambda i: float("nan"),
    "tuple": lambda i: (i, float(i), str(i)),
    "list": lambda i: [i, [i, (i,)]],
    "namedtuple": lambda i: Point(i, {"a": torch.tensor([i])}),
    "dict": lambda i: {"x": torch.tensor([i]), "y": {"z": i}, 3: "c"},
    "ordered": lambda i: collections.OrderedDict([("b", i), ("a", i)]),
    "defaultdict": lambda i: collections.defaultdict(list, {"a": i}),
    "counter": lambda i: collections.Counter("ab"),
    "user dict": lambda i: collections.UserDict({"a": i}),
    "marked": marked,
    "frozen": lambda i: Frozen({"a": i}),
    "fussy": lambda i: Fussy({"a": i}, 2),
    "row": row,
    "deque": lambda i: collections.deque([i, i]),
    "range": lambda i: range(i, i + 2),
    "sequence": lambda i: Sequence([i, i]),
    "array.array": lambda i: __import__("array").array("i", [i, i]),
    "empty tuple": lambda i: (),
    "empty dict": lambda i: {},
    "deep": lambda i: {"a": [(i, {"b": Point(torch.ones(2), "s")})]},
    "mixed dtypes": lambda i: torch.ones(2, dtype=torch.int64 if i else torch.complex64),
    "extra keys later": lambda i: {"a": i} if i == 0 else {"a": i, "b": i},
}
NOT_COLLATED: dict[str, Callable[[int], Any]] = {
    "none": lambda i: None,
    "set": lambda i: {i},
    "object": lambda i: Thing(i),
    "text arrays": lambda i: np.array(["a", "b"]),
    "object arrays": lambda i: np.array([None, i]),
    "ragged tensors": lambda i: torch.ones(i + 1),
    "ragged lists": lambda i: [i] * (i + 1),
    "missing key": lambda i: {"a": i} if i != 1 else {"b": i},
    "sparse": lambda i: torch.eye(2).to_sparse(),
    "csr": lambda i: torch.eye(2).to_sparse_csr(),
    "nested": lambda i: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "number, then text": lambda i: i if i == 0 else "a",
    "tensor, then number": lambda i: torch.ones(()) if i == 0 else 1.0,
}


Kind = tuple[str, int]


class Made(data.Dataset[Any]):
    """Samples of many kinds, asked for by (kind, number)."""

    def __init__(self, kinds: dict[str, Callable[[int], Any]]) -> None:
        self.kinds = kinds

    def __getitem__(self, key: Kind) -> Any:
        kind, number = key
        return self.kinds[kind](number)


class Whole(Made):
    """The number of the sample and its text, whatever the kind is."""

    def __getitem__(self, key: Kind) -> Any:
        return key[0], key[1], str(key[1])


def each_kind(made: Any, kinds: Any, count: int = 1) -> dict[str, list[Any]]:
    """The batches of `count` steps of each kind, described, or the error of each."""
    batches = iter(made)
    found: dict[str, list[Any]] = {kind: [] for kind in kinds}
    for kind in kinds:
        for _ in range(count):
            try:
                found[kind].append(describe(next(batches)))
            except Exception as error:
                found[kind].append([type(error), str(error)])
    assert next(batches, None) is None
    return found


# PyTorch cannot stack the first, or loses its conjugation, and fails to send the second from a
# worker; ours come from workers as PyTorch's do without.
TORN = ("conjugate", "quantized")


def check_kind(told_of: Any, kind: str, workers: int) -> None:
    check_alike(told_of(THEIRS, 0 if kind in TORN else workers)[kind], told_of(OURS, workers)[kind])


def check_alike(theirs: list[Any], ours: list[Any]) -> None:
    """The same to the last bit, or refused alike."""
    for their, our in zip(theirs, ours, strict=True):
        if isinstance(their[0], type) and issubclass(their[0], Exception):
            assert our[0] is their[0], our[1]
            assert their[1].splitlines()[-1] in our[1]
        else:
            assert our == their


@functools.cache
def batches_of(loader: Any, workers: int) -> dict[str, list[Any]]:
    kinds = {**KINDS, **NOT_COLLATED}
    order = [[(kind, number) for number in range(3)] for kind in kinds]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = loader(Made(kinds), batch_sampler=order, num_workers=workers)
        return each_kind(made, kinds)


@functools.cache
def samples_of(loader: Any, workers: int) -> dict[str, list[Any]]:
    kinds = {**KINDS, **NOT_COLLATED}
    order = [(kind, number) for kind in kinds for number in range(2)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = loader(Made(kinds), batch_size=None, sampler=order, num_workers=workers)
        return each_kind(made, kinds, 2)


@WORKERS
@pytest.mark.parametrize("kind", KINDS)
def test_batches_of_every_kind_of_sample_are_the_same(kind: str, workers: int) -> None:
    check_kind(batches_of, kind, workers)


def test_mapping_that_cannot_be_pickled_is_the_same_without_workers() -> None:
    samples = [types.MappingProxyType({"a": number}) for number in range(5)]
    check_same(lambda loader: [list(loader(samples, 2)), list(loader(samples, None))])


@WORKERS
@pytest.mark.parametrize("kind", [*KINDS, *NOT_COLLATED])
def test_samples_without_batching_are_the_same(kind: str, workers: int) -> None:
    check_kind(samples_of, kind, workers)


TEXTS = {
    "none": "default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists",
    "ragged lists": "each element in list of batch should be of equal size",
    "sparse": "Batches of sparse tensors are not currently supported by the default collate_fn",
    "nested": "Batches of nested tensors are not currently supported by the default collate_fn",
}


@WORKERS
@pytest.mark.parametrize("kind", NOT_COLLATED)
def test_samples_that_cannot_be_collated_are_refused_the_same(kind: str, workers: int) -> None:
    [theirs], [ours] = batches_of(THEIRS, workers)[kind], batches_of(OURS, workers)[kind]
    assert ours[0] is theirs[0]
    assert TEXTS.get(kind, "") in theirs[1]
    assert theirs[1].splitlines()[-1] in ours[1]


class Cell:
    """A value that PyTorch collates if a rule is registered."""

    def __init__(self, value: int) -> None:
        self.value = value


def collate_cells(batch: list[Cell], *, collate_fn_map: Any = None) -> torch.Tensor:
    return torch.tensor([cell.value for cell in batch])


def collate_ints(batch: list[int], *, collate_fn_map: Any = None) -> list[int]:
    return [-value for value in batch]


@WORKERS
@pytest.mark.parametrize(
    ("kind", "function"), [(Cell, collate_cells), (int, collate_ints)], ids=["new", "known"]
)
def test_default_collate_fn_map_is_asked_the_same(
    kind: type, function: Any, workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(default_collate_fn_map, kind, function)
    samples = [(kind(number), 1.5) for number in range(5)]
    check_same(lambda loader: list(loader(samples, 3, num_workers=workers)))


RETURNED: dict[str, Callable[[list[Any]], Any]] = {
    "none": lambda samples: None,
    "samples": lambda samples: samples,
    "tuple": lambda samples: (samples[0], None, "x", {1, 2}),
    "views": lambda samples: [base := torch.arange(10), base[2:5], base[::2]],
    "same tensor twice": lambda samples: [same := torch.ones(3), same],
    "sparse": lambda samples: torch.eye(3).to_sparse(),
    "csr": lambda samples: torch.eye(3).to_sparse_csr(),
    "requires grad": lambda samples: torch.ones(2, requires_grad=True),
    "parameter": lambda samples: torch.nn.Parameter(torch.ones(2)),
    "strided": lambda samples: torch.arange(12.0).reshape(3, 4).t(),
    "numpy": lambda samples: [np.arange(3), np.float32(2.5), np.array(["a"])],
    "fortran": lambda samples: np.asfortranarray(np.ones((2, 3))),
    "dtype": lambda samples: [torch.float32, torch.Size([2, 3]), torch.device("cpu")],
    "packed": lambda samples: list(
        torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    ),
    "empty list": lambda samples: [],
    "channels last": lambda samples: torch.ones(2, 3, 4, 5).to(memory_format=torch.channels_last),
    "namedtuple": lambda samples: Point(torch.ones(2), None),
    "marked": lambda samples: marked(3),
}


def returned(samples: list[Any]) -> Any:
    return RETURNED[samples[0][0]](samples)


@functools.cache
def collated_by(loader: Any, workers: int) -> dict[str, list[Any]]:
    order = [[(kind, number) for number in range(3)] for kind in RETURNED]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = loader(Whole({}), batch_sampler=order, collate_fn=returned, num_workers=workers)
        return each_kind(made, RETURNED)


@WORKERS
@pytest.mark.parametrize("kind", RETURNED)
def test_what_collate_fn_returns_comes_the_same(kind: str, workers: int) -> None:
    check_kind(collated_by, kind, workers)


class Pinned:
    """An object that says how it is pinned."""

    def __init__(self, samples: list[Any]) -> None:
        self.samples = samples
        self.is_pinned = False

    def pin_memory(self) -> Pinned:
        self.is_pinned = True
        return self


@WORKERS
def test_pinning_without_an_accelerator_warns_and_pins_nothing_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader([1, 2, 3, 4], 2, pin_memory=True, collate_fn=Pinned, num_workers=workers)
        return [[batch.is_pinned, batch.samples] for batch in made]

    check_same(act)
