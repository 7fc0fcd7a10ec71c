"""Damaged image files, and views at random: no crash, nothing beside the output, no wrong pixel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [0, 1000])
def test_damaged_files_and_views_at_random(first: int) -> None:
    """In a program of its own: this one may have threads, and is not to be forked."""
    done = subprocess.run(
        [sys.executable, "-m", "tools.fuzz_pixels", "--count", "1000", "--seed", str(first)],
        capture_output=True,
        text=True,
        timeout=55,
        check=False,
        cwd=Path(__file__).parents[2],
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
