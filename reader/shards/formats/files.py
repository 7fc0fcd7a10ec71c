"""Files of a folder, a sample each: those that its index.jsonl names, or all that lie in it.

Imports NumPy, the lines of JSON, and the search for files. A folder is one shard, however many
files it has: its index holds names, or the places of lines.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError, DatasetError, got
from reader.shards.formats.json_lines import JsonLinesShard, scan_json_lines
from reader.shards.formats.shard import Arrays, ListedShard, Options, Shard
from reader.stores.files import Files, StoredFile, inner_path

__all__ = ["FilesShard", "list_files", "open_files"]

_INDEX = "index.jsonl"
_FILE, _BYTES = "file", "bytes"  # fields


def list_files(folder: str, files: Files) -> list[ListedShard]:
    """Return the shard that a folder is.

    Its arrays are those of `scan_json_lines` where there is an index.jsonl; else "names", the
    files' paths in the folder, sorted, and "ends", where each begins and ends in these. Files and
    folders whose names begin with a dot are left out.

    Raises:
        ConfigError: it cannot be read, or a link in it leads back to a folder that it lies in.
    """
    index = os.path.join(folder, _INDEX)  # noqa: PTH118
    if files.has(index) or os.path.lexists(index):
        try:
            arrays = scan_json_lines(files.stored(files.found([index])[0]), False)
        except (OSError, DatasetError) as error:
            raise ConfigError(f"'{index}' cannot be read: {error}") from error
        return [ListedShard(index, int(arrays.pop("count")[0]), arrays=arrays)]
    names = sorted(
        os.fsencode(name)
        for name in files.below(folder)
        if not any(part.startswith(".") for part in name.split("/"))
    )
    arrays = {
        "ends": np.cumsum([0, *map(len, names)], dtype=np.int64),
        "names": np.frombuffer(b"".join(names), np.uint8),
    }
    return [ListedShard(folder, len(names), arrays=arrays)]


def open_files(file: StoredFile, _: str, arrays: Arrays, options: Options) -> Shard:
    """Return an open folder. DatasetError: its index.jsonl has changed."""
    lines = None
    if not len(arrays.get("ends", ())):  # in a set of several folders each array is there
        lines = JsonLinesShard(options.files.stored(file), arrays, options._replace(names=None))
    return FilesShard(file.path, lines, arrays, options)


class FilesShard(Shard):
    """A folder of files.

    Args:
        path: of the folder, or of its index.jsonl.
        lines: of that; None: there is none.
        arrays: its index: see `list_files`.
        options: which fields are wanted.
    """

    def __init__(
        self, path: str, lines: JsonLinesShard | None, arrays: Arrays, options: Options
    ) -> None:
        super().__init__(path)
        self._lines, self._arrays, self._options = lines, arrays, options
        self._folder = path if lines is None else os.path.dirname(path)  # noqa: PTH120

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: what the index says of a file, its path in the folder, and its bytes."""
        wants, found = self._options.wants, []
        rows = [self._row(position) for position in positions]
        if wants(_BYTES):
            self._options.files.fetch([(self._file(row[_FILE]), [(0, -1)]) for row in rows])
        for position, row in zip(positions, rows, strict=True):
            sample = {name: value for name, value in row.items() if wants(name)}
            if wants(_BYTES):
                sample[_BYTES] = self._content(position, row[_FILE])
            found.append(sample)
        return found

    def _row(self, position: int) -> dict[str, Any]:
        """Return the fields of a sample but its bytes. DatasetError: a line names no file."""
        if self._lines is None:
            begin, end = self._arrays["ends"][position : position + 2].tolist()
            return {_FILE: os.fsdecode(self._arrays["names"][begin:end].tobytes())}
        (row,) = self._lines.samples([position])
        if isinstance(row, dict) and isinstance(row.get(_FILE), str) and _BYTES not in row:
            return row
        raise DatasetError(
            f"line {position:,} of '{self.path}' must be an object with a \"{_FILE}\", such as"
            f' {{"{_FILE}": "a/b.jpg"}}, and without "{_BYTES}", which is what the file holds, got'
            f" {got(row)}"
        )

    def _file(self, name: str) -> StoredFile:
        """Return a file of which nothing is known but its name."""
        return StoredFile(os.path.join(self._folder, name), -1, 0)  # noqa: PTH118

    def _content(self, position: int, name: str) -> bytes:
        try:
            return self._options.files.head(inner_path(self._folder, name), -1)
        except (OSError, ConfigError, ValueError) as error:  # ValueError: of a name with a NUL
            raise DatasetError(
                f"file {position:,} of '{self.path}' cannot be read: {error}. Put it there, or"
                " make the dataset anew without it"
            ) from error

    def names(self, position: int) -> list[str]:
        """See Shard."""
        return [*self._row(position), _BYTES]

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard: where its line begins, and the file's path in the folder."""
        place = 0 if self._lines is None else self._lines.origin(position)[0]
        return place, str(self._row(position)[_FILE])
