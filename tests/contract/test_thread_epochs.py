"""Worker threads over epochs: turns of iterable datasets, epochs left early or ahead, places."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, DatasetError, IterableDataset, get_worker_info
from tests.datasets import Rows, check_rows, digest_of
from tests.streams import Noisy, Parts, order_of, values_of, worker_id

UNEVEN = [range(23), range(100, 105), range(200, 200), range(300, 301)]


@pytest.mark.parametrize("collate", [False, True], ids=["stack", "collate"])
@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("workers", [1, 4])
def test_01_threads_take_turns_exactly_whatever_the_shards(
    workers: int, persistent: bool, collate: bool
) -> None:
    def stack(samples: list[Any]) -> Any:
        return tuple(np.stack(each) for each in zip(*samples, strict=True))

    with DataLoader(
        Parts(UNEVEN),
        batch_size=4,
        num_workers=workers,
        worker_type="thread",
        persistent_workers=persistent,
        collate_fn=stack if collate else None,
    ) as loader:
        for _ in range(2):
            assert [values_of(batch) for batch in loader] == order_of(UNEVEN, workers, 4)


def test_06_noise_of_iterable_datasets_is_the_same_in_threads_and_processes() -> None:
    found = set()
    for worker_type in ("process", "thread"):
        with DataLoader(
            Noisy(UNEVEN), batch_size=4, num_workers=3, worker_type=worker_type, seed=7
        ) as loader:
            found.add(digest_of(loader))
    assert len(found) == 1


class Fails(IterableDataset[int]):
    """Worker 0 fails at its sixth item."""

    def __iter__(self) -> Iterator[int]:
        for value in range(8):
            if worker_id() == 0 and value == 5:
                raise LookupError("torn")
            yield 10 * worker_id() + value


def test_10_generator_that_fails_in_a_thread_ends_its_shard_and_the_others_go_on() -> None:
    with DataLoader(Fails(), batch_size=2, num_workers=2, worker_type="thread") as loader:
        batches = iter(loader)
        found: list[Any] = []
        while True:
            try:
                found.append(next(batches).tolist())
            except StopIteration:
                break
            except (LookupError, DatasetError) as error:
                found.append("\n".join(error.__notes__))  # type: ignore[attr-defined]
    assert [each for each in found if isinstance(each, list)] == [
        [0, 1],
        [10, 11],
        [2, 3],
        [12, 13],
        [14, 15],
        [16, 17],
    ]
    told = [each for each in found if isinstance(each, str)]
    assert len(told) == 2  # the exception, and that the generator cannot go on after it
    assert all("by worker thread 0" in each for each in told)


@pytest.mark.parametrize("options", [{}, {"seed": 3}, {"seed": 3, "seed_globals": False}])
@pytest.mark.parametrize("persistent", [False, True])
def test_01_break_at_every_position_leaves_the_next_epoch_whole(
    persistent: bool, options: dict[str, Any]
) -> None:
    with DataLoader(
        Rows(24),
        batch_size=4,
        num_workers=3,
        worker_type="thread",
        persistent_workers=persistent,
        **options,
    ) as loader:
        for position in range(6):
            for n, batch in enumerate(loader):
                check_rows(batch, range(4 * n, 4 * n + 4))
                if n == position:
                    break
            assert [batch[1].tolist() for batch in loader] == [
                list(range(at, at + 4)) for at in range(0, 24, 4)
            ]


class EpochStart(Rows):
    """Samples are (index, epoch)."""

    def __init__(self) -> None:
        super().__init__(8)
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __getitem__(self, index: int) -> Any:
        return index, self.epoch


def test_06_prefetched_epoch_begins_anew_when_another_is_chosen() -> None:
    with DataLoader(
        EpochStart(),
        batch_size=2,
        num_workers=2,
        worker_type="thread",
        persistent_workers=True,
        prefetch_next_epoch=True,
    ) as loader:
        for epoch in (0, 1, 5):
            loader.set_epoch(epoch)
            assert [batch[1].tolist() for batch in loader] == [[epoch, epoch]] * 4


def test_01_places_get_their_batches_from_threads() -> None:
    with DataLoader(
        Rows(12), batch_size=2, num_workers=2, worker_type="thread", places=["cpu", "cpu"]
    ) as loader:
        groups = list(loader)
    assert [[batch[1].tolist() for batch in group] for group in groups] == [
        [[0, 1], [2, 3]],
        [[4, 5], [6, 7]],
        [[8, 9], [10, 11]],
    ]


@pytest.mark.parametrize("shared", [True, False])
def test_02_batches_of_threads_stay_as_they_were_while_they_are_kept(shared: bool) -> None:
    with DataLoader(
        Rows(400, 64), batch_size=4, num_workers=3, worker_type="thread", use_shared_memory=shared
    ) as loader:
        kept = [batch for n, batch in enumerate(loader) if n % 3 == 0]
        for n, batch in enumerate(kept):
            check_rows(batch, range(12 * n, 12 * n + 4))
    for n, batch in enumerate(kept):  # and after the loader was closed
        check_rows(batch, range(12 * n, 12 * n + 4))
        batch[0][:] = 0  # they are the user's


def test_09_several_live_iterators_have_threads_of_their_own() -> None:
    class Who(Rows):
        def __getitem__(self, index: int) -> Any:
            info = get_worker_info()
            assert info is not None
            return index, info.seed % 1_000_003

    loader = DataLoader(Who(8), batch_size=1, num_workers=2, worker_type="thread")
    one, other = iter(loader), iter(loader)
    found = [(next(one), next(other)) for _ in range(8)]
    assert [int(batch[0][0]) for pair in found for batch in pair] == [n // 2 for n in range(16)]
    seeds = [{int(pair[k][1][0]) for pair in found} for k in range(2)]
    assert [len(each) for each in seeds] == [2, 2]
    assert not seeds[0] & seeds[1]
    for pool in (one, other):
        pool.close()  # type: ignore[attr-defined]
    loader.close()
