"""Batches made by rule: as the peer collates them, by processes, threads and without workers.

Imports pytest, hypothesis, torch and paddle. A key names a batch and a row of it, so that a worker
makes the sample that the test expects from the key alone.
"""

from __future__ import annotations

import collections
import random
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import paddle
import pytest
import torch
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from paddle.io.dataloader.collate import default_collate_fn
from torch.utils.data import default_collate

import reader
import reader.compat.paddle
import reader.compat.torch

pytestmark = [pytest.mark.peer, pytest.mark.slow]

ROWS = 1 << 20  # keys of one batch
Pair = collections.namedtuple("Pair", "left right")
KINDS = ["f4", "i8", "u1", "?", "c8", "f2", "i2"]
ODD_KINDS = ["S3", "S0", "U2", "M8[s]", "V5", ">i4", ">f8", [("a", "i4"), ("b", "S0")], "S5000"]
TENSORS = [torch.float32, torch.int64, torch.bool, torch.bfloat16, torch.complex64, torch.uint8]
Make = Callable[[int], Any]


def _shape(rule: random.Random, most: int) -> tuple[int, ...]:
    """Return extents: few and small, or many of 1, or with zeros beside which any may be large."""
    way = rule.randrange(6)
    if way == 0:
        return (1,) * rule.randrange(most)
    shape = [rule.randrange(4) for _ in range(rule.randrange(4))]
    if way == 1:
        shape.insert(rule.randrange(len(shape) + 1), 0)
    if 0 in shape and rule.random() < 0.5:
        shape.insert(rule.randrange(len(shape) + 1), 1 << rule.randrange(40))
    return tuple(shape)


