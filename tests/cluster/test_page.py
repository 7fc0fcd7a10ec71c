"""The programs of docs/cluster.md, on the cluster of the tests."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reader
from tests.pages import programs_of


def test_the_programs_of_the_page_run(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "0", "WORLD_SIZE": "1"}.items():  # as torchrun sets them
        monkeypatch.setenv(name, value)
    own, named, retried, pooled = [each.code for each in programs_of("cluster")]
    # Their 32 workers would wait for 32 cores, and the address is of another machine.
    own, pooled = (
        code.replace("num_workers=32", "num_workers=2").replace(
            "reader.Ray(", f"reader.Ray(address={cluster.address!r}, "
        )
        for code in (own, pooled)
    )
    retried = retried.replace("num_workers=32", "num_workers=2").replace(
        "reader.Ray(", f"reader.Ray(address={cluster.address!r}"
    )
    named = named.replace("HEAD:6379", cluster.address)
    names: dict[str, Any] = {"reader": reader, "dataset": np.arange(256)}
    exec(named, names)
    assert names["backend"].address == cluster.address
    for code in (own, retried, pooled):
        exec(code, names)
        with names["loader"] as loader:
            found = np.concatenate(list(loader))
        assert sorted(found.tolist()) == list(range(256))
