"""Batches at the legal extremes: none is mistaken for damage, and impossible ones fail early.

Imports pytest and the harness. What is compared with PyTorch and Paddle lies in tests/peers.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import reader
from reader._core.batch.exchange import no_array
from reader._core.collate.rows import Rows
from reader._core.wire.channel import TaskKind
from reader.collate import Stack
from reader.errors import ArenaFull, CollateError, ConfigError
from tests.contract.conftest import Cell
from tests.datasets import Calls
from tests.versions import MOST_DIMENSIONS
from tests.wire import wire

MOST = 64 if int(np.__version__.split(".")[0]) > 1 else 32  # dimensions of an array
NO_ARRAY = r"cannot be given as an array: NumPy has at most"


def _batches(cell: Cell, dataset: Any, batch_size: int, **options: Any) -> list[Any]:
    with reader.DataLoader(dataset, batch_size=batch_size, **cell, **options) as loader:
        return list(loader)


def _nothing(_: Any) -> np.ndarray[Any, Any]:
    return np.empty(0)


def _pad_to(nbytes: int) -> Callable[[Any], Any]:
    """A collate function whose last field has no bytes and lies at the end of its slot."""
    return lambda _: [np.ones(nbytes - 128, np.uint8), np.empty((0, 7), np.float64)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("size", [40_960, 50_000])
def test_many_samples_without_bytes_are_a_batch(each_cell: Cell, size: int) -> None:
    if each_cell.get("start_method") in ("spawn", "forkserver"):
        found = _batches(each_cell, np.zeros((2 * size, 0)), size)
    else:
        found = _batches(each_cell, Calls(_nothing, 2 * size), size)
    assert [batch.shape for batch in found] == [(size, 0)] * 2


def test_rows_without_bytes_are_gathered(each_cell: Cell) -> None:
    found = _batches(each_cell, np.zeros((100_000, 0)), 50_000)
    assert [batch.shape for batch in found] == [(50_000, 0)] * 2


def test_rows_without_bytes_are_collated(cell: Cell) -> None:
    found = _batches(cell, Calls(_nothing, 40_960), 40_960, collate_fn=Stack())
    assert found[0].shape == (40_960, 0)
    found = _batches(cell, range(4), 2, collate_fn=lambda _: np.zeros((1 << 40, 0, 5), np.int8))
    assert [batch.shape for batch in found] == [(1 << 40, 0, 5)] * 2


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("kind", "shape"),
    [
        ("V0", (100_000,)),
        ("V0", (1 << 40,)),
        ([], (3,)),
        ([("empty", "f8", (0, 5))], (3,)),
        ("S100000", (2,)),
        ("M8[ns]", (100_000, 0)),
        (">i4", (5,)),
        ("f8", ()),
        ("f8", (0, 1 << 40)),
        ("u1", (0,)),
        ("f8", (1,) * (MOST - 1)),
    ],
)
def test_forms_at_the_ends_are_those_of_numpy(cell: Cell, kind: Any, shape: Any) -> None:
    sample = np.zeros(shape, kind)
    (found,) = _batches(cell, Calls(lambda _: sample, 3), 3)
    assert found.shape == (3, *shape)
    assert found.dtype == sample.dtype.newbyteorder("=")


def test_elements_without_bytes_beside_others_are_those_of_numpy(cell: Cell) -> None:
    sample = np.zeros(3, "S0,i4,U0")
    (found,) = _batches(cell, Calls(lambda i: (sample["f0"], sample["f1"] + i, sample["f2"]), 3), 3)
    assert [field.dtype.str for field in found] == ["|S0", "<i4", "<U0"]
    assert found[1].tolist() == [[0] * 3, [1] * 3, [2] * 3]


@pytest.mark.parametrize("nbytes", [4096, 8192, 1 << 20])
def test_field_without_bytes_at_the_end_of_its_slot_is_a_field(cell: Cell, nbytes: int) -> None:
    found = _batches(cell, range(4), 2, collate_fn=_pad_to(nbytes))
    for ones, nothing in found:
        assert ones.all()
        assert nothing.shape == (0, 7)


def test_sample_of_most_dimensions_is_refused_by_name(cell: Cell) -> None:
    sample = np.ones((1,) * MOST)
    with pytest.raises(CollateError, match=f"a sample has {MOST} dimensions, and a batch of it"):
        _batches(cell, Calls(lambda _: sample, 4), 2)
    with pytest.raises(CollateError, match=f"it has {MOST} dimensions, and a field of it would"):
        _batches(cell, Calls(lambda _: sample, 4), 2, collate_fn=Stack())
    found = _batches(cell, range(4), 2, collate_fn=lambda _: sample)
    assert [batch.shape for batch in found] == [sample.shape] * 2


def test_batch_that_no_array_can_be_is_refused(cell: Cell) -> None:
    sample = np.broadcast_to(np.zeros(1), (1 << 59,))
    with pytest.raises(CollateError, match=NO_ARRAY):
        _batches(cell, Calls(lambda _: sample, 4), 4)
    with pytest.raises(CollateError, match=NO_ARRAY):
        _batches(cell, Calls(lambda _: sample, 4), 4, collate_fn=Stack())
    nothing = np.empty((0, 1 << 59), np.int8)
    with pytest.raises(CollateError, match=NO_ARRAY):
        _batches(cell, Calls(lambda _: nothing, 16), 16)


def test_batch_beyond_all_memory_is_one_without_memory(cell: Cell) -> None:
    sample = np.broadcast_to(np.zeros(1), (1 << 45,))
    with pytest.raises(MemoryError, match=r"1,125,899,906,842,\d+ bytes|no memory for batch 0"):
        _batches(cell, Calls(lambda _: sample, 4), 4)
    many = [np.broadcast_to(np.zeros(1), (1 << 59,))] * 5  # 2**64 bytes and more
    with pytest.raises(MemoryError):
        _batches(cell, range(4), 4, collate_fn=lambda _: many)


def test_heap_refuses_more_than_its_arena_reserves() -> None:
    with wire() as road, pytest.raises(ArenaFull, match="bytes of address space are reserved"):
        road.write(np.broadcast_to(np.zeros(1), (1 << 55,)))


def test_tensor_that_no_array_can_be_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="it spans more than 9223372036854775807 bytes"):
        reader.LoDTensor(np.empty((0, 1 << 40), np.int8)).reshape((1 << 40, 0, 1 << 40))
    assert "with 70 dimensions cannot be" in no_array("tensor", "float32", (1,) * 70)


def test_rows_that_no_array_can_be_are_refused() -> None:
    with pytest.raises(CollateError, match=NO_ARRAY):
        Rows.stacked([np.broadcast_to(np.zeros(1), (1 << 59,))] * 4)


def test_batch_of_10_000_leaves_is_whole(cell: Cell) -> None:
    sample = {f"leaf {place}": np.float32(place) for place in range(10_000)}
    (found,) = _batches(cell, Calls(lambda _: sample, 2), 2)
    assert list(found) == list(sample)
    assert found["leaf 9999"].tolist() == [9999, 9999]


@pytest.mark.slow
def test_field_table_of_more_than_64_mib_is_read() -> None:
    shape = (1,) * (MOST_DIMENSIONS - 4)
    count = 8_400_000 // len(shape)  # of 8 bytes for each extent
    fields = [np.full(shape, place % 100, np.int8) for place in range(count)]
    with wire() as road:
        found = road.write(fields).numpy_fields()
    assert len(found) == count
    assert [int(each.item()) for each in found[::7]] == [
        place % 100 for place in range(0, count, 7)
    ]


def test_names_of_a_mebibyte_and_the_greatest_depth_arrive(cell: Cell) -> None:
    sample: Any = {"k" * (1 << 20): np.zeros(2), "j" * (1 << 20): "text"}
    for _ in range(99):
        sample = {"a": sample}
    (found,) = _batches(cell, Calls(lambda _: sample, 2), 2)
    for _ in range(99):
        found = found["a"]
    assert list(found) == ["k" * (1 << 20), "j" * (1 << 20)]
    with pytest.raises(CollateError, match="nested deeper than 100 levels"):
        _batches(cell, Calls(lambda _: {"a": {"a": sample}}, 2), 2)


def test_each_batch_may_have_a_form_of_its_own(cell: Cell) -> None:
    found = _batches(cell, Calls(lambda index: {str(index): np.full(index % 7, index)}, 200), 1)
    assert [list(batch) for batch in found] == [[str(index)] for index in range(200)]
    assert all((batch[str(index)] == index).all() for index, batch in enumerate(found))


def test_large_objects_arrive_beside_and_without_arrays(cell: Cell) -> None:
    text = "x" * (20 << 20)
    found = _batches(cell, Calls(lambda index: (index, text), 4), 2)
    assert [batch[0].tolist() for batch in found] == [[0, 1], [2, 3]]
    assert all(each == text for batch in found for each in batch[1])
    assert _batches(cell, Calls(lambda _: text, 2), 2) == [[text, text]]


@pytest.mark.parametrize("batch", [None, [], {}, (), [[], {}]], ids=repr)
def test_batch_without_fields_is_a_batch(cell: Cell, batch: Any) -> None:
    assert _batches(cell, range(4), 2, collate_fn=lambda _: batch) == [batch] * 2


@pytest.mark.sampled(4)
@pytest.mark.slow
def test_task_of_10_000_000_indices_is_one_batch(cell: Cell) -> None:
    rows = np.arange(10_000_000, dtype=np.uint32)
    (found,) = _batches(cell, rows, 10_000_000, shuffle=True, seed=3)
    assert found.shape == (10_000_000,)
    assert (np.sort(found) == rows).all()


def _has_memory(nbytes: int) -> bool:
    with open("/proc/meminfo") as file:
        lines = dict(line.split(":") for line in file)
    return int(lines["MemAvailable"].split()[0]) * 1024 > nbytes


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.evidence
@pytest.mark.timeout(300)
@pytest.mark.parametrize("options", [{"worker_type": "thread"}, {}], ids=["thread", "process"])
def test_row_of_more_than_4_gib_is_a_row(options: Cell) -> None:
    if not _has_memory(14 << 30):
        pytest.skip("14 GiB of memory are not free")
    size = (4 << 30) + 4096
    row = np.frombuffer(bytearray(size), np.uint8)  # pages of zeros, until they are written
    row[-1] = 7
    with reader.DataLoader(
        Calls(lambda _: row, 1), batch_size=1, num_workers=1, **options
    ) as loader:
        (found,) = loader
    assert found.shape == (1, size)
    assert (found[0, 0], found[0, -1]) == (0, 7)


@pytest.mark.slow
@pytest.mark.alone
@pytest.mark.evidence
@pytest.mark.timeout(300)
def test_task_of_more_than_4_gib_is_a_task() -> None:
    if not _has_memory(14 << 30):
        pytest.skip("14 GiB of memory are not free")
    size = (4 << 30) + 8
    with wire() as road:
        assert road.feeder.dispatch(0, TaskKind.TASK_INDICES, bytes(size))
        road.channel.take_indices()
        kind, keys = road.channel.next_task()
        assert (kind, len(keys)) == (TaskKind.TASK_INDICES, size // 8)
        road.channel.write(os.getpid())
        assert road.feeder.take(5) is not None
        road.feeder.accept()
