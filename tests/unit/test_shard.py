"""Shards: each item in exactly one, whatever the items, the ranks and the workers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.data.shard_items import shard_items, shard_positions
from reader.errors import ConfigError, ConfigTypeError
from reader.loader import DataLoader
from reader.streams.shard import shard
from reader.worker.context import WorkerInfo, set_worker_info
from tests.streams import Sharded

counts = st.integers(0, 50)
shards = st.integers(1, 9)


@given(count=counts, num_shards=shards, contiguous=st.booleans())
def test_positions_lie_in_one_shard_each_and_shards_are_even(
    count: int, num_shards: int, contiguous: bool
) -> None:
    found = [shard_positions(range(count), num_shards, i, contiguous) for i in range(num_shards)]
    assert sorted(position for part in found for position in part) == list(range(count))
    sizes = [len(part) for part in found]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)
    if contiguous:
        assert [position for part in found for position in part] == list(range(count))


KINDS: list[Any] = [
    list,
    tuple,
    np.array,
    dict.fromkeys,
    lambda items: dict.fromkeys(items).keys(),
    Indexed := type("Indexed", (list,), {"__iter__": None}),
]
STREAMS: list[Any] = [iter, lambda items: (item for item in items)]


@given(
    count=counts,
    workers=st.lists(shards, min_size=1, max_size=4),
    contiguous=st.booleans(),
    data=st.data(),
)
def test_each_item_goes_to_one_worker_of_one_rank(
    count: int, workers: list[int], contiguous: bool, data: Any
) -> None:
    kind = data.draw(st.sampled_from(KINDS if contiguous else KINDS + STREAMS))
    found: list[int] = []
    for rank, num_workers in enumerate(workers):
        for worker_id in range(num_workers):
            cuts = [(len(workers), rank), (num_workers, worker_id)]
            found += shard_items(kind(list(range(count))), cuts, contiguous)
    assert sorted(found) == list(range(count))


def test_only_the_own_items_of_a_sequence_are_read() -> None:
    class Recording(list):  # type: ignore[type-arg]
        read: list[int] = []  # noqa: RUF012

        def __getitem__(self, index: Any) -> Any:
            self.read.append(index)
            return super().__getitem__(index)

    items = Recording("abcdef")
    assert list(shard(items, rank=1, world_size=3)) == ["b", "e"]
    assert items.read == [1, 4]


def test_stream_is_taken_lazily() -> None:
    def endless() -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1

    found = shard(endless(), rank=1, world_size=2)
    assert [next(found) for _ in range(3)] == [1, 3, 5]


def test_worker_is_asked_for_when_the_first_item_is_taken() -> None:
    items = shard(range(6))
    set_worker_info(WorkerInfo(id=1, num_workers=3, dataset=None, seed=0))
    try:
        assert list(items) == [1, 4]
    finally:
        set_worker_info(None)
    assert list(shard(range(3))) == [0, 1, 2]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
@pytest.mark.parametrize("count", [0, 2, 10])
def test_loader_delivers_each_item_once_in_order(num_workers: int, count: int) -> None:
    loader = DataLoader(Sharded(count), batch_size=None, num_workers=num_workers)
    with loader:
        assert list(loader) == list(range(count))


@pytest.mark.parametrize("num_workers", [0, 3])
def test_loaders_of_two_ranks_share_the_items(num_workers: int) -> None:
    found = []
    for rank in range(2):
        dataset = Sharded(11, rank=rank, world_size=2, contiguous=True)
        with DataLoader(dataset, batch_size=2, num_workers=num_workers) as loader:
            found.append(sorted(int(item) for batch in loader for item in batch))
    assert found == [[0, 1, 2, 3, 4, 5], [6, 7, 8, 9, 10]]


class Map:
    def __getitem__(self, index: int) -> int:
        return index * 10

    def __len__(self) -> int:
        return 3


def test_map_style_dataset_and_mapping_are_items_too() -> None:
    assert list(shard(Map(), rank=1, world_size=2)) == [10]
    assert list(shard({"a": 1, "b": 2}, rank=1, world_size=2)) == ["b"]
    assert list(shard(Sharded(4), rank=1, world_size=2)) == [1, 3]


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: shard(5), ConfigTypeError, r"a sequence or an iterable, got 5 \(int\)"),
        (lambda: shard(list), ConfigTypeError, r"a sequence or an iterable, got <class 'list'>"),
        (lambda: shard([], rank=-1), ConfigError, r"rank must be .* got -1"),
        (lambda: shard([], rank=2, world_size=2), ConfigError, r"rank=2 with world_size=2\. R"),
        (lambda: shard([], world_size=0), ConfigError, r"world_size must be .* got 0"),
        (lambda: shard([], world_size=1.0), ConfigTypeError, r"world_size must be .* got 1\.0"),
        (lambda: shard([], contiguous=1), ConfigTypeError, r"contiguous must be a bool, got 1"),
        (lambda: shard(iter([]), contiguous=True), ConfigError, r"without __len__\. Pass a seq"),
        (lambda: shard(iter([]), even="drop"), ConfigError, r"even='drop' needs .*EvenSteps\(load"),
        (
            lambda: shard([], even="pad"),
            ConfigError,
            r"even must be 'drop' or None, got 'pad'.*Pad",
        ),
        (lambda: shard([], even=True), ConfigTypeError, r"even must be 'drop' or None, got True"),
    ],
)
def test_bad_argument_is_refused_at_once(make: Any, error: type, match: str) -> None:
    with pytest.raises(error, match=match):
        make()


@pytest.mark.parametrize("contiguous", [False, True])
@pytest.mark.parametrize(("ranks", "workers"), [(3, 0), (2, 1), (2, 2)])
def test_even_shares_give_all_ranks_equally_many_batches_also_after_a_resume(
    contiguous: bool, ranks: int, workers: int
) -> None:
    count = 50
    shares = ranks * max(1, workers)

    def loader(ranks: int, rank: int, workers: int) -> DataLoader[Any]:
        options = {"rank": rank, "world_size": ranks, "contiguous": contiguous, "even": "drop"}
        return DataLoader(Sharded(count, **options), batch_size=4, num_workers=workers)

    whole, taken, states = [], [], []
    for rank in range(ranks):
        with loader(ranks, rank, workers) as each:
            whole.append([batch.tolist() for batch in each])
        with loader(ranks, rank, workers) as each:
            batches = iter(each)
            taken.append([next(batches).tolist() for _ in range(2)])
            states.append(each.state_dict())
            del batches
    found = [item for batches in whole for batch in batches for item in batch]
    assert len({len(batches) for batches in whole}) == 1
    assert len(set(found)) == len(found) == count // shares * shares
    rest = []
    for rank in range(2):
        with loader(2, rank, 3) as each:
            each.load_state_dict(states[rank])
            rest.append([batch.tolist() for batch in each])
    found = [item for batches in taken + rest for batch in batches for item in batch]
    assert len(rest[0]) == len(rest[1])
    assert len(set(found)) == len(found)
    assert count - len(found) < 6
