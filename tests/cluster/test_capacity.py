"""num_workers="auto" on a cluster: as many workers as the loop needs and the cluster can run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from reader import DataLoader, Ray
from tests.datasets import Slow, check_rows

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


class Steps:
    """Takes batches, each of which must be the next, until a condition holds."""

    def __init__(self, loader: Any) -> None:
        self.batches: Iterator[Any] = iter(loader)
        self.count = 0

    def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            check_rows(next(self.batches), range(4 * self.count, 4 * self.count + 4))
            self.count += 1


def test_number_of_workers_follows_waiting_and_the_nodes(cluster: Any) -> None:
    def node(count: int) -> Any:
        memory = {"object_store_memory": 100 << 20}
        return cluster.add_node(num_cpus=1, resources={"room": count}, **memory)

    first = node(3)
    backend = Ray(address=cluster.address, resources={"room": 1}, start_timeout=1)
    options: dict[str, Any] = {"batch_size": 4, "worker_retries": 100, "backend": backend}
    with DataLoader(Slow(0.02, 1 << 20), num_workers="auto", **options) as loader:
        assert loader.num_workers == 256
        steps = Steps(loader)
        steps.until(lambda: loader.chosen["num_workers"] == 3)
        second = node(3)
        steps.until(lambda: loader.chosen["num_workers"] > 3)
        cluster.remove_node(second, allow_graceful=False)
        steps.until(lambda: loader.chosen["num_workers"] <= 3)
        end = steps.count + 20
        steps.until(lambda: steps.count == end)
    cluster.remove_node(first, allow_graceful=False)


def test_workers_that_the_loop_does_not_need_rest(cluster: Any) -> None:
    backend = Ray(address=cluster.address, resources={"CPU": 0.5}, start_timeout=1)
    options: dict[str, Any] = {"batch_size": 4, "backend": backend}
    with DataLoader(Slow(0.02, 1 << 20), num_workers="auto", **options) as loader:
        steps = Steps(loader)
        steps.until(lambda: loader.chosen["num_workers"] > 3)
        most = loader.chosen["num_workers"]

        def is_less() -> bool:
            threading.Event().wait(0.1)  # the step takes longer than a batch
            return loader.chosen["num_workers"] < most

        steps.until(is_less)
