"""Programs on the simulated accelerator, which this session builds from its sources."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.device.accelerator import ACCELERATOR
from tests.device.build import CannotBuild, library
from tests.device.simdev import LIBRARY

ROOT = Path(__file__).parents[2]
LIMIT_S = 50.0
BUILD_LIMIT_S = 240  # where `make simdev` has not built the accelerator, the first test does
Run = Callable[..., subprocess.CompletedProcess[str]]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the tests here time for the compiler."""
    for item in items:
        if item.path.parent == ROOT / "tests" / "device" and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(BUILD_LIMIT_S))


@pytest.fixture(scope="session")
def run_program() -> Run:
    """Return a function that runs a program: (framework, text, **environment) -> its result."""

    def run(framework: str, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path: Path | None = None
        if environment.get(ACCELERATOR) != "cuda":
            try:
                path = library(framework)
            except CannotBuild as error:
                pytest.skip(str(error))
        return subprocess.run(
            [sys.executable, "-W", "ignore", "-c", textwrap.dedent(text)],
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
            cwd=ROOT,
            env={**os.environ, LIBRARY: str(path), "PYTHONPATH": str(ROOT), **environment},
        )

    return run


@pytest.fixture(scope="session", params=["simdev", pytest.param("cuda", marks=pytest.mark.gpu)])
def device_kind(request: pytest.FixtureRequest) -> str:
    """The accelerators that a program of torch runs on, by ACCELERATOR."""
    kind: str = request.param
    if kind == "cuda" and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("torch finds no CUDA device")
    return kind


@pytest.fixture(scope="session")
def facts_of(run_program: Run) -> Callable[..., dict[str, Any]]:
    """Return a function like `run_program` that also reads the last printed JSON."""

    def ask(framework: str, text: str, **environment: str) -> dict[str, Any]:
        done = run_program(framework, text, **environment)
        assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return found

    return ask
