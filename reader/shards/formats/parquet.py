"""Parquet: rows as samples, read by row groups.

Imports NumPy and pyarrow. A shard keeps the last row groups that it decoded.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from reader.errors import ConfigError, DatasetError
from reader.shards.formats.compression import required_pyarrow
from reader.shards.formats.shard import Arrays, Options, Shard, ShardFile, StoredBytes

__all__ = ["ParquetShard", "begins_parquet", "row_dicts", "scan_parquet"]

_MAGIC = b"PAR1"
_KEPT = 2  # row groups
_PICTURE = {"bytes", "path"}  # the fields of a picture, as the library `datasets` writes it


def begins_parquet(head: bytes) -> bool:
    """Whether a file that begins so is a Parquet file."""
    return head.startswith(_MAGIC)


def scan_parquet(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a file: the "ends" of its row groups in rows, and its "columns"."""
    with _reading(stored.path, ConfigError), _opened(stored.path) as file:
        metadata = file.metadata
        rows = [metadata.row_group(k).num_rows for k in range(metadata.num_row_groups)]
        columns = "\0".join(f"{each.name}: {each.type}" for each in file.schema_arrow)
    return {
        "count": np.array([sum(rows)], np.int64),
        "ends": np.cumsum(rows, dtype=np.int64),
        "columns": np.frombuffer(columns.encode(), np.uint8),
    }


class ParquetShard(Shard):
    """An open Parquet file.

    Args:
        file: it; it must be as it was.
        arrays: its index: see `scan_parquet`.
        options: which columns are wanted.
    """

    def __init__(self, file: ShardFile, arrays: Arrays, options: Options) -> None:
        super().__init__(StoredBytes(file))
        self._ends = arrays["ends"]
        with _reading(self.path, DatasetError):
            self._file = _opened(self.path)
            self._columns = self._file.schema_arrow.names
        self._chosen = [name for name in self._columns if options.wants(name)]
        self._encoded = options.encoded
        self._groups: OrderedDict[int, Any] = OrderedDict()  # decoded tables

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: a row as a dict of Python values; of a picture that is encoded, its bytes."""
        wanted = np.asarray(positions)
        groups = np.searchsorted(self._ends, wanted, "right")
        found: list[Any] = [None] * len(wanted)
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            begin = self._ends[group - 1] if group else 0
            with _reading(self.path, DatasetError):
                table = self._group(group).take(wanted[rows] - begin)
                for row, sample in zip(rows.tolist(), row_dicts(table, self._encoded), strict=True):
                    found[row] = sample
        return found

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return list(self._columns)

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard: where its row group begins."""
        group = int(np.searchsorted(self._ends, position, "right"))
        column = self._file.metadata.row_group(group).column(0)
        return int(column.dictionary_page_offset or column.data_page_offset), ""

    def _group(self, group: int) -> Any:
        found = self._groups.get(group)
        if found is None:
            found = self._file.read_row_group(group, columns=self._chosen)
            self._groups[group] = found
            while len(self._groups) > _KEPT:
                self._groups.popitem(last=False)
        return found


def row_dicts(table: Any, encoded: Iterable[str]) -> list[dict[str, Any]]:
    """Return the rows of a table as dicts of Python values.

    Args:
        table: of pyarrow.
        encoded: the columns of which a picture is its bytes.
    """
    rows: list[dict[str, Any]] = table.to_pylist()
    for name in set(encoded).intersection(table.column_names):
        for row in rows:
            if isinstance(row[name], dict) and set(row[name]) == _PICTURE:
                row[name] = row[name]["bytes"]
    return rows


def _opened(path: str) -> Any:
    required_pyarrow(f"'{path}' is a Parquet file")
    from pyarrow import parquet

    return parquet.ParquetFile(path)


@contextmanager
def _reading(path: str, kind: type[Exception]) -> Iterator[None]:
    """Raise `kind`, which names the file, where pyarrow cannot read it."""
    try:
        yield
    except (ConfigError, DatasetError):
        raise
    except Exception as error:  # pyarrow's own, and OSError, ValueError, KeyError
        raise kind(
            f"the shard '{path}' is damaged, or encrypted: {error}. Fetch it again, or write it"
            " anew"
        ) from error
