"""Copies of the datasets in workers that several loaders share, and the memory of batches."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reader import (
    ConfigError,
    DataLoader,
    IterableDataset,
    WorkerPool,
    get_worker_info,
)
from tests.datasets import Calls, Large, Rows, first_time
from tests.processes import wait_until

# -- copies of datasets ----------------------------------------------------------------------------


class OwnIterator(IterableDataset[int]):
    """A stream that is its own iterator: two that share a copy take numbers from each other."""

    def __init__(self, count: int, lock: Any = None) -> None:
        self.count = count
        self.lock = lock
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        self.at = 0
        return self

    def __next__(self) -> int:
        if self.at == self.count:
            raise StopIteration
        self.at += 1
        return self.at - 1


class OfEpoch(Rows):
    """Rows with the epoch of the copy."""

    epoch = -1

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, _: int) -> Any:
        return self.epoch


def numbers_of(batches: Any) -> list[int]:
    return [int(number) for batch in batches for number in batch]


def test_two_iterators_of_a_stream_have_a_copy_each() -> None:
    with WorkerPool(1) as pool:
        loader = DataLoader(OwnIterator(12), batch_size=2, pool=pool)
        both = list(zip(loader, loader))
    for k in range(2):
        assert numbers_of(pair[k] for pair in both) == list(range(12))


def test_copy_for_a_live_iterator_is_not_told_the_next_epoch() -> None:
    with WorkerPool(1) as pool:
        dataset = OfEpoch(40)
        loader = DataLoader(dataset, batch_size=2, pool=pool)
        dataset.set_epoch(3)
        one = iter(loader)
        next(one)
        dataset.set_epoch(4)
        other = iter(loader)
        next(other)
        assert set(numbers_of(one)) == {3}
        assert set(numbers_of(other)) == {4}


def test_second_iterator_of_a_stream_that_cannot_be_copied_waits_for_the_first() -> None:
    with WorkerPool(1) as pool:
        loader = DataLoader(OwnIterator(12, threading.Lock()), batch_size=2, pool=pool)
        one = iter(loader)
        next(one)
        with pytest.raises(ConfigError, match="Each iterator of a loader on a WorkerPool needs"):
            iter(loader)
        assert numbers_of(one) == list(range(2, 12))
        assert numbers_of(loader) == list(range(12))
        loader.close()
        assert numbers_of(loader) == list(range(12))


class Unpickled(Rows):
    """Knows which worker unpickled it, and draws from its random state then."""

    where: Any = "nobody unpickled it"

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self.where = get_worker_info() and "a worker of another loader"
        random.random()

    def __getitem__(self, _: int) -> Any:
        return str(self.where)


def seed_random(_: int) -> None:
    random.seed(5)


def test_dataset_that_is_sent_is_unpickled_for_its_own_loader() -> None:
    found = []
    for is_late in (False, True):
        with WorkerPool(1) as pool:
            drawing = Calls(lambda _: random.random(), 8)
            draws = DataLoader(
                drawing, batch_size=1, pool=pool, worker_init_fn=seed_random, prefetch_factor=1
            )
            batches = iter(draws)
            numbers = [float(next(batches)[0])]
            if is_late:
                assert list(DataLoader(Unpickled(2), batch_size=2, pool=pool)) == [["None"] * 2]
            found.append(numbers + [float(batch[0]) for batch in batches])
    assert found[0] == found[1]


class FailsOnce(Rows):
    """Cannot be unpickled the first time."""

    def __init__(self, once: str) -> None:
        super().__init__(8)
        self.once = once

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        if first_time(self.once):
            raise OSError("no licence")


def test_loader_whose_dataset_was_not_unpickled_may_begin_again(tmp_path: Any) -> None:
    with WorkerPool(1) as pool:
        list(DataLoader(Rows(4), pool=pool))
        late = DataLoader(FailsOnce(str(tmp_path / "once")), batch_size=4, pool=pool)
        with pytest.raises(OSError, match="no licence"):
            list(late)
        assert len(list(late)) == 2


# -- memory ----------------------------------------------------------------------------------------


SIZE = 1 << 20


def count_of(batches: Any) -> int:
    return sum(1 for _ in batches)


def test_loader_that_has_not_begun_keeps_its_share_of_memory() -> None:
    with WorkerPool(2, max_bytes=40 * SIZE) as pool:
        greedy = DataLoader(Large(200, SIZE), batch_size=1, pool=pool, prefetch_factor=64)
        other = DataLoader(Large(4, SIZE), batch_size=1, pool=pool)
        batches = iter(greedy)
        kept = [next(batches)]

        def is_full() -> bool:
            idle = all(status.batch is None for status in greedy.workers())
            return idle and greedy.stats()["arena"]["owned_bytes"] > 30 * SIZE

        wait_until(is_full)
        assert count_of(other) == 4
        assert count_of(batches) + len(kept) == 200


def arenas_of(pid: int) -> int:
    return Path(f"/proc/{pid}/maps").read_text().count("reader-arena")


def test_workers_release_arenas_of_loaders_that_end_together() -> None:
    with WorkerPool(1) as pool:
        stays = DataLoader(Rows(8), batch_size=4, pool=pool)
        list(stays)
        before = arenas_of(pool.pids[0])
        for _ in range(10):
            loaders = [DataLoader(Rows(8), batch_size=4, pool=pool) for _ in range(4)]
            batches = [iter(loader) for loader in loaders]
            for each in batches:
                next(each)
            del each, batches, loaders
            list(stays)
        wait_until(lambda: arenas_of(pool.pids[0]) <= before + 1)


def test_loader_between_epochs_leaves_its_memory_to_the_others() -> None:
    with WorkerPool(2, max_bytes=20 * SIZE) as pool:
        train = DataLoader(Large(100, SIZE), batch_size=1, pool=pool, prefetch_factor=32)
        test = DataLoader(Large(6, 7 * SIZE), batch_size=1, pool=pool)
        for _ in range(2):
            assert count_of(train) == 100
            assert count_of(test) == 6
