"""A module of this bench, run in a process of its own.

Imports the standard library.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

__all__ = ["told_by"]

ROOT = Path(__file__).parents[2]


def told_by(module: str, *arguments: str, **environment: str) -> Any:
    """Return the JSON that a module prints last.

    Raises:
        RuntimeError: it ended with an error.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{module} {' '.join(arguments)}: {done.stderr[-3000:]}")
    return json.loads(done.stdout.splitlines()[-1])
