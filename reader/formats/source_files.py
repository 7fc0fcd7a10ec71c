"""The files of a table: which of a folder, what kind each is, and columns that folders name.

Imports the errors, and files by their paths. Reads names, and the first bytes of files; nothing
here needs pyarrow.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from typing import NamedTuple

from reader.errors import ConfigError, DatasetError, remedy_for
from reader.stores.files import Files
from reader.stores.paths import folder_key, warn_of_splits

__all__ = ["ARROW", "CSV", "JSON", "PARQUET", "STREAM", "SourceFile", "files_of", "unreadable"]

PARQUET, ARROW, STREAM, CSV, JSON = "Parquet", "Arrow", "Arrow stream", "CSV", "JSON lines"
_BEGINS = {b"PAR1": PARQUET, b"ARROW1": ARROW, b"\xff\xff\xff\xff": STREAM}
_SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
_TEXTS = {".csv": CSV, ".tsv": CSV, ".jsonl": JSON, ".ndjson": JSON, ".json": JSON}
_PACKED = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PACKED_BEGINS = {  # what is compressed says so, whatever its name ends in
    "gzip": rb"\x1f\x8b",
    "bz2": rb"BZh[1-9](1AY&|\x17rE8)",
    "zstd": rb"\x28\xb5\x2f\xfd",
    "lz4": rb"\x04\x22\x4d\x18",
}
_BEGIN, _END = 8, 1 << 16  # bytes: what says its kind, and what pyarrow reads at the end
_SPLITS = "dataset_dict.json"
_REFUSED = {  # by how a file begins
    b"FEA1": "is a Feather file of version 1: write it anew as version 2",
    b"PARE": "is an encrypted Parquet file: read it with its keys by pyarrow.parquet.ParquetFile("
    "path, decryption_properties=...).read(), and pass that table",
    b"ORC": "is an ORC file: read it by pyarrow.orc.read_table(path), and pass that table",
}


class SourceFile(NamedTuple):
    """A file of a table.

    Attributes:
        path: of it.
        kind: PARQUET, ARROW, STREAM, CSV or JSON.
        packed: how it is compressed as a whole, as pyarrow names it; None: it is not.
        keys: values by column that the names of its folders give, such as "year=2024"; None is a
            null.
    """

    path: str
    kind: str
    packed: str | None
    keys: dict[str, str | None]


def files_of(source: str | list[str], files: Files) -> list[SourceFile]:
    """Return the files of a path, a folder, or a list of paths.

    Raises:
        ConfigError: one cannot be read, or is no file of a table.
    """
    if isinstance(source, list):
        return _opened([(path, {}) for path in source], files)
    if not files.is_folder(source):  # raises nothing: what is no path is refused later
        return _opened([(source, {})], files)
    names = _names_in(source, files)
    if _SPLITS in names:
        splits = files.folders(source)
        raise ConfigError(
            f"the folder '{source}' has {_SPLITS}: the library `datasets` saved several splits"
            f" there, each in a folder of its own. Pass one of these folders: {', '.join(splits)}"
        )
    found = list(_listed(source, {}, files))
    if not found:
        raise ConfigError(
            f"the folder '{source}' has no file that ends in {', '.join((*_SUFFIXES, *_TEXTS))},"
            f" but {len(names)} other entries: pass a folder with such files in it,"
            " or a list of files"
        )
    first = found[0]
    for path, keys in found:
        if list(keys) != list(first[1]):
            raise ConfigError(
                f"'{first[0]}' and '{path}' lie in folders with other names of columns,"
                f" {list(first[1])} and {list(keys)}: pass a list of files, or one of the folders"
            )
    warn_of_splits(source, [path for path, _ in found])
    return _opened(found, files)


def unreadable(path: str, error: Exception) -> ConfigError:
    """Return the error of a file that the system does not give."""
    remedy = "pass the path of a Parquet or Arrow file that you may read, or a folder of them"
    if not isinstance(error, PermissionError):  # whose usual remedy is of system calls
        remedy = remedy_for(error, remedy)
    return ConfigError(f"{path!r} cannot be read as a table: {error}; {remedy}")


def _names_in(folder: str, files: Files) -> list[str]:
    try:
        return files.names(folder)
    except OSError as error:
        raise unreadable(folder, error) from error


def _listed(
    folder: str, keys: dict[str, str | None], files: Files
) -> Iterator[tuple[str, dict[str, str | None]]]:
    """Yield the files of a folder by name, then those of its folders NAME=VALUE."""
    names = [name for name in _names_in(folder, files) if not name.startswith((".", "_"))]
    folders = set(files.folders(folder))
    found = [name for name in names if name.lower().endswith(_SUFFIXES)]
    if not found:  # texts beside them are something else, such as a description
        found = [name for name in names if _text_kind(name)[0] is not None]
    found = [name for name in found if name not in folders]
    yield from ((os.path.join(folder, name), keys) for name in found)  # noqa: PTH118
    for name in names:
        said = folder_key(name)
        if said is None or name not in folders:
            continue
        inner = os.path.join(folder, name)  # noqa: PTH118
        if said[0] in keys:  # a link to a folder above it would have no end
            raise ConfigError(
                f"the folder '{inner}' names the column {said[0]!r} again: pass a list of files"
            )
        yield from _listed(inner, {**keys, said[0]: said[1]}, files)


def _text_kind(path: str) -> tuple[str | None, str | None]:
    """Return what kind of text a name ends in, and how the file is compressed."""
    stem, suffix = os.path.splitext(path.lower())  # noqa: PTH122
    packed = _PACKED.get(suffix)
    if packed is not None:
        suffix = os.path.splitext(stem)[1]  # noqa: PTH122
    return _TEXTS.get(suffix), packed


def _opened(found: list[tuple[str, dict[str, str | None]]], files: Files) -> list[SourceFile]:
    """Return files with their kinds. ConfigError: one is no file of a table."""
    try:
        files.fetch_ends([path for path, _ in found], _BEGIN, _END)
    except (OSError, DatasetError) as error:
        raise unreadable(found[0][0], error) from error
    return [_kind_of(path, keys, files) for path, keys in found]


def _kind_of(path: str, keys: dict[str, str | None], files: Files) -> SourceFile:
    """Return a file with its kind. ConfigError: it is no file of a table."""
    try:
        begin = files.head(path, _BEGIN)  # an empty path is no file
    except (OSError, ValueError) as error:  # ValueError: no path has a null byte
        raise unreadable(path, error) from error
    kind, packed = _text_kind(path)
    if kind is not None:
        begun = (each for each, magic in _PACKED_BEGINS.items() if re.match(magic, begin))
        return SourceFile(path, kind, next(begun, packed), keys)
    for magic, kind in _BEGINS.items():
        if begin.startswith(magic):
            return SourceFile(path, kind, None, keys)
    for magic, why in _REFUSED.items():
        if begin.startswith(magic):
            raise ConfigError(f"'{path}' {why}")
    raise ConfigError(
        f"'{path}' is neither a Parquet nor an Arrow file: it begins with {begin!r}, and those"
        f" begin with {', '.join(map(repr, _BEGINS))}. The name of a text ends in"
        f" {', '.join(_TEXTS)}, with or without {', '.join(_PACKED)}"
    )


def is_tabbed(path: str) -> bool:
    """Whether the values of a CSV file are separated by tabs, by its name."""
    return bool(re.search(r"\.tsv(\.\w+)?$", path.lower()))
