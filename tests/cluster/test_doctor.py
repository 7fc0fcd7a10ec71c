"""The doctor on a cluster of three nodes: a visit that leaves nothing."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


def doctor(*arguments: str) -> tuple[int, list[dict[str, str]]]:
    command = [sys.executable, "-W", "ignore", "-m", "reader", "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    return done.returncode, json.loads(done.stdout)


def test_nodes_are_looked_at_one_by_one(cluster: Any) -> None:
    code, found = doctor("--ray", cluster.address)
    said = [each["found"] for each in found if each["subject"].startswith(("node ", "cluster"))]
    assert said[0].startswith("3 nodes with 6 CPU in all")
    assert sum("the versions of Python, Ray and lodreader are those here" in s for s in said) == 3
    assert sum("MB/s come from it" in s for s in said) == 2
    stores = [each for each in found if "object store has 200 MiB" in each["found"]]
    assert [each["level"] for each in stores] == ["warning"] * 3
    assert all("--object-store-memory" in each["remedy"] for each in stores)
    assert code >= 1


def test_without_the_option_no_cluster_is_looked_at() -> None:
    _, found = doctor()
    assert not any(each["subject"].startswith(("node ", "cluster")) for each in found)


def test_an_address_without_a_cluster_is_an_error() -> None:
    code, found = doctor("--ray", "127.0.0.1:9")
    assert code == 2
    assert "nothing answers at address='127.0.0.1:9'" in found[-1]["found"]
