"""Samplers and batch samplers of every make: PyTorch's loader and ours, to the last bit.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import itertools
import multiprocessing
import random
from typing import Any

import pytest
import torch
import torch.utils.data as data

from tests.peers.torch_parity import check_same
from tests.peers.torch_samples import (
    Augmented,
    Keyed,
    Rows,
    generator,
)

pytestmark = pytest.mark.peer
WORKERS = pytest.mark.parametrize("workers", [0, 1, 3])
SOME = pytest.mark.parametrize("workers", [0, 2])  # if only the order matters: forks cost time


class Even(data.Sampler[int]):
    """A sampler of the user's, with a length."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Any:
        return iter(range(0, self.count, 2))

    def __len__(self) -> int:
        return self.count // 2


class Eager(data.Sampler[int]):
    """Draws its whole order when it is asked for an iterator."""

    def __iter__(self) -> Any:
        return iter(torch.randperm(11).tolist())


class Lazy(data.Sampler[int]):
    """Draws while it yields, from two random states."""

    def __iter__(self) -> Any:
        for _ in range(9):
            yield int(torch.randint(11, (1,))) if random.random() < 0.5 else random.randrange(11)


class Shuffled(data.Sampler[int]):
    """Shuffles one list again and again."""

    def __init__(self) -> None:
        self.order = list(range(11))

    def __iter__(self) -> Any:
        random.shuffle(self.order)
        return iter(self.order)

    def __len__(self) -> int:
        return len(self.order)


class Batches(data.Sampler[list[int]]):
    """A batch sampler of the user's, whose batches are of many sizes."""

    def __iter__(self) -> Any:
        order = torch.randperm(11).tolist()
        for start in (0, 1, 3, 6, 10):
            yield order[start : start + 3]

    def __len__(self) -> int:
        return 5


SAMPLERS: dict[str, Any] = {
    "sequential": lambda: data.SequentialSampler(Rows()),
    "random": lambda: data.RandomSampler(Rows()),
    "random with a generator": lambda: data.RandomSampler(Rows(), generator=generator()),
    "replacement": lambda: data.RandomSampler(Rows(), replacement=True),
    "replacement, many": lambda: data.RandomSampler(Rows(), True, 70, generator()),
    "fewer": lambda: data.RandomSampler(Rows(), num_samples=5),
    "more": lambda: data.RandomSampler(Rows(), num_samples=25, generator=generator()),
    "as many": lambda: data.RandomSampler(Rows(), num_samples=11),
    "subset": lambda: data.SubsetRandomSampler([1, 3, 5, 9]),
    "subset with a generator": lambda: data.SubsetRandomSampler(range(3, 9), generator()),
    "weighted": lambda: data.WeightedRandomSampler([1.0, 0.0, 3.0, 2.0], 12),
    "weighted, no replacement": lambda: data.WeightedRandomSampler([1.0, 5.0, 2.0], 3, False),
    "distributed": lambda: data.DistributedSampler(Rows(), 3, 1, seed=4),
    "distributed, in order": lambda: data.DistributedSampler(Rows(), 3, 2, shuffle=False),
    "distributed, dropping": lambda: data.DistributedSampler(Rows(), 3, 0, drop_last=True),
    "list": lambda: [4, 2, 2, 9],
    "range": lambda: range(10, 0, -3),
    "tensor": lambda: torch.tensor([3, 1, 2]),
    "user's": lambda: Even(11),
    "eager": Eager,
    "lazy": Lazy,
    "shuffled": Shuffled,
}


@pytest.mark.sampled(3)
@SOME
@pytest.mark.parametrize("name", SAMPLERS)
def test_samplers_give_the_same_order(name: str, workers: int) -> None:
    if name == "tensor":
        workers = 0  # to send its indices PyTorch opens a thread and a socket, and keeps them

    def act(loader: Any) -> Any:
        sampler = SAMPLERS[name]()
        made = loader(Keyed(), 3, sampler=sampler, num_workers=workers)
        epochs = []
        for epoch in range(2):
            if hasattr(sampler, "set_epoch"):
                sampler.set_epoch(epoch)
            epochs.append([list(made), made.sampler is sampler])
        return epochs

    check_same(act)


@SOME
@pytest.mark.parametrize("name", ["random", "eager", "lazy", "weighted", "list"])
def test_samplers_without_batching_give_the_same_order(name: str, workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Keyed(), None, sampler=SAMPLERS[name](), num_workers=workers)
        return [list(made), list(made)]

    check_same(act)


