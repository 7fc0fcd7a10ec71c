"""PyTorch's own tests of batches and persistent workers, in our words, for our loader.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import (
    BatchSampler,
    ConcatDataset,
    Dataset,
    RandomSampler,
)

from reader.compat.torch import DataLoader
from tests.peers.torch_samples import TENSORS, VECTORS, Rows

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 2])


@pytest.mark.parametrize("persistent", [False, True])
def test_leaving_early_again_and_again_leaves_the_loader_usable(persistent: bool) -> None:
    loader = DataLoader(TENSORS, 2, num_workers=2, persistent_workers=persistent)
    for taken in (1, 3, 0, 2):
        list(itertools.islice(loader, taken))
    assert len(list(loader)) == 10
    loader.close()


def test_persistent_workers_are_the_same_processes_in_each_epoch() -> None:
    loader = DataLoader(TENSORS, 4, num_workers=2, persistent_workers=True)
    pids = []
    for _ in range(3):
        batches = iter(loader)
        pids.append([worker.pid for worker in batches._workers])
        list(batches)
    assert pids[0] == pids[1] == pids[2]
    loader.close()


def test_workers_that_stay_are_free_again_when_a_loop_is_left() -> None:
    class Makers(Rows):
        def __getitem__(self, index: int) -> int:
            return os.getpid()

    loader = DataLoader(Makers(8), 1, num_workers=2, persistent_workers=True)
    pids = []
    for _ in range(3):
        pids.append([int(pid) for pid in itertools.islice(loader, 2)])
        assert [worker.pid for worker in loader._iterator._workers] == pids[0]
        assert list(loader._iterator) == []  # what the loader keeps has no batches
    assert pids[0] == pids[1] == pids[2]
    loader.close()


def test_workers_made_anew_are_other_processes() -> None:
    loader = DataLoader(TENSORS, 4, num_workers=1)
    pids = set()
    for _ in range(2):
        batches = iter(loader)
        pids.add(batches._workers[0].pid)
        list(batches)
        del batches
    assert len(pids) == 2


def test_bulk_fetch_by_batch_sampler_keeps_the_batches_of_the_dataset() -> None:
    class Bulk(Rows):
        def __getitem__(self, indices: Any) -> Any:
            assert isinstance(indices, list)
            return torch.tensor(indices)

    order = BatchSampler(RandomSampler(Bulk(10)), 4, False)
    for workers in (0, 2):
        found = list(DataLoader(Bulk(10), sampler=order, batch_size=None, num_workers=workers))
        assert [len(batch) for batch in found] == [4, 4, 2]
        assert sorted(torch.cat(found).tolist()) == list(range(10))


@WORKERS
def test_samples_without_batching_stay_single_and_become_tensors(workers: int) -> None:
    class Kinds(Rows):
        def __getitem__(self, index: int) -> Any:
            return np.full(2, index), index, str(index)

    for index, (array, number, text) in enumerate(
        DataLoader(Kinds(4), batch_size=None, num_workers=workers)
    ):
        assert isinstance(array, torch.Tensor)
        assert array.tolist() == [index] * 2
        assert number == index
        assert type(number) is int
        assert text == str(index)


@WORKERS
def test_concatenated_datasets_reach_their_last_sample(workers: int) -> None:
    joined = ConcatDataset([Rows(3), Rows(2)])
    assert [batch[1].tolist() for batch in DataLoader(joined, 2, num_workers=workers)] == [
        [0, 1],
        [2, 0],
        [1],
    ]


@WORKERS
def test_text_alone_makes_batches_of_text(workers: int) -> None:
    class Texts(Dataset[Any]):
        def __len__(self) -> int:
            return 5

        def __getitem__(self, index: int) -> str:
            return "abcde"[index]

    assert list(DataLoader(Texts(), 2, num_workers=workers)) == [["a", "b"], ["c", "d"], ["e"]]


class Both(NamedTuple):
    data: Any
    label: Any


@WORKERS
def test_named_tuples_and_dicts_keep_their_type(workers: int) -> None:
    class Named(Rows):
        def __getitem__(self, index: int) -> Any:
            return Both({"a": torch.full((2,), index), "b": {"c": [index]}}, index)

    for batch in DataLoader(Named(4), 2, num_workers=workers):
        assert type(batch) is Both
        assert batch.data["a"].shape == (2, 2)
        assert list(batch.data) == ["a", "b"]
        assert batch.data["b"]["c"][0].tolist() == batch.label.tolist()


def test_affinity_of_the_trainer_can_be_changed_in_worker_init_fn() -> None:
    class Affinity(Rows):
        def __getitem__(self, index: int) -> Any:
            return sorted(os.sched_getaffinity(0))

    last = max(os.sched_getaffinity(0))

    def pin(worker_id: int) -> None:
        os.sched_setaffinity(0, {last})

    for batch in DataLoader(Affinity(2), None, num_workers=1, worker_init_fn=pin):
        assert batch == [last]


def test_threads_of_torch_in_a_worker_are_one() -> None:
    class Threads(Rows):
        def __getitem__(self, index: int) -> Any:
            return torch.get_num_threads()

    assert {int(batch) for batch in DataLoader(Threads(2), num_workers=1)} == {1}


def test_dataset_that_loads_from_another_loader_works_in_a_worker() -> None:
    class Nested(Rows):
        def __getitem__(self, index: int) -> Any:
            return torch.cat([batch[1] for batch in DataLoader(Rows(4), 2)])

    assert [batch.tolist() for batch in DataLoader(Nested(2), None, num_workers=1)] == [
        [0, 1, 2, 3]
    ] * 2


def test_iterators_in_threads_side_by_side_give_all_batches() -> None:
    found: list[list[Any]] = [[], []]

    def iterate(number: int) -> None:
        found[number] = [batch[1].tolist() for batch in DataLoader(TENSORS, 5, num_workers=1)]

    threads = [threading.Thread(target=iterate, args=(number,)) for number in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found[0] == found[1] == [list(range(i, i + 5)) for i in (0, 5, 10, 15)]


@WORKERS
def test_batches_belong_to_the_user_and_can_be_changed_and_kept(workers: int) -> None:
    kept = []
    for vectors, _ in DataLoader(TENSORS, 4, num_workers=workers):
        vectors += 1
        kept.append(vectors)
    assert torch.equal(torch.cat(kept), VECTORS + 1)
    assert torch.equal(VECTORS, torch.arange(100.0).reshape(20, 5))


def test_no_more_is_fetched_ahead_than_prefetch_factor_allows() -> None:
    asked: list[int] = []

    class Order:
        def __iter__(self) -> Iterator[int]:
            for index in range(20):
                asked.append(index)
                yield index

        def __len__(self) -> int:
            return 20

    for factor in (1, 3):
        asked.clear()
        batches = iter(
            DataLoader(TENSORS, 1, sampler=Order(), num_workers=2, prefetch_factor=factor)
        )
        next(batches)
        assert len(asked) <= 2 * factor + 1
        del batches


@pytest.mark.parametrize("workers", [1, 2])
def test_large_batches_come_whole(workers: int) -> None:
    class Large(Rows):
        def __getitem__(self, index: int) -> Any:
            return torch.full((1 << 20,), index, dtype=torch.uint8)

    for index, batch in enumerate(DataLoader(Large(4), 2, num_workers=workers)):
        assert batch.shape == (2, 1 << 20)
        assert int(batch[1].float().mean()) == index * 2 + 1
