"""The index of Megatron's `.bin` files: how many tokens each sequence has.

Imports NumPy and files by their paths. The format is that of IndexedDataset of Megatron-LM: the
magic bytes MMIDIDX, a version, the type of the tokens, how many sequences and ends of documents
follow, and these arrays. The index may be of somebody else: all of it is compared with its file.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError
from reader.files import open_regular
from reader.stores.files import Files, StoredFile

__all__ = ["MAGIC", "TYPES", "index_bytes", "read_index"]

MAGIC = b"MMIDIDX\0\0"
_VERSION = 1
_HEAD = struct.Struct("<9sQBQQ")  # magic, version, type, counts of sequences and of document ends
TYPES: dict[int, np.dtype[Any]] = {  # by the number that the index has for them
    1: np.dtype("u1"),
    2: np.dtype("i1"),
    3: np.dtype("<i2"),
    4: np.dtype("<i4"),
    5: np.dtype("<i8"),
    8: np.dtype("<u2"),
}
_FLOATS = {6: "float64", 7: "float32"}
_MOST = 1 << 40  # sequences


def read_index(
    path: str, tokens: StoredFile, files: Files
) -> tuple[np.dtype[Any], npt.NDArray[Any]]:
    """Return the type of the tokens, and how many each sequence has.

    Args:
        path: of the index.
        tokens: the file that it is of.
        files: how they are read.

    Raises:
        ConfigError: it cannot be read, is damaged, or does not fit the file of the tokens.
    """
    content: npt.NDArray[Any]
    try:
        if files.is_here(path):
            with open(path, "rb", opener=open_regular) as file:
                content = np.memmap(file, np.uint8, "r")
        else:
            content = np.frombuffer(files.head(path, -1), np.uint8)
    except (OSError, ValueError, DatasetError) as error:
        raise ConfigError(f"'{path}' cannot be read as Megatron's index: {error}") from error
    if len(content) < _HEAD.size:
        raise _damaged(path, f"it has {len(content)} bytes, and its head has {_HEAD.size}")
    magic, version, code, count, documents = _HEAD.unpack(content[: _HEAD.size].tobytes())
    if magic != MAGIC:
        raise ConfigError(
            f"'{path}' is no index of Megatron's: it begins with {magic!r}, and those with"
            f" {MAGIC!r}. Pass the file of the tokens, with document_end=, if it has none"
        )
    if version != _VERSION:
        raise ConfigError(
            f"'{path}' is an index of version {version}, and {_VERSION} is known: write it anew by"
            " Megatron's tools/preprocess_data.py"
        )
    dtype = TYPES.get(code)
    if dtype is None:
        what = _FLOATS.get(code)
        raise ConfigError(
            f"'{path}' says that the tokens have the type {code}, which is"
            f" {f'{what}, and no type of tokens' if what else 'not known'}: it is damaged, or of"
            " something else than text"
        )
    fixed = _HEAD.size + count * 12 + documents * 8
    if max(count, documents) > _MOST or len(content) not in (fixed, fixed + count):
        raise _damaged(
            path,
            f"it names {count:,} sequences and {documents:,} ends of documents, and has"
            f" {len(content):,} bytes: they take {fixed:,}, or {fixed + count:,} with modes",
        )
    at = _HEAD.size
    lengths = content[at : at + 4 * count].view("<i4").astype(np.int64)
    at += 4 * count
    pointers = content[at : at + 8 * count].view("<i8")
    at += 8 * count
    ends = content[at : at + 8 * documents].view("<i8")
    _check(path, tokens, dtype, lengths, pointers, ends)
    return dtype, lengths


def _check(
    path: str,
    tokens: StoredFile,
    dtype: np.dtype[Any],
    lengths: npt.NDArray[Any],
    pointers: npt.NDArray[Any],
    ends: npt.NDArray[Any],
) -> None:
    """Raise ConfigError where an index does not fit itself or its file."""
    if (lengths < 0).any():
        bad = int(np.argmax(lengths < 0))
        raise _damaged(path, f"sequence {bad:,} has {int(lengths[bad]):,} tokens")
    nbytes = lengths * dtype.itemsize
    wanted = np.cumsum(nbytes) - nbytes
    if not np.array_equal(wanted, pointers):
        bad = int(np.argmax(wanted != pointers))
        raise _damaged(
            path,
            f"sequence {bad:,} begins at {int(pointers[bad]):,}, and those before it end at"
            f" {int(wanted[bad]):,}",
        )
    total = int(nbytes.sum())
    if total != tokens.nbytes:
        raise ConfigError(
            f"'{path}' does not fit its file: its {len(lengths):,} sequences of {dtype} take"
            f" {total:,} bytes, and '{tokens.path}' has {tokens.nbytes:,}. They are of different"
            " versions, or one is cut off: fetch both again, or write them anew"
        )
    if not len(ends) or ends[0] or int(ends[-1]) != len(lengths) or (np.diff(ends) < 0).any():
        raise _damaged(
            path,
            f"its documents are to end at {ends[:3].tolist()} and so on, and must do so from 0 to"
            f" {len(lengths):,}, the number of its sequences",
        )


def _damaged(path: str, why: str) -> ConfigError:
    return ConfigError(
        f"'{path}' is a damaged index of Megatron's: {why}. Fetch it again, or write it anew"
    )


def index_bytes(lengths: npt.NDArray[Any], dtype: np.dtype[Any]) -> bytes:
    """Return the index of sequences that are a document each.

    Raises:
        ConfigError: one has more tokens than the format holds.
    """
    if len(lengths) and int(lengths.max()) >= 1 << 31:
        raise ConfigError(
            f"document {int(np.argmax(lengths)):,} has {int(lengths.max()):,} tokens, and those of"
            f" Megatron's files {(1 << 31) - 1:,} at most: cut it into several"
        )
    code = next(code for code, each in TYPES.items() if each == dtype)
    nbytes = lengths * dtype.itemsize
    return b"".join(
        [
            _HEAD.pack(MAGIC, _VERSION, code, len(lengths), len(lengths) + 1),
            lengths.astype("<i4").tobytes(),
            (np.cumsum(nbytes) - nbytes).astype("<i8").tobytes(),
            np.arange(len(lengths) + 1, dtype="<i8").tobytes(),
        ]
    )
