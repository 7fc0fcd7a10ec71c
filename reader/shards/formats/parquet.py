"""Parquet: rows as samples, read by row groups.

Imports NumPy and pyarrow. A shard keeps the last row groups that it decoded.
"""

from __future__ import annotations

import inspect
import os
from collections import Counter, OrderedDict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError
from reader.shards.formats.compression import required_pyarrow
from reader.shards.formats.shard import UNIT_ENDS, Arrays, Options, Shard, errors_of_library
from reader.stores.files import StoredBytes, StoredFile

__all__ = ["ParquetShard", "begins_parquet", "opening_parquet", "row_dicts", "scan_parquet"]

_MAGIC = b"PAR1"
_LISTS = ("_metadata", "_common_metadata")  # files that name the row groups of others, or none
_FOOTER = 1 << 16  # bytes, in most files
_KEPT = 2  # row groups of a file, however large
_KEPT_NBYTES = 1 << 22  # of them, beyond which no others are kept; a process opens 64 files
_MOST_ROWS = 1 << 32  # of a row group
_CHECKS = "page_checksum_verification"  # an argument of pyarrow, which older releases lack
_PICTURE = {"bytes", "path"}  # the fields of a picture, as the library `datasets` writes it


def begins_parquet(head: bytes) -> bool:
    """Whether a file that begins so is a Parquet file."""
    return head.startswith(_MAGIC)


def scan_parquet(stored: StoredBytes, _: bool) -> dict[str, Any]:
    """Return the index of a file: where its row groups end, in rows, and its "columns".

    Raises:
        ConfigError: it is damaged, or has two columns of one name.
    """
    with errors_of_library(stored.path, ConfigError), _opened(stored, False) as file:
        metadata = file.metadata
        groups = range(0 if os.path.basename(stored.path) in _LISTS else metadata.num_row_groups)  # noqa: PTH119
        rows = [metadata.row_group(group).num_rows for group in groups]
        names = file.schema_arrow.names
        columns = "\0".join(f"{each.name}: {each.type}" for each in file.schema_arrow)
    for group, count in enumerate(rows):
        if not 0 <= count < _MOST_ROWS:
            raise ConfigError(
                f"the shard '{stored.path}' is damaged: its row group {group:,} is said to have"
                f" {count:,} rows. Fetch it again, or write it anew"
            )
    twice = next((name for name, count in Counter(names).items() if count > 1), None)
    if twice is not None:
        raise ConfigError(
            f"the shard '{stored.path}' has two columns of the name {twice!r}, and a sample is a"
            " dict by name: write it anew with one name for each"
        )
    return {
        "count": np.array([sum(rows)], np.int64),
        UNIT_ENDS: np.cumsum(rows, dtype=np.int64),
        "columns": np.frombuffer(columns.encode(), np.uint8),
    }


def opening_parquet(file: StoredFile, _: str) -> list[tuple[int, int]]:
    """Return where the bytes lie that opening a file reads: its end, in most files."""
    return [(max(0, file.nbytes - _FOOTER), file.nbytes)]


