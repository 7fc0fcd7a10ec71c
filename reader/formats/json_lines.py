"""JSON lines, read by pyarrow within a bound on levels.

Imports NumPy and pyarrow. pyarrow's parser calls itself for each level of lists and objects, so
that a small file that opens enough of them would end the process: the text is looked at on its way
there.
"""

from __future__ import annotations

from typing import Any

import numpy as np

__all__ = ["ShallowText", "read_json_lines"]

_MOST_LEVELS = 64  # of lists and objects, as Arrow's own files have at most
_SIGNS = b'"[]{}\n'
_OTHERS = bytes(set(range(256)) - set(_SIGNS))
_QUOTE, _END = b'"\n'
_STEPS = np.zeros(256, np.int32)
_STEPS[list(b"[{")], _STEPS[list(b"]}")] = 1, -1


def read_json_lines(stream: Any, block: int) -> Any:
    """Return the rows of a stream of JSON lines, such as pyarrow's of a file, as its table.

    Args:
        stream: of the text.
        block: how many bytes are parsed at a time; a line has no more.

    Raises:
        ValueError: lists and objects lie in more than 64 levels.
        pyarrow.ArrowInvalid: it is no JSON, or its lines differ.
    """
    import pyarrow as pa
    from pyarrow import json

    return json.read_json(
        pa.PythonFile(ShallowText(stream), "r"), json.ReadOptions(block_size=block)
    )


class ShallowText:
    """A file for pyarrow that gives a stream's text, and refuses what lies too deep.

    Strings end with their line, and the level is counted from the lowest one so far: what is no
    JSON, of which pyarrow parses some blocks, is not deeper than it is counted.

    Args:
        stream: its `read` gives bytes, none at its end.
        most_levels: of lists and objects within one another.
    """

    closed = False

    def __init__(self, stream: Any, most_levels: int = _MOST_LEVELS) -> None:
        self._stream = stream
        self._most = most_levels
        self._level = self._lowest = 0
        self._is_within = 0  # 1 within a string
        self._rest = b""

    def read(self, size: int = -1) -> bytes:
        """Return so many bytes, or what is left. ValueError: they lie too deep."""
        text: bytes = self._stream.read(None if size < 0 else size)
        self._count(text)
        return text

    def close(self) -> None:
        """Give no more."""
        self.closed = True

    def _count(self, text: bytes) -> None:
        text = (self._rest + text).replace(b"\\\\", b"")
        self._rest = b"\\" * text.endswith(b"\\")  # it may stand before a quote
        signs = np.frombuffer(text.replace(b'\\"', b"").translate(None, _OTHERS), np.uint8)
        if not len(signs):
            return
        quotes = np.cumsum(signs == _QUOTE, dtype=np.int32) + self._is_within
        before = np.maximum.accumulate(np.where(signs == _END, quotes, 0))
        is_within = (quotes - before) & 1
        levels = np.cumsum(_STEPS[signs] * (1 - is_within)) + self._level
        lowest = np.minimum(np.minimum.accumulate(levels), self._lowest)
        if (levels - lowest).max() > self._most:
            raise ValueError(
                f"lists and objects lie in more than {self._most} levels, which is the limit"
            )
        self._level, self._lowest = int(levels[-1]), int(lowest[-1])
        self._is_within = int(is_within[-1])
