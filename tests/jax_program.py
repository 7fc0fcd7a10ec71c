"""Programs of JAX, each in a process of its own: JAX starts threads, and warns at each fork.

Imports pytest. Four devices are simulated on JAX's CPU.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

__all__ = ["facts_of_jax"]

ROOT = Path(__file__).parents[1]


def facts_of_jax(folder: Path, text: str) -> dict[str, Any]:
    """Run a program from a folder; return the JSON that it prints last."""
    pytest.importorskip("jax")
    program = folder / "program.py"
    program.write_text(textwrap.dedent(text))
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "XLA_FLAGS": "--xla_force_host_platform_device_count=4",
        },
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
