"""A cluster of three nodes on this machine, for all tests of workers on Ray."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from ray.cluster_utils import Cluster

from reader import Ray


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    memory = {"object_store_memory": 200 << 20}
    made = Cluster(
        initialize_head=True, head_node_args={"num_cpus": 2, "include_dashboard": False, **memory}
    )
    for _ in range(2):
        made.add_node(num_cpus=2, **memory)
    yield made
    made.shutdown()


@pytest.fixture
def backend(cluster: Any) -> Ray:
    return Ray(address=cluster.address, resources={"CPU": 0.5})