BATCH_SAMPLERS: dict[str, Any] = {
    "torch's": lambda: data.BatchSampler(data.RandomSampler(Rows()), 4, False),
    "torch's, dropping": lambda: data.BatchSampler(Even(11), 2, True),
    "of an eager one": lambda: data.BatchSampler(Eager(), 4, False),
    "lists": lambda: [[1, 2], [3], [4, 5, 6]],
    "tuples": lambda: [(1, 2), (3,)],
    "user's": Batches,
    "of keys": lambda: [["a", (1, 2)], [None, 2.5]],
}


@SOME
@pytest.mark.parametrize("name", BATCH_SAMPLERS)
def test_batch_samplers_give_the_same_batches(name: str, workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Keyed(), batch_sampler=BATCH_SAMPLERS[name](), num_workers=workers)
        return [list(made), list(made), made.batch_size, made.drop_last]

    check_same(act)


class Bulk(Rows):
    """Is asked for a whole batch by its list of indices."""

    def __getitem__(self, indices: Any) -> Any:
        return torch.tensor(indices), torch.rand(len(indices))


@SOME
def test_batch_sampler_as_sampler_fetches_in_bulk_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        order = data.BatchSampler(data.RandomSampler(Rows()), 4, False)
        made = loader(Bulk(), batch_size=None, sampler=order, num_workers=workers)
        return [list(made), list(made)]

    check_same(act)


@SOME
def test_iterator_as_sampler_gives_the_same_first_epoch(workers: int) -> None:
    def act(loader: Any) -> Any:
        return list(loader(Keyed(), 2, sampler=iter([5, 1, 7, 2, 3]), num_workers=workers))

    check_same(act)


@SOME
def test_endless_sampler_is_cut_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Rows(), 2, sampler=itertools.cycle([1, 2, 3]), num_workers=workers)
        return list(itertools.islice(made, 5))

    check_same(act)


@pytest.mark.sampled(2)
@SOME
@pytest.mark.parametrize(
    "dataset",
    [
        data.TensorDataset(torch.arange(12.0).reshape(6, 2), torch.arange(6)),
        data.Subset(Rows(), [1, 5, 2, 8, 3]),
        Rows(4) + Rows(5),
        data.ConcatDataset([Rows(2), Rows(3), Rows(1)]),
        data.StackDataset(Rows(5), range(5)),
        data.StackDataset(row=Rows(5), number=range(5)),
        data.random_split(Rows(), [0.5, 0.5], generator())[1],
        [1, 2, 3, 4, 5],
        range(9),
        {0: "a", 1: "b", 2: "c"},
        "hello",
    ],
    ids=lambda dataset: type(dataset).__name__,
)
def test_every_kind_of_dataset_gives_the_same(dataset: Any, workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(dataset, 2, True, num_workers=workers)
        return [len(made), list(made), list(made)]

    check_same(act)


METHODS = ["fork", "spawn", "forkserver"]


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", METHODS)
def test_start_methods_by_name_give_the_same(method: str) -> None:
    def act(loader: Any) -> Any:
        made = loader(
            Augmented(),
            3,
            True,
            num_workers=2,
            multiprocessing_context=method,
            worker_init_fn=None,
            persistent_workers=True,
        )
        return [list(made), list(made), made.multiprocessing_context.get_start_method()]

    check_same(act)


@pytest.mark.nightly
def test_context_object_gives_the_same() -> None:
    def act(loader: Any) -> Any:
        context = multiprocessing.get_context("forkserver")
        made = loader(Augmented(), 3, num_workers=1, multiprocessing_context=context)
        return [list(made), made.multiprocessing_context is context]

    check_same(act)


@SOME
def test_two_iterators_side_by_side_give_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Augmented(), 2, True, num_workers=workers)
        return list(zip(made, made, strict=True))

    check_same(act)


@SOME
@pytest.mark.parametrize("persistent", [False, True])
def test_epoch_after_a_break_gives_the_same(workers: int, persistent: bool) -> None:
    """Without the draws of persistent workers: how far they were ahead depends on timing."""

    def act(loader: Any) -> Any:
        made = loader(
            Rows(), 2, True, num_workers=workers, persistent_workers=persistent and workers > 0
        )
        return [list(itertools.islice(made, 2)), list(made), torch.rand(1)]

    check_same(act)