class ParquetShard(Shard):
    """An open Parquet file.

    Args:
        file: it; it must be as it was.
        arrays: its index: see `scan_parquet`.
        options: which columns are wanted, and whether the sums of pages are compared.

    `unpacked_nbytes` is of the row groups that it keeps, and changes with them.
    """

    def __init__(self, file: StoredFile, arrays: Arrays, options: Options) -> None:
        super().__init__(file.path)
        self._stored = options.files.stored(file)  # keeps the file open, which must be as it was
        self._ends = arrays[UNIT_ENDS]
        with errors_of_library(self.path, DatasetError):
            self._file = _opened(self._stored, options.check)
            self._columns = self._file.schema_arrow.names
        self._chosen = [name for name in self._columns if options.wants(name)]
        self._options = options
        self._groups: OrderedDict[int, Any] = OrderedDict()  # decoded tables
        self._sound: set[int] = set()  # groups of which the first column was read

    def samples(self, positions: Sequence[int]) -> list[dict[str, Any]]:
        """See Shard: a row as a dict of Python values; of a picture that is encoded, its bytes."""
        wanted = np.asarray(positions)
        groups = np.searchsorted(self._ends, wanted, "right")
        found: list[Any] = [None] * len(wanted)
        for group in np.unique(groups).tolist():
            rows = np.flatnonzero(groups == group)
            begin = self._ends[group - 1] if group else 0
            with errors_of_library(self.path, DatasetError):
                samples = row_dicts(self._group(group), wanted[rows] - begin, self._options)
                for row, sample in zip(rows.tolist(), samples, strict=True):
                    found[row] = sample
        return found

    def read_ahead(self) -> None:
        """See Shard: a row group is read whole, and others may not be wanted."""

    def names(self, position: int) -> list[str]:  # noqa: ARG002
        """See Shard."""
        return list(self._columns)

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard: where its row group begins."""
        group = int(np.searchsorted(self._ends, position, "right"))
        if group not in self._sound:
            # of damaged words about a column pyarrow ends the process, but where it reads that
            with errors_of_library(self.path, DatasetError):
                self._file.read_row_group(group, columns=self._columns[:1])
            self._sound.add(group)
        column = self._file.metadata.row_group(group).column(0)
        return int(column.dictionary_page_offset or column.data_page_offset), ""

    def _group(self, group: int) -> Any:
        found = self._groups.get(group)
        if found is None:
            found = self._file.read_row_group(group, columns=self._chosen)
            self._groups[group] = found
            nbytes = sum(each.nbytes for each in list(self._groups.values()))
            while len(self._groups) > _KEPT and nbytes > _KEPT_NBYTES:
                nbytes -= self._groups.popitem(last=False)[1].nbytes
            self.unpacked_nbytes = nbytes
        return found


def row_dicts(table: Any, rows: npt.NDArray[Any], options: Options) -> list[dict[str, Any]]:
    """Return some rows of a table of pyarrow, by their numbers, as dicts of Python values.

    Of columns that are wanted encoded a picture is its bytes, and of those that are wanted as
    arrays a list of numbers is one.
    """
    names = table.column_names
    if not names:  # pyarrow takes no rows then
        return [{} for _ in rows]
    chosen = table.take(rows)
    columns = [_values(*each, options) for each in zip(chosen.columns, names, strict=True)]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def _values(column: Any, name: str, options: Options) -> list[Any]:
    """Return the values of a column."""
    arrays = _arrays(column) if name in options.numbers else None
    if arrays is not None:
        return arrays
    values: list[Any] = column.to_pylist()
    if name in options.encoded:
        return [
            value["bytes"] if isinstance(value, dict) and set(value) == _PICTURE else value
            for value in values
        ]
    return values


def _arrays(column: Any) -> list[Any] | None:
    """Return an array for each list of numbers; None: some are none."""
    from pyarrow import types

    kind = column.type
    if column.null_count or not (types.is_list(kind) or types.is_large_list(kind)):
        return None
    if not (types.is_integer(kind.value_type) or types.is_floating(kind.value_type)):
        return None
    lists = column.combine_chunks()
    if lists.values.null_count:
        return None
    numbers, ends = lists.values.to_numpy(zero_copy_only=False), lists.offsets.to_pylist()
    return [numbers[begin:end] for begin, end in pairwise(ends)]


def _opened(stored: StoredBytes, check: bool) -> Any:
    """Return an open file; `check`: whether sums of pages are compared, if this pyarrow can."""
    required_pyarrow(f"'{stored.path}' is a Parquet file")
    from pyarrow import parquet

    can_check = _CHECKS in inspect.signature(parquet.ParquetFile).parameters
    # of a store all columns of a row group are read at once; where they lie cannot be asked for:
    # see origin
    is_far = stored.source is not stored.path
    options = {_CHECKS: True} if check and can_check else {}
    return parquet.ParquetFile(stored.source, pre_buffer=is_far, **options)
