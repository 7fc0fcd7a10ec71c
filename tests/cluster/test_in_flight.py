"""Batches in flight by default: enough to hide their transfer, and within the bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from reader import DataLoader, IterableDataset, Ray, get_worker_info
from tests.datasets import Rows, Slow, check_rows

WORKERS = 2
MANY = 16  # batches of a worker


class Part(IterableDataset[int]):
    """The numbers up to a count that are this worker's."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        assert info is not None
        return iter(range(info.id, self.count, info.num_workers))


class Large:
    """Samples of 1 MiB, made at once."""

    def __init__(self, count: int) -> None:
        self.count, self.made = count, np.zeros(1 << 20, np.uint8)

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> np.ndarray:
        return self.made


def most_in_flight(loader: Any) -> int:
    """Return the most batches in flight in an epoch."""
    return max(loader._engine._cache.newest.feeder.stats()["in_flight"] for _ in loader)


def factor(loader: Any) -> int:
    found: int = loader.chosen["prefetch_factor"]
    return found


def test_tiny_batches_are_many_in_flight_by_default_and_come_in_order(backend: Ray) -> None:
    with DataLoader(Rows(12000), batch_size=4, num_workers=WORKERS, backend=backend) as loader:
        for number, batch in enumerate(loader):
            check_rows(batch, range(4 * number, 4 * number + 4))
        assert number == 2999
        assert factor(loader) > MANY
        assert most_in_flight(loader) > MANY * WORKERS  # from the beginning of the next epoch


@pytest.mark.parametrize("given", [1, 2, 16])
def test_a_passed_number_of_batches_is_in_flight(backend: Ray, given: int) -> None:
    options: dict[str, Any] = {"num_workers": WORKERS, "prefetch_factor": given}
    with DataLoader(Rows(2000), batch_size=4, backend=backend, **options) as loader:
        assert most_in_flight(loader) <= given * WORKERS
        assert most_in_flight(loader) <= given * WORKERS
        assert factor(loader) == given


def test_slow_batches_are_two_in_flight(backend: Ray) -> None:
    with DataLoader(Slow(0.25, 24), num_workers=WORKERS, backend=backend) as loader:
        assert most_in_flight(loader) <= 2 * WORKERS
        assert factor(loader) == 2


def test_bytes_bound_the_batches_in_flight(cluster: Any) -> None:
    limit = 8 << 20
    backend = Ray(address=cluster.address, resources={"CPU": 0.5}, max_in_flight_bytes=limit)
    with DataLoader(Large(400), num_workers=WORKERS, backend=backend) as loader:
        assert len(list(zip(loader, range(400), strict=True))) == 400
        assert most_in_flight(loader) <= limit >> 20


def test_short_memory_bounds_the_batches_in_flight_and_nothing_is_lost(backend: Ray) -> None:
    options: dict[str, Any] = {"max_bytes": 6 << 20, "batch_size": 512}
    with DataLoader(Rows(200_000, 64), num_workers=WORKERS, backend=backend, **options) as loader:
        kept = []
        for number, batch in enumerate(loader):
            check_rows(batch, range(512 * number, min(512 * (number + 1), 200_000)))
            kept = [*kept[-10:], batch]
        assert number == 390


def test_an_abandoned_run_resumes_at_its_batch(backend: Ray) -> None:
    def made() -> Any:
        return DataLoader(
            Rows(8000), batch_size=4, shuffle=True, seed=3, num_workers=WORKERS, backend=backend
        )

    whole = [
        batch[1].tolist() for batch in DataLoader(Rows(8000), batch_size=4, shuffle=True, seed=3)
    ]
    with made() as loader:
        batches = iter(loader)
        seen = [next(batches)[1].tolist() for _ in range(900)]
        state = loader.state_dict()
    with made() as loader:
        loader.load_state_dict(state)
        seen += [batch[1].tolist() for batch in loader]
    assert seen == whole


def test_streams_are_many_in_flight_too(backend: Ray) -> None:
    with DataLoader(Part(12000), batch_size=4, num_workers=WORKERS, backend=backend) as loader:
        first = [batch.tolist() for batch in loader]
        assert sorted(number for batch in first for number in batch) == list(range(12000))
        assert factor(loader) > MANY
        assert [batch.tolist() for batch in loader] == first


def test_auto_of_the_factor_is_the_default(backend: Ray) -> None:
    options: dict[str, Any] = {"num_workers": WORKERS, "prefetch_factor": "auto"}
    with DataLoader(Rows(8000), batch_size=4, backend=backend, **options) as loader:
        assert len(list(loader)) == 2000
        assert factor(loader) > MANY
