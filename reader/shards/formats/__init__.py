"""The formats of shards: one file each, and the table that finds them.

A format is a row of FORMATS; a new one is a new file and a new row.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import Any, NamedTuple

from reader.errors import ConfigError, got
from reader.shards.formats.array_record import (
    ArrayRecordShard,
    begins_array_record,
    scan_array_record,
)
from reader.shards.formats.compression import packed_of, stored_bytes
from reader.shards.formats.files import list_files, open_files
from reader.shards.formats.json_lines import JsonLinesShard, scan_json_lines
from reader.shards.formats.litdata import (
    describes_litdata,
    open_litdata,
    opening_litdata,
    read_litdata,
)
from reader.shards.formats.mds import describes_mds, open_mds, opening_mds, read_mds
from reader.shards.formats.parquet import (
    ParquetShard,
    begins_parquet,
    opening_parquet,
    scan_parquet,
)
from reader.shards.formats.shard import Arrays, ListedShard, Options, Shard
from reader.shards.formats.tar import TarShard, begins_tar, scan_tar
from reader.shards.formats.tar_lists import describes_wids, read_energon, read_wids
from reader.shards.formats.tfrecord import TfRecordShard, begins_tfrecord, scan_tfrecord
from reader.stores.files import Files, StoredBytes, StoredFile

__all__ = ["FORMATS", "Format", "find_format", "format_by_name", "read_index"]

_HEAD = 512  # bytes of a file that are looked at
_OF_MANY = re.compile(r"-[0-9]+-of-[0-9]+$")  # behind a suffix: "train.tfrecord-00001-of-00003"


_Open = Callable[[StoredFile, str, Arrays, Options], Shard]


def _of_opening(file: StoredFile, _: str) -> list[tuple[int, int]]:
    """Return where the bytes lie that opening a file reads: all, if it is compressed."""
    return [(0, file.nbytes)] if packed_of(file.path)[1] else []


class Format(NamedTuple):
    """A format of shards.

    Attributes:
        name: of it, as `format=` takes it.
        suffixes: of the names of its files.
        begins: whether a file that begins so is of it; None: its files cannot be known so.
        scan: returns a file's index as arrays, of which sums may be compared; "count" of them is
            how many samples it has. None: `read` does.
        open: returns a shard, of a file, its note, its arrays and the options.
        describes: whether what an index.json holds is of it; None: it has none.
        read: returns the shards that an index.json of a folder names.
        list_folder: returns the shard that a folder is, for a format that is asked for by name.
        counts: returns how many samples files of a folder have, as another program says; of the
            folder, and whether all of it is asked for.
        has_blocks: whether samples may be blocks of tokens.
        opening: returns where the bytes lie that opening a shard reads, of the file and its note.
    """

    name: str
    suffixes: tuple[str, ...]
    begins: Callable[[bytes], bool] | None
    scan: Callable[[StoredBytes, bool], dict[str, Any]] | None
    open: _Open
    describes: Callable[[Any], bool] | None = None
    read: Callable[[str, dict[str, Any], Options], list[ListedShard]] | None = None
    list_folder: Callable[[str, Files], list[ListedShard]] | None = None
    counts: Callable[[str, bool, Files], dict[str, int]] | None = None
    has_blocks: bool = False
    opening: Callable[[StoredFile, str], list[tuple[int, int]]] = _of_opening


def _opens(kind: Callable[[StoredBytes, Arrays, Options], Shard]) -> _Open:
    """Return what opens a shard of a class that reads the file's bytes, decompressed."""

    def open_shard(file: StoredFile, _: str, arrays: Arrays, options: Options) -> Shard:
        return kind(stored_bytes(file, options.files), arrays, options)

    return open_shard


def _open_array_record(file: StoredFile, _: str, __: Arrays, options: Options) -> Shard:
    return ArrayRecordShard(file, options)


def _open_parquet(file: StoredFile, _: str, arrays: Arrays, options: Options) -> Shard:
    return ParquetShard(file, arrays, options)


FORMATS = {
    each.name: each
    for each in (
        Format(
            "tar",
            (".tar",),
            begins_tar,
            scan_tar,
            _opens(TarShard),
            describes_wids,
            read_wids,
            counts=read_energon,
        ),
        Format("mds", (), None, None, open_mds, describes_mds, read_mds, opening=opening_mds),
        Format(
            "litdata",
            (),
            None,
            None,
            open_litdata,
            describes_litdata,
            read_litdata,
            has_blocks=True,
            opening=opening_litdata,
        ),
        Format(
            "tfrecord",
            (".tfrecord", ".tfrecords", ".tfrec"),
            begins_tfrecord,
            scan_tfrecord,
            _opens(TfRecordShard),
        ),
        Format(
            "parquet",
            (".parquet", ".pq"),
            begins_parquet,
            scan_parquet,
            _open_parquet,
            opening=opening_parquet,
        ),
        Format("jsonl", (".jsonl", ".ndjson"), None, scan_json_lines, _opens(JsonLinesShard)),
        Format(
            "array_record",
            (".array_record", ".arrayrecord"),
            begins_array_record,
            scan_array_record,
            _open_array_record,
        ),
        Format("files", (), None, None, open_files, list_folder=list_files),
    )
}


def format_by_name(path: str) -> Format | None:
    """Return the format that the name of a file has, compressed or not; None: it has none."""
    name = _OF_MANY.sub("", os.path.basename(path).lower())  # noqa: PTH119
    plain = packed_of(name)[0]
    return next((each for each in FORMATS.values() if plain.endswith(each.suffixes)), None)


def find_format(path: str, files: Files) -> Format | None:
    """Return the format of a file, by its name or its first bytes; None: it has none of them.

    Raises:
        ConfigError: it cannot be read.
    """
    found = format_by_name(path)
    if found is not None:
        return found
    if packed_of(path)[1]:
        return None
    try:
        head = files.head(path, _HEAD)
    except OSError as error:
        raise ConfigError(f"the shard '{path}' cannot be read: {error}") from error
    return next((each for each in FORMATS.values() if each.begins and each.begins(head)), None)


def read_index(path: str, options: Options) -> tuple[Format, list[ListedShard]] | None:
    """Return the format and shards that an index names; None: there is none.

    Args:
        path: of a folder, which may have an index.json, or of the index.
        options: how samples are decoded.

    Raises:
        ConfigError: it cannot be read, or is of no known format.
    """
    is_folder = options.files.is_folder(path)
    folder = path if is_folder else os.path.dirname(path)  # noqa: PTH120
    path = os.path.join(path, "index.json") if folder == path else path  # noqa: PTH118
    try:
        with options.files.listed_meanwhile(path):
            index = options.files.json(path)
    except FileNotFoundError:
        return None
    for found in FORMATS.values():
        if found.describes is not None and found.read is not None and found.describes(index):
            return found, found.read(folder, index, options)
    raise ConfigError(f"'{path}' is the index of no known format: it holds {got(index)}")
