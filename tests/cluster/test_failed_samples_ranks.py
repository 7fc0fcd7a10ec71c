"""Ranks in lockstep that share workers on Ray, over a dataset of which some samples fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tests.fault.test_failed_samples_ranks import train_and_check

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(300)]


def test_ranks_that_share_workers_take_the_same_steps(cluster: Any, tmp_path: Path) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip("the ranks need torch")
    train_and_check(tmp_path, 20_000, kills=1, cluster=cluster.address)
