"""Shared workers on Ray where no cluster runs; before other tests of this folder start one."""

from __future__ import annotations

from contextlib import closing

import pytest
from ray._private.services import find_gcs_addresses

from reader import DataLoader, Ray, ReaderError
from tests.datasets import Rows

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def test_pool_needs_a_cluster_that_outlives_each_program() -> None:
    if find_gcs_addresses():
        pytest.skip("a cluster runs on this machine")
    loader = DataLoader(Rows(4), num_workers=1, backend=Ray(pool="ranks"))
    with closing(loader), pytest.raises(ReaderError, match="ray start --head"):
        list(loader)
