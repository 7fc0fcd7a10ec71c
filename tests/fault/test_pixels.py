"""Damaged image files, and views at random: no crash, nothing beside the output, no wrong pixel."""

from __future__ import annotations

import pytest

from tests.fuzzers import run_fuzzer

pytest.importorskip("PIL.Image")
pytest.importorskip("simplejpeg")


@pytest.mark.sampled(1)
@pytest.mark.parametrize("first", [0, 1000])
def test_damaged_files_and_views_at_random(first: int) -> None:
    run_fuzzer("fuzz_pixels", first, 1000)
