"""Normalized numbers: computed where that gives the table's, else looked up."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from reader._core.pixels.render import render
from reader.images.normalize import Normalize, number_table


def rendered(table: Any, flips: tuple[bool, bool]) -> Any:
    """Return what `render` makes of each number of a byte, 3 x 1 x 256."""
    image = np.repeat(np.arange(256, dtype=np.uint8)[None, :, None], 3, axis=2).copy()
    out = np.empty((3, 1, 256), np.float32)
    render(image, (0, 1, 0, 1), (0, 256, 0, 256), out, table, flips, True)
    return out[:, 0]


@settings(max_examples=300, deadline=None)
@given(
    mean=st.lists(st.floats(-10, 10, width=32), min_size=3, max_size=3),
    std=st.lists(st.floats(2**-10, 100, width=32), min_size=3, max_size=3),
    flips=st.booleans(),
)
def test_normalized_numbers_are_those_of_the_table_bit_for_bit(
    mean: list[float], std: list[float], flips: bool
) -> None:
    table = number_table(Normalize(mean, std), np.dtype(np.float32), 3)
    assert table is not None
    wanted = table[:, ::-1] if flips else table
    assert rendered(table, (False, flips)).tobytes() == np.ascontiguousarray(wanted).tobytes()


def test_a_table_that_no_mean_and_std_make_is_looked_up() -> None:
    plain = number_table(None, np.dtype(np.float32), 3)
    assert plain is not None
    changed = plain.copy()
    changed[1, 77] = np.nextafter(changed[1, 77], np.float32(2))
    odd = np.stack([np.zeros(256), np.full(256, np.nan), np.arange(256) ** 2]).astype(np.float32)
    for table in (plain, changed, odd, plain, np.where(plain > 0.5, np.inf, plain)):
        assert rendered(table, (False, False)).tobytes() == table.tobytes()
