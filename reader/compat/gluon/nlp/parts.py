"""The parts into which processes divide samples or batches: contiguous, and of nearly equal size.

Imports the errors of this face. Pure functions.
"""

from __future__ import annotations

import sys
from typing import Any

from reader.checks import as_int
from reader.compat.gluon.nlp.errors import ArgumentError, as_count

__all__ = ["as_part", "part_of"]


def part_of(count: int, parts: int, index: int) -> range:
    """Return a contiguous part; the first ones are longer by one where they must be."""
    size, longer = divmod(count, parts)
    start = size * index + min(index, longer)
    return range(start, start + size + (index < longer))


def as_part(num_parts: Any, part_index: Any) -> tuple[int, int]:
    """Return both as ints. ArgumentError: there is no such part."""
    parts = as_count("num_parts", num_parts)
    index = as_int("part_index", part_index, low=-sys.maxsize, remedy="Parts count from 0.")
    if not 0 <= index < parts:
        raise ArgumentError(
            f"part_index must be in [0, {parts - 1}], got {index}: parts count from 0 to"
            " num_parts - 1."
        )
    return parts, index
