"""Iterable data, its lengths and DataPipes: PyTorch's loader and ours, to the last bit.

Imports pytest, torch and the harness. Holds nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.utils.data as data

from tests.names import shown
from tests.peers.torch_parity import both, check_same
from tests.peers.torch_samples import Counted, Rows, Stream, sum_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    from torch.utils.data.datapipes.iter import IterableWrapper

pytestmark = pytest.mark.peer


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sizes", [(7,), (7, 2, 4), (0, 5, 1), (1, 1, 9), (), (0, 0)], ids=str)
@pytest.mark.parametrize("workers", [0, 1, 3])
def test_shards_of_any_size_come_in_the_same_order(sizes: tuple[int, ...], workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Stream(*sizes), 3, num_workers=workers)
        return [list(made), list(made)]

    check_same(act)


@pytest.mark.parametrize(
    "options",
    [
        {"batch_size": 2, "drop_last": True},
        {"batch_size": None},
        {"batch_size": 1},
        {"batch_size": 2, "shuffle": False},
        {"batch_size": 50},
        {"batch_size": 50, "drop_last": True},
        {"batch_size": 2, "collate_fn": sum_of},
        {"batch_size": 2, "prefetch_factor": 1},
        {"batch_size": 2, "prefetch_factor": 9},
    ],
    ids=shown,
)
@pytest.mark.parametrize("workers", [0, 3])
def test_streams_are_batched_the_same(options: dict[str, Any], workers: int) -> None:
    if not workers:
        options = {key: value for key, value in options.items() if key != "prefetch_factor"}

    def act(loader: Any) -> Any:
        return list(loader(Stream(5, 2, 7), num_workers=workers, **options))

    check_same(act)


def test_persistent_streams_begin_anew_the_same() -> None:
    def act(loader: Any) -> Any:
        made = loader(Stream(5, 2, 3), 2, num_workers=3, persistent_workers=True)
        return [list(made) for _ in range(3)]

    check_same(act)


def test_generator_decides_the_seeds_of_streams_the_same() -> None:
    def act(loader: Any) -> Any:
        own = torch.Generator().manual_seed(9)
        made = loader(Stream(5, 2), 2, num_workers=2, generator=own)
        return [list(made), list(made), own.get_state()]

    check_same(act)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_streams_of_other_start_methods_are_the_same(method: str) -> None:
    def act(loader: Any) -> Any:
        return list(loader(Stream(3, 2), 2, num_workers=1, multiprocessing_context=method))

    check_same(act)


class Iterating(data.IterableDataset[Any]):
    """Is its own iterator, and one of sequences: an old style that works."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[Any]:
        self.at = 0
        return self

    def __next__(self) -> Any:
        if self.at == 5:
            raise StopIteration
        self.at += 1
        return {"at": self.at, "text": str(self.at)}


@pytest.mark.parametrize("workers", [0, 2])
def test_dataset_that_is_its_own_iterator_gives_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        made = loader(Iterating(), 2, num_workers=workers)
        return [list(made), list(made)]

    check_same(act)


@pytest.mark.parametrize("workers", [0, 2])
def test_chained_streams_give_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        chain = Stream(2, 1) + data.ChainDataset([Iterating(), Stream(1, 3)])
        return list(loader(chain, None, num_workers=workers))

    check_same(act)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("length", [6, 4, 50])
@pytest.mark.parametrize("batch_size", [None, 2, 4])
def test_length_of_a_stream_and_its_warnings_are_the_same(
    length: int, batch_size: int | None, workers: int
) -> None:
    def act(loader: Any) -> Any:
        made = loader(Counted(length, 4, 2), batch_size, num_workers=workers)
        found = [len(made), list(made)]
        unasked = loader(Counted(length, 4, 2), batch_size, num_workers=workers)
        return [*found, list(unasked), len(loader(Counted(7), 3, drop_last=True))]

    # the text has the dataset's address in it
    theirs, ours = both(act)
    assert ours.result == theirs.result
    assert ours.error is theirs.error is None
    assert [_without_address(each) for each in ours.warnings] == [
        _without_address(each) for each in theirs.warnings
    ]


def _without_address(said: tuple[str, str]) -> tuple[str, str]:
    before, at, after = said[1].partition(" object at 0x")
    return said[0], before + at + after.partition(">")[2]


def test_stream_longer_than_it_said_warns() -> None:
    def act(loader: Any) -> Any:
        made = loader(Counted(2, 4), None)
        return [len(made), list(made)]

    theirs, ours = both(act)
    assert len(theirs.warnings) == 2
    for _, text in ours.warnings:
        assert "was reported to be 2(when accessing len(dataloader)), but" in text


def test_more_workers_than_processors_warn_the_same() -> None:
    """At construction, and at every `iter()`."""

    def act(loader: Any) -> Any:
        made = loader(Rows(2), num_workers=1)
        made.num_workers = 2000
        made.check_worker_number_rationality()
        return list(range(len(loader(Rows(2), num_workers=2000))))

    theirs, ours = both(act)
    assert len(theirs.warnings) == 2
    assert "This DataLoader will create 2000 worker processes in total" in theirs.warnings[0][1]
    assert ours.warnings == theirs.warnings


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_data_pipes_are_sharded_and_shuffled_the_same(workers: int, persistent: bool) -> None:
    options = {"persistent_workers": True} if persistent and workers else {}

    def act(loader: Any) -> Any:
        pipe = IterableWrapper(range(12)).shuffle().sharding_filter().map(str)
        made = loader(pipe, 3, shuffle=True, num_workers=workers, **options)
        return [list(made), list(made), len(IterableWrapper(range(3)))]

    check_same(act)


@pytest.mark.parametrize("workers", [0, 2])
def test_data_pipe_without_shards_gives_the_same(workers: int) -> None:
    def act(loader: Any) -> Any:
        pipe = IterableWrapper([torch.tensor([i]) for i in range(5)])
        made = loader(pipe, 2, num_workers=workers)
        return [list(made), list(made)]

    check_same(act)
