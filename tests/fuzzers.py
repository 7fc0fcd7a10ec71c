"""The fuzzers of tools, each in a program of its own: this one may have threads, and not fork."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

__all__ = ["run_fuzzer"]


def run_fuzzer(name: str, first: int, count: int, *options: str) -> None:
    """Run some cases of `tools.<name>`, from the seed `first` on; none may go wrong."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", f"tools.{name}"),
            *("--count", str(count), "--seed", str(first), *options),
        ],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
