"""Shared lists in datasets: workers read the same memory, under any start method and loader."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import reader
from reader import DataLoader, Dataset, Subset, TensorDataset, get_worker_info, share

COUNT = 2000
NAMES = [f"folder/{i:04d}/{i}.jpg" for i in range(COUNT)]
WAYS = ["threads", "fork", "spawn", "forkserver"]


def chosen(way: str) -> dict[str, Any]:
    if way == "threads":
        return {"worker_type": "thread"}
    return {"start_method": way}


class Named(Dataset[Any]):
    """Samples come from shared objects, with the addresses of these."""

    def __init__(self) -> None:
        self.names = share(NAMES)
        self.numbers = share({name: i for i, name in enumerate(NAMES)})
        self.rows = share(np.arange(COUNT * 2).reshape(COUNT, 2))

    def __getitem__(self, index: int) -> Any:
        name = self.names[index]
        inodes = [os.fstat(s._memory._fd).st_ino for s in (self.names, self.numbers, self.rows)]
        return self.numbers[name], self.rows[index].copy(), np.array(inodes)

    def __len__(self) -> int:
        return len(self.names)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("way", WAYS)
def test_workers_read_the_memory_of_the_trainer(way: str) -> None:
    dataset = Named()
    with DataLoader(dataset, batch_size=100, num_workers=2, **chosen(way)) as loader:
        found = list(loader)
    assert np.concatenate([numbers for numbers, _, _ in found]).tolist() == list(range(COUNT))
    assert np.array_equal(np.concatenate([rows for _, rows, _ in found]), dataset.rows)
    inodes = np.unique(np.concatenate([inodes for _, _, inodes in found]), axis=0)
    assert inodes.tolist() == [dataset[0][2].tolist()]


@pytest.mark.peer
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.nightly)])
def test_workers_of_pytorchs_loader_read_it_too(method: str) -> None:
    from reader.compat.torch import DataLoader as TorchFace

    data = pytest.importorskip("torch").utils.data
    for kind in (data.DataLoader, TorchFace):
        loader = kind(Named(), 500, num_workers=1, multiprocessing_context=method)
        found = list(loader)
        assert [int(numbers[0]) for numbers, _, _ in found] == [0, 500, 1000, 1500]
        assert len({tuple(row) for _, _, inodes in found for row in inodes.tolist()}) == 1


class Read(Dataset[int]):
    """Reads a whole list, and returns how many kB of memory the trainer and worker take for it."""

    def __init__(self, names: Any) -> None:
        self.names = names

    def __getitem__(self, index: int) -> int:
        if get_worker_info() is None:
            return 0
        before = memory_of_both()
        assert all(self.names)
        return memory_of_both() - before

    def __len__(self) -> int:
        return 1


def memory_of_both() -> int:
    found = 0
    for pid in ("self", os.getppid()):
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        found += next(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return found


@pytest.mark.alone
def test_reading_a_shared_list_copies_no_memory() -> None:
    names = [NAMES[i % COUNT] * 4 + str(i) for i in range(200_000)]
    taken = {}
    for kind, held in (("list", names), ("shared", share(names))):
        assert all(held)  # pages count once a process has looked at them
        with DataLoader(Read(held), batch_size=None, num_workers=1, start_method="fork") as loader:
            taken[kind] = int(next(iter(loader)))
    assert taken["shared"] < 1000 < 10_000 < taken["list"], taken


def test_shared_arrays_are_gathered_and_shared_indices_chosen() -> None:
    rows = share(np.arange(40, dtype=np.float32).reshape(20, 2))
    for dataset in (rows, TensorDataset([rows])):
        loader = DataLoader(dataset, batch_size=5)
        assert reader.data.columns.columns_of(dataset) is not None
        first = next(iter(loader))
        assert np.array_equal(first[0] if isinstance(first, tuple) else first, rows[:5])
    chosen = Subset(rows, share([3, 1, 2]))
    assert reader.data.columns.columns_of(chosen) is not None
    assert reader.data.pure_samples.has_pure_samples(chosen)
    assert np.array_equal(next(iter(DataLoader(chosen, batch_size=3))), rows[[3, 1, 2]])


@pytest.mark.parametrize("way", ["threads", "fork", "spawn"])
def test_a_shared_list_is_a_dataset(way: str) -> None:
    dataset = share([(i, float(i)) for i in range(50)])
    with DataLoader(dataset, batch_size=10, num_workers=2, **chosen(way)) as loader:
        found = list(loader)
    assert np.concatenate([first for first, _ in found]).tolist() == list(range(50))
