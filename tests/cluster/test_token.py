"""A cluster with a token: a program without it gets the remedy, one with it gets batches."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[2]
_CLUSTER = """
import sys
from tools.local_cluster import LocalCluster
with LocalCluster(nodes=1) as cluster:
    print(cluster.address, flush=True)
    sys.stdin.read()
"""
_PROGRAM = """
import sys
import reader
backend = reader.Ray(address=sys.argv[1])
with reader.DataLoader(list(range(6)), batch_size=3, num_workers=1, backend=backend) as loader:
    print([batch.tolist() for batch in loader])
"""
_DOCTOR = """
import sys
from reader.observe.cluster import cluster
print(*cluster(sys.argv[1])(None))
"""


@pytest.fixture
def token(tmp_path: Path) -> dict[str, str]:
    """Return the environment of programs that have the token."""
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("0123456789abcdef" * 4)
    return {
        **os.environ,
        "HOME": str(tmp_path),
        "RAY_AUTH_MODE": "token",
        "PYTHONPATH": str(ROOT),
    }


@pytest.fixture
def address(token: dict[str, str]) -> Iterator[str]:
    """Return where a cluster is that asks for the token."""
    command = [sys.executable, "-W", "ignore", "-c", _CLUSTER]
    with subprocess.Popen(
        command, env=token, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        lines = iter(program.stdout.readline, "")
        yield next(line for line in lines if ":" in line and " " not in line).strip()
        program.stdin.close()
        program.stdout.read()


def run(code: str, address: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "ignore", "-c", code, address]
    return subprocess.run(command, env=env, capture_output=True, text=True, check=False)


def test_a_program_without_the_token_is_refused_and_one_with_it_gets_batches(
    address: str, token: dict[str, str]
) -> None:
    without = {**token, "RAY_AUTH_MODE": "disabled"}
    refused = run(_PROGRAM, address, without)
    assert "ReaderError: workers on Ray cannot be started: " in refused.stderr
    assert "set RAY_AUTH_MODE=token before this program" in refused.stderr
    assert "set RAY_AUTH_MODE=token" in run(_DOCTOR, address, without).stdout
    found = run(_PROGRAM, address, token)
    assert found.stdout == "[[0, 1, 2], [3, 4, 5]]\n", found.stderr
