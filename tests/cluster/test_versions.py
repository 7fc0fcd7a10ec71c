"""Nodes with another lodreader than the trainer: named within seconds, and no death."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import reader
from reader import DataLoader, Ray, ReaderError
from reader.cluster.release import PYTHON, release
from tests.datasets import Rows
from tests.processes import ROOT

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]


@pytest.mark.parametrize(
    ("pool", "line", "words"),
    [
        (None, 'reader._version.__version__ = "0.0.7"', f"lodreader 0.0.7 under Python {PYTHON}"),
        ("versions", 'reader._version.__version__ = "0.0.8"', "lodreader 0.0.8"),
        (None, 'reader.cluster.release.PYTHON = "3.7"', f"{reader.__version__} under Python 3.7"),
    ],
)
def test_another_version_on_the_nodes_is_reported(
    cluster: Any,
    tmp_path: Path,
    pool: str | None,
    line: str,
    words: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "sitecustomize.py").write_text(f"import reader.cluster.release\n{line}")
    env = {"env_vars": {"PYTHONPATH": f"{tmp_path}:{ROOT}"}}
    resources = {"CPU": 0.5}
    backend = Ray(address=cluster.address, resources=resources, runtime_env=env, pool=pool)
    loader = DataLoader(Rows(8), num_workers=2, backend=backend)
    with pytest.raises(ReaderError, match=re.escape(words)) as caught:
        list(loader)
    told = str(caught.value)
    assert f"and the trainer {release()}" in told
    assert "on all nodes" in told
    assert told.count(words) == 1
    loader.close()
    assert not caplog.records


SAYS_OF_ITSELF = """
import json, sys
from ray._raylet import GcsClient
key, space = b"CLUSTER_METADATA", b"cluster"
client = GcsClient(address=sys.argv[1])
told = json.loads(client.internal_kv_get(key, space))
print(told["python_version"])
told["python_version"] = sys.argv[2]
client.internal_kv_put(key, json.dumps(told).encode(), True, space)
"""


def cluster_says(address: str, python: str) -> str:
    """Let a cluster report another Python; returns the earlier one."""
    program = [sys.executable, "-c", SAYS_OF_ITSELF, address, python]
    return subprocess.run(program, check=True, capture_output=True, text=True).stdout.strip()


def test_another_python_of_the_cluster_is_reported(cluster: Any) -> None:
    own = cluster_says(cluster.address, "3.7.1")
    try:
        loader = DataLoader(Rows(8), num_workers=2, backend=Ray(address=cluster.address))
        with pytest.raises(ReaderError, match=r"(?s)3\.7\.1.*Have the same Python and Ray here"):
            list(loader)
        loader.close()
    finally:
        assert cluster_says(cluster.address, own) == "3.7.1"
