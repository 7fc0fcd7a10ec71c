"""Damaged image files, and random views: no crash, no write outside the output, no wrong pixel."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")

ROOT = Path(__file__).parents[2]


def test_damaged_files_and_views_at_random() -> None:
    """In a program of its own, which a wrong access may end; the fuzzer forks."""
    command = [sys.executable, "-m", "tools.fuzz_pixels", "--count", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
