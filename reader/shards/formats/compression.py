"""Shards that are compressed as a whole: to bytes, within what they say they have.

Imports the standard library, and pyarrow for what it lacks. Keeps no state.
"""

from __future__ import annotations

import bz2
import gzip
import io
import zlib
from typing import Any

from reader.errors import ConfigError, DatasetError
from reader.stores.files import Files, StoredBytes, StoredFile

__all__ = ["decompressed", "packed_of", "required_pyarrow", "stored_bytes"]

_OF_ARROW = {"zstd": "zstd", "zst": "zstd", "br": "brotli", "snappy": "snappy", "lz4": "lz4"}
_SUFFIXES = {  # of names: how the file is compressed, and the suffix of what is in it
    **{f".{how}": (how, "") for how in ("gz", "bz2", "zst", "zstd", "br", "lz4", "snappy")},
    ".tgz": ("gz", ".tar"),
    ".tbz2": ("bz2", ".tar"),
    **{f".{how}": (how, "") for how in ("xz", "lzma", "z", "7z", "zip")},  # not read, and told so
    ".txz": ("xz", ".tar"),
}
_OURS: dict[str, Any] = {"gz": gzip.open, "bz2": bz2.open}
_BLOCK = 1 << 16  # bytes; pyarrow never frees what it has made for a read that failed
_MOST_HEAD = 5  # bytes that say the length of what snappy has compressed
_MOST_OF_SNAPPY = 64  # bytes that a byte can become; a copy has three for up to 64
MOST_NBYTES = 1 << 33  # of a shard, decompressed


def packed_of(name: str) -> tuple[str, str]:
    """Return the name of what a file holds, and how it is compressed; "": it is not."""
    stem, dot, suffix = name.rpartition(".")
    how, inner = _SUFFIXES.get(dot + suffix.lower(), ("", ""))
    return (stem + inner, how) if how else (name, "")


def stored_bytes(file: StoredFile, files: Files) -> StoredBytes:
    """Return the bytes of a shard, decompressed where its name says that it is compressed.

    Raises:
        DatasetError: it cannot be read, has changed, or is damaged.
        ConfigError: what decompresses it is not installed.
    """
    stored = files.stored(file)
    how = packed_of(file.path)[1]
    if not how:
        return stored
    content = decompressed(stored.read(0, stored.nbytes), how, None, file.path)
    return files.stored(file, content)


def decompressed(content: bytes, how: str, nbytes: int | None, path: str) -> bytes:
    """Return what a shard is decompressed to.

    Args:
        content: of the file.
        how: an ending of names: "zstd", "zst", "gz", "bz2", "br", "snappy" or "lz4".
        nbytes: of the result; None: what the file says.
        path: for messages.

    Raises:
        ConfigError: `how` is none of these, or what reads it is not installed.
        DatasetError: the shard is damaged, or has another number of bytes.
    """
    if nbytes is not None and not 0 <= nbytes <= MOST_NBYTES:
        raise DatasetError(
            f"the shard '{path}' is said to have {nbytes:,} bytes decompressed, and the most is"
            f" {MOST_NBYTES:,}: write smaller shards"
        )
    try:
        found = _decompressed(content, how, nbytes, path)
    except (OSError, EOFError, ValueError, zlib.error, MemoryError) as error:
        if isinstance(error, (ConfigError, DatasetError)):
            raise
        raise DatasetError(
            f"the shard '{path}' cannot be decompressed by {how}: {str(error) or repr(error)}."
            " Fetch or write it again"
        ) from error
    if nbytes is not None and len(found) != nbytes:
        raise DatasetError(
            f"the shard '{path}' has {len(found):,} bytes decompressed, and is said to have"
            f" {nbytes:,}: fetch or write it again"
        )
    return found


def _decompressed(content: bytes, how: str, nbytes: int | None, path: str) -> bytes:
    if how in _OURS:
        with _OURS[how](io.BytesIO(content)) as file:
            return _read_within(file, MOST_NBYTES if nbytes is None else nbytes, path)
    if how not in _OF_ARROW:
        known = ", ".join([*_OURS, *_OF_ARROW])
        raise ConfigError(
            f"the shard '{path}' is compressed by {how!r}, which is none of {known}: decompress it"
        )
    pa = required_pyarrow(f"the shard '{path}' is compressed by {how}")
    codec = _OF_ARROW[how]
    if codec == "snappy":  # pyarrow returns as many bytes as it is asked for, if there are fewer
        nbytes = _nbytes_of_snappy(content)
    if codec == "snappy" or (codec == "zstd" and nbytes is not None):
        return bytes(pa.decompress(content, decompressed_size=nbytes, codec=codec, asbytes=True))
    with pa.CompressedInputStream(pa.BufferReader(content), codec) as stream:
        return _read_within(stream, MOST_NBYTES if nbytes is None else nbytes, path)


def _nbytes_of_snappy(content: bytes) -> int:
    """Return what its first bytes say. ValueError: the content cannot have so many."""
    nbytes = 0
    for place, byte in enumerate(content[:_MOST_HEAD]):
        nbytes |= (byte & 0x7F) << 7 * place
        if byte < 0x80 and nbytes <= _MOST_OF_SNAPPY * len(content):
            return nbytes
    raise ValueError("it begins with no length of its content")


def _read_within(file: Any, most: int, path: str) -> bytes:
    """Return all that a file decompresses to. DatasetError: that is more than `most` bytes."""
    parts, rest = [], most + 1
    while rest and (part := file.read(min(rest, _BLOCK))):
        parts.append(part)
        rest -= len(part)
    if not rest:
        raise DatasetError(
            f"the shard '{path}' has more than {most:,} bytes decompressed: fetch it again, or"
            " write smaller shards"
        )
    return b"".join(parts)


def required_pyarrow(what: str) -> Any:
    """Return pyarrow. ConfigError: it is not installed; `what`: what it reads, for the message."""
    try:
        import pyarrow
    except ImportError as error:
        raise ConfigError(
            f"{what}, which pyarrow reads, and it cannot be imported: {error}. Run: pip install"
            ' "lodreader[shards]"'
        ) from error
    return pyarrow