def _laid_out(rule: random.Random, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return the array, or one of the same form with other strides."""
    way = rule.randrange(4)
    if way == 0 and array.ndim and array.size < 10_000:
        return np.concatenate([array, array])[::2][::-1][: array.shape[0]]
    return array.T.copy().T if way == 1 else array


def _array(rule: random.Random, kinds: list[Any], most: int) -> Make:
    kind, shape = np.dtype(rule.choice(kinds)), _shape(rule, most)
    way, count = rule.randrange(1 << 30), int(np.prod(shape, dtype=object))

    def make(row: int) -> Any:
        numbers = np.arange(count) * 7 + row
        if kind.names is None and kind.kind not in "SUV":
            array = (numbers % 2 if kind.kind == "b" else numbers % 100).astype(kind)
        else:
            array = np.zeros(count, kind)
            if kind.kind in "SU" and kind.itemsize:
                array[:] = str(row)
        array = array.reshape(shape)
        return _laid_out(random.Random(way), array)

    return make


def _tensor(rule: random.Random, most: int) -> Make:
    kind, shape = rule.choice(TENSORS), _shape(rule, most)
    count, is_turned = int(np.prod(shape, dtype=object)), rule.random() < 0.3

    def make(row: int) -> Any:
        tensor = ((torch.arange(count) * 7 + row) % 100).to(kind).reshape(shape)
        return tensor.transpose(0, -1) if is_turned and len(shape) > 1 else tensor

    return make


def _leaf(rule: random.Random, face: str) -> Make:
    way = rule.randrange(10)
    if way == 0:
        return lambda row: f"text {row}"
    if way == 1:
        return lambda row: row * 0.5
    if way == 2:
        return lambda row: row
    if way == 3:
        return lambda row: np.float32(row)
    if way == 4 and face == "numpy":
        return lambda row: b"x" * (row * 1000)
    if way in (5, 6) and face == "torch":
        return _tensor(rule, 70)
    if face == "numpy":
        return _array(rule, KINDS + ODD_KINDS, 63)
    # paddle's tensors have at most 9 dimensions, of which the rows are one
    return _array(rule, KINDS[:4], 60 if face == "torch" else 8)


def _form(rule: random.Random, face: str, depth: int = 0) -> Make:
    """Return what makes a row of a batch whose form the rule draws."""
    way = rule.randrange(6) if depth < 3 else 5
    if way > 2 and depth:
        return _leaf(rule, face)
    parts = [_form(rule, face, depth + 1) for _ in range(rule.choice([1, 1, 2, 3, 12]))]
    if way == 0:
        return lambda row: {f"key {place}": part(row) for place, part in enumerate(parts)}
    if way == 1:
        return lambda row: [part(row) for part in parts]
    if way == 2 and len(parts) == 2:
        return lambda row: Pair(parts[0](row), parts[1](row))
    if way == 3:
        return parts[0]
    return lambda row: tuple(part(row) for part in parts)


class Ruled:
    """A dataset of all keys."""

    def __init__(self, face: str) -> None:
        self.face = face

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, key: int) -> Any:
        return _form(random.Random(key // ROWS), self.face)(key % ROWS)


class Many:
    """A dataset whose samples have no bytes, or one: for batches of many rows."""

    def __init__(self, face: str) -> None:
        self.face = face

    def __len__(self) -> int:
        return 1 << 62

    def __getitem__(self, key: int) -> Any:
        way, row = (key // ROWS) % 4, key % ROWS
        if way == 3:
            return row
        if self.face == "torch" and way == 2:
            return torch.empty(2, 0)
        return np.empty([(0,), (0, 5), (1, 0)][way], "f4")


class Named:
    """A batch sampler that yields given keys."""

    def __init__(self) -> None:
        self.batches: list[list[int]] = []

    def __iter__(self) -> Any:
        return iter(self.batches)

    def __len__(self) -> int:
        return len(self.batches)


def _stacked(samples: list[Any]) -> Any:
    """Return the batches of the engine's own loader."""
    first = samples[0]
    if isinstance(first, dict):
        return {key: _stacked([each[key] for each in samples]) for key in first}
    if isinstance(first, Pair):
        return Pair(*map(_stacked, zip(*samples, strict=True)))
    if isinstance(first, (list, tuple)):
        return type(first)(map(_stacked, zip(*samples, strict=True)))
    if isinstance(first, (str, bytes)):
        return list(samples)
    made = np.stack([np.asarray(each) for each in samples])
    return made if made.dtype.isnative else made.astype(made.dtype.newbyteorder("="))


def _told(batch: Any) -> Any:
    """Return containers, types, shapes and bytes of a batch, to be compared."""
    if isinstance(batch, dict):
        return {key: _told(each) for key, each in batch.items()}
    if isinstance(batch, (list, tuple)):
        # texts stand in a tuple where paddle's own function found them in one, and here in a list
        is_texts = all(isinstance(each, str) for each in batch)
        return "texts" if is_texts else type(batch).__name__, [_told(each) for each in batch]
    if isinstance(batch, torch.Tensor):
        flat = batch.contiguous().reshape(-1)
        return (
            "tensor",
            str(batch.dtype),
            tuple(batch.shape),
            bytes(flat.view(torch.uint8).tolist()),
        )
    if isinstance(batch, paddle.Tensor):
        # an extent of 0 beside others: paddle's own tensors know only that they are empty
        made = batch.numpy() if batch.size else np.empty(batch.shape, batch.numpy().dtype)
        return _told(made)
    if isinstance(batch, np.ndarray):
        return "array", batch.dtype.str, batch.dtype.descr, batch.shape, batch.tobytes()
    return batch


def _first(samples: list[Any]) -> Any:
    return samples[0]


def _ready(face: str, value: Any) -> Any:
    """Return the batch of a face whose collate_fn returned a value."""
    if isinstance(value, dict):
        return {key: _ready(face, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        parts = [_ready(face, each) for each in value]
        if face == "paddle":  # as Paddle's own loader
            return parts
        return Pair(*parts) if isinstance(value, Pair) else type(value)(parts)
    if face == "numpy" and isinstance(value, np.ndarray):
        return value.astype(value.dtype.newbyteorder("="))
    return value


COLLATED = {"numpy": _stacked, "torch": default_collate, "paddle": default_collate_fn}
LOADERS = {
    "numpy": reader.DataLoader,
    "torch": reader.compat.torch.DataLoader,
    "paddle": reader.compat.paddle.DataLoader,
}
CELLS: dict[str, dict[str, Any]] = {
    "0": {"num_workers": 0},
    "threads": {"num_workers": 2, "worker_type": "thread", "persistent_workers": True},
    "processes": {"num_workers": 2, "persistent_workers": True},
}

PAIRS = [  # Paddle's face has no worker_type
    (face, cell) for face in LOADERS for cell in CELLS if (face, cell) != ("paddle", "threads")
]


def _loader(face: str, cell: str, named: Named, dataset: Any, collate_fn: Any) -> Any:
    options = dict(CELLS[cell])
    if face == "paddle":
        options["return_list"] = True
    return LOADERS[face](dataset, batch_sampler=named, collate_fn=collate_fn, **options)


def _outcome(make: Callable[[], Any]) -> Any:
    """Return the batch, or the type of the exception in its place."""
    try:
        return _told(make())
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        return "raised", type(error)


def _is_same(found: Any, wanted: Any) -> bool:
    if isinstance(wanted, tuple) and wanted and wanted[0] == "raised":
        return isinstance(found, tuple) and found[0] == "raised" and issubclass(found[1], Exception)
    return bool(found == wanted)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("is_collated", [True, False], ids=["stacked", "ready-made"])
@pytest.mark.parametrize(("face", "cell"), PAIRS)
@pytest.mark.timeout(120)
def test_any_batch_is_the_peers(face: str, cell: str, is_collated: bool) -> None:
    named, dataset = Named(), Ruled(face)
    loader = _loader(face, cell, named, dataset, None if is_collated else _first)

    def collated(samples: list[Any]) -> Any:
        return COLLATED[face](samples) if is_collated else _ready(face, samples[0])

    @settings(max_examples=60, suppress_health_check=list(HealthCheck))
    @given(st.lists(st.tuples(st.integers(0, 1 << 40), st.integers(1, 5)), min_size=1, max_size=4))
    def run(drawn: list[tuple[int, int]]) -> None:
        named.batches = [[rule * ROWS + row for row in range(count)] for rule, count in drawn]
        wanted = []
        for keys in named.batches:
            samples = [dataset[key] for key in keys]
            wanted.append(_outcome(lambda samples=samples: collated(samples)))
        batches = iter(loader)
        for keys, its in zip(named.batches, wanted, strict=True):
            found = _outcome(lambda: next(batches))
            assert _is_same(found, its), f"keys {keys}: {found} is not {its}"
        assert next(batches, None) is None

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch's, of arrays that are not writable
        run()
    loader.close()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("face", "cell"), PAIRS)
def test_many_rows_of_nothing_are_the_peers(face: str, cell: str) -> None:
    named, dataset = Named(), Many(face)
    loader = _loader(face, cell, named, dataset, None)

    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 3), st.integers(1, 60_000))
    @example(0, 40_960)
    @example(1, 50_000)
    @example(2, 65_536)
    def run(way: int, count: int) -> None:
        named.batches = [[way * ROWS + row for row in range(count)]]
        (found,) = loader
        assert _told(found) == _told(COLLATED[face]([dataset[key] for key in named.batches[0]]))

    run()
    loader.close()
