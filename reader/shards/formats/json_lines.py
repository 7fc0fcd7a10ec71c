"""JSON lines: an object, or another value, a line.

Imports NumPy. Blank lines are no samples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from reader.errors import DatasetError
from reader.shards.formats.shard import Arrays, Options, Shard
from reader.stores.files import StoredBytes

__all__ = ["JsonLinesShard", "scan_json_lines"]

_BLOCK = 1 << 24
_BLANKS = b" \t\r"  # which alone make no sample of a line
_PIECE = 1 << 12  # bytes of a line that is blank so far


def scan_json_lines(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a file: the "places" of its lines, and their "nbytes"."""
    ends = [np.array([-1], np.int64)]
    firsts = []  # bytes of lines
    is_begun = True
    for at in range(0, stored.nbytes, _BLOCK):
        block = np.frombuffer(stored.read(at, min(_BLOCK, stored.nbytes - at)), np.uint8)
        found = np.flatnonzero(block == ord("\n"))
        ends.append(found + at)
        if is_begun:
            firsts.append(block[:1])
        is_begun = bool(block[-1] == ord("\n"))
        firsts.append(block[found[: len(found) - is_begun] + 1])
    lines = np.concatenate([*ends, [stored.nbytes]]).astype(np.int64)
    places, nbytes = lines[:-1] + 1, np.diff(lines) - 1
    may_be_blank = np.isin(np.concatenate([np.empty(0, np.uint8), *firsts]), list(_BLANKS))
    for number in np.flatnonzero(may_be_blank).tolist():
        if _is_blank(stored, int(places[number]), int(nbytes[number])):
            nbytes[number] = 0
    is_line = nbytes > 0
    return {
        "count": np.array([np.count_nonzero(is_line)], np.int64),
        "places": places[is_line],
        "nbytes": nbytes[is_line],
    }


def _is_blank(stored: StoredBytes, place: int, nbytes: int) -> bool:
    """Whether a line has blanks alone."""
    pieces = range(place, place + nbytes, _PIECE)
    end = place + nbytes
    return not any(stored.read(at, min(_PIECE, end - at)).strip(_BLANKS) for at in pieces)


class JsonLinesShard(Shard):
    """An open file of JSON lines.

    Args:
        stored: its bytes.
        arrays: its index: see `scan_json_lines`.
        options: whether fields are wanted, so that a line must hold an object.
    """

    def __init__(self, stored: StoredBytes, arrays: Arrays, options: Options) -> None:
        super().__init__(stored.path, stored.unpacked_nbytes)
        self._stored = stored
        self._places, self._nbytes = arrays["places"].data, arrays["nbytes"].data
        self._needs_object = options.names is not None

    def samples(self, positions: Sequence[int]) -> list[Any]:
        """See Shard: what the line holds."""
        return list(map(self._sample, positions))

    def _sample(self, position: int) -> Any:
        place = self._places[position]
        try:
            found = json.loads(self._stored.read(place, self._nbytes[position]))
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"line {position:,} of the shard '{self.path}', at {place:,}, is no JSON: {error}."
                " Write it anew, with one value a line"
            ) from error
        if self._needs_object and not isinstance(found, dict):
            raise DatasetError(
                f"line {position:,} of the shard '{self.path}' holds no object, so that it has no"
                " fields: leave fields= out"
            )
        return found

    def names(self, position: int) -> list[str]:
        """See Shard."""
        return list(self._sample(position))

    def ranges(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """See Shard."""
        begins = [(self._places[k], self._nbytes[k]) for k in positions]
        return [(place, place + nbytes) for place, nbytes in begins]

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard."""
        return self._places[position], ""
