"""Nodes that have another lodreader than the trainer: told by name within seconds, and no death."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import reader
from reader import DataLoader, Ray, ReaderError
from tests.datasets import Rows
from tests.processes import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.fixture
def other_version(tmp_path: Path) -> Path:
    """A folder for PYTHONPATH with which this package says that it is another version."""
    lines = ("import reader._version", 'reader._version.__version__ = "0.0.7"')
    (tmp_path / "sitecustomize.py").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("pool", [None, "versions"])
def test_another_version_on_the_nodes_is_told(
    cluster: Any, other_version: Path, pool: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    env = {"env_vars": {"PYTHONPATH": f"{other_version}:{ROOT}"}}
    resources = {"CPU": 0.5}
    backend = Ray(address=cluster.address, resources=resources, runtime_env=env, pool=pool)
    words = rf"has lodreader 0\.0\.7, and the trainer {reader.__version__}.* on all nodes"
    loader = DataLoader(Rows(8), num_workers=2, backend=backend)
    with pytest.raises(ReaderError, match=words) as caught:
        list(loader)
    assert str(caught.value).count("lodreader 0.0.7") == 1
    loader.close()
    assert not caplog.records
