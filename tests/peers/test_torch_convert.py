"""Values of the torch face, end to end: without batching, by default, and by a collate_fn."""

from __future__ import annotations

import collections
import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch.utils.data import IterableDataset, default_convert

from reader import TableRows
from reader.compat.torch import DataLoader
from tests.datasets import Point
from tests.peers.torch_values import check_same, queued


@dataclasses.dataclass
class Record:
    x: Any


SAMPLES: list[Any] = [
    0,
    1.5,
    True,
    "a",
    b"a",
    None,
    1j,
    np.arange(3),
    np.array(2.0, np.float32),
    np.float16(1),
    np.bool_(True),
    np.str_("a"),
    np.array(["a", "b"]),
    np.array([None], object),
    torch.ones(2),
    torch.ones(2, 3).t(),
    torch.ones(2, requires_grad=True),
    (1, np.ones(2)),
    [1, np.ones(2), ("a", np.zeros(1))],
    [],
    (),
    {},
    {"a": np.ones(2), 3: [np.int64(3)]},
    collections.OrderedDict(b=np.ones(1), a="x"),
    collections.defaultdict(list, a=np.ones(1)),
    Point(np.ones(2), "a"),
    Record(np.ones(2)),
    range(3),
    {1, 2},
]


class Streamed(IterableDataset[Any]):
    def __iter__(self) -> Iterator[Any]:
        return iter(SAMPLES)


class Refused:
    """A value that default_convert hands to torch.as_tensor, which refuses it."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return [np.datetime64("2020-01-01"), np.ones(2)][index]


@pytest.mark.parametrize("dataset", [SAMPLES, Streamed()], ids=["map", "stream"])
def test_samples_without_batching_are_those_of_default_convert(dataset: Any) -> None:
    found = list(DataLoader(dataset, batch_size=None, num_workers=1))
    assert len(found) == len(SAMPLES)
    for ours, sample in zip(found, SAMPLES, strict=True):
        check_same(ours, queued(default_convert(copy.deepcopy(sample))))


def test_what_default_convert_refuses_is_refused_in_its_words() -> None:
    batches = iter(DataLoader(Refused(), batch_size=None, num_workers=1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"can't convert np\.ndarray of type numpy\.datetime64"):
        next(batches)
    check_same(next(batches), torch.ones(2, dtype=torch.float64))


class Mixed:
    """Each batch of four has another form."""

    forms: tuple[Any, ...] = (
        lambda i: (torch.full((2,), float(i)), i),
        lambda i: {"a": np.ones(2, np.uint8), "b": str(i)},
        lambda i: str(i),
        lambda i: [i, float(i)] if i % 2 else [float(i), i],
        lambda i: Point(i, (str(i), torch.ones(2, dtype=torch.bfloat16))),
        lambda i: collections.OrderedDict(b=i, a=np.ones(1)),
        lambda i: torch.ones(i % 4),
    )

    def __len__(self) -> int:
        return 4 * len(self.forms)

    def __getitem__(self, index: int) -> Any:
        return self.forms[index // 4](index)


@pytest.mark.parametrize("worker_type", ["process", "thread"])
def test_default_batches_are_those_of_pytorch(worker_type: str) -> None:
    theirs = iter(torch.utils.data.DataLoader(Mixed(), 4))  # type: ignore[arg-type, var-annotated]
    ours = iter(DataLoader(Mixed(), 4, num_workers=1, worker_type=worker_type))  # type: ignore[arg-type]
    for _ in Mixed.forms[:-1]:
        check_same(next(ours), next(theirs))
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(theirs)
    with pytest.raises(RuntimeError, match="stack expects each tensor to be equal size"):
        next(ours)
    with pytest.raises(StopIteration):
        next(ours)


def stored(samples: list[Any]) -> Any:
    """A collate_fn whose results have little in common."""
    first = samples[0]
    value = torch.full((2, 3), float(first))
    return [
        (value, value.numpy().copy(), first, None, "a"),
        Record(value.t()),
        value[0].requires_grad_(),
        [],
        (value.requires_grad_() * 2,),
        {"x": np.float32(first), "y": [np.full(3000, first)]},
        torch.nn.Parameter(value),
    ][first % 7]


def test_what_a_collate_fn_returns_is_what_pytorch_delivers() -> None:
    loader = DataLoader(range(14), 1, num_workers=2, collate_fn=stored)  # type: ignore[arg-type]
    batches = iter(loader)
    for number in range(14):
        if number % 7 == 4:
            words = "Caught RuntimeError in DataLoader worker process(.|\n)*Cowardly refusing"
            with pytest.raises(RuntimeError, match=words):
                next(batches)
            continue
        check_same(next(batches), queued(stored([number])))
    with pytest.raises(StopIteration):
        next(batches)


def test_rules_reach_workers_that_are_spawned() -> None:
    loader = DataLoader(SAMPLES[17:18] * 4, 2, num_workers=1, multiprocessing_context="spawn")
    wanted = [torch.tensor([1, 1]), torch.ones(2, 2, dtype=torch.float64)]
    check_same(list(loader), [wanted, wanted])


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 1, "worker_type": "thread"}]
)
@pytest.mark.parametrize("name", ["bfloat16", "float8_e4m3fn"])
def test_arrays_of_ml_dtypes_become_tensors(
    batch_size: int | None, options: dict[str, Any], name: str
) -> None:
    kind = np.dtype(getattr(ml_dtypes, name))
    samples = [
        {"x": np.array([[i, 0.5]], kind), "y": (Point(np.full(3, i, kind), "a"), i)}
        for i in range(4)
    ]
    batches = list(DataLoader(samples, batch_size=batch_size, **options))  # type: ignore[arg-type]
    assert len(batches) == (2 if batch_size else 4)
    expected = torch.tensor([[1, 0.5]], dtype=getattr(torch, name))
    found = batches[0]["x"][1] if batch_size else batches[1]["x"]
    assert found.dtype == expected.dtype
    assert found.float().tolist() == expected.float().tolist()
    assert batches[0]["y"][0].x.dtype == expected.dtype


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize(
    "options", [{}, {"num_workers": 1}, {"num_workers": 1, "worker_type": "thread"}]
)
def test_numbers_of_uint64_become_tensors(batch_size: int | None, options: dict[str, Any]) -> None:
    numbers = [0, 1 << 63, (1 << 64) - 1, 3]
    alone: list[Any] = list(map(np.uint64, numbers))
    for samples in (alone, [(each, "a") for each in alone]):
        found = list(DataLoader(samples, batch_size=batch_size, **options))
        first = [each if samples is alone else each[0] for each in found]
        assert {each.dtype for each in first} == {torch.uint64}
        assert [number for each in first for number in each.reshape(-1).tolist()] == numbers


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_column_of_uint64_becomes_a_tensor(num_workers: int) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    table = pyarrow.table({"x": pyarrow.array([1, 1 << 63], pyarrow.uint64()), "name": ["a", "b"]})
    for columns in (["x"], None):
        rows = TableRows(table, columns)
        (batch,) = DataLoader(rows, batch_size=2, num_workers=num_workers)
        assert batch["x"].dtype == torch.uint64
        assert batch["x"].tolist() == [1, 1 << 63]


def test_what_pytorch_cannot_convert_raises_its_error() -> None:
    samples = [(np.zeros(1, ml_dtypes.bfloat16), np.zeros(2, "datetime64[s]"))] * 2
    with pytest.raises(TypeError, match=r"default_collate: batch must contain|can.t convert"):
        list(DataLoader(samples, batch_size=2))  # type: ignore[arg-type]
