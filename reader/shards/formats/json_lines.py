"""JSON lines: an object, or another value, a line.

Imports NumPy. Blank lines are no samples.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np

from reader.errors import DatasetError
from reader.shards.formats.shard import Arrays, Options, Shard, StoredBytes

__all__ = ["JsonLinesShard", "scan_json_lines"]

_BLOCK = 1 << 24
_SHORTEST = 4  # bytes that may be blank


def scan_json_lines(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a file: the "places" of its lines, and their "nbytes"."""
    ends = [np.array([-1], np.int64)]
    for at in range(0, stored.nbytes, _BLOCK):
        block = np.frombuffer(stored.read(at, min(_BLOCK, stored.nbytes - at)), np.uint8)
        ends.append(np.flatnonzero(block == ord("\n")) + at)
    lines = np.concatenate([*ends, [stored.nbytes]]).astype(np.int64)
    places, nbytes = lines[:-1] + 1, np.diff(lines) - 1
    for number in np.flatnonzero(nbytes < _SHORTEST).tolist():  # a blank line may have a few
        if nbytes[number] > 0:
            line = stored.read(int(places[number]), int(nbytes[number]))
            nbytes[number] *= bool(line.strip())
    is_line = nbytes > 0
    return {
        "count": np.array([np.count_nonzero(is_line)], np.int64),
        "places": places[is_line],
        "nbytes": nbytes[is_line],
    }


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
        self._places, self._nbytes = arrays["places"], arrays["nbytes"]
        self._needs_object = options.names is not None

    def samples(self, positions: Sequence[int]) -> list[Any]:
        """See Shard: what the line holds."""
        return list(map(self._sample, positions))

    def _sample(self, position: int) -> Any:
        place = int(self._places[position])
        try:
            found = json.loads(self._stored.read(place, int(self._nbytes[position])))
        except (ValueError, RecursionError) as error:
            raise DatasetError(
                f"line {position:,} of the shard '{self.path}', at {place:,}, is no JSON: {error}."
                " Write it anew"
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

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard."""
        return int(self._places[position]), ""
