"""A flat file of tokens: opened as its kind, or refused by the name of what it is.

Imports NumPy, files by their paths, and the kinds of files. Nothing is read but the beginning of a
file: its tokens are mapped, and the mapping belongs to the caller; of one in a store they are
fetched when they are asked for.
"""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError, got, remedy_for
from reader.formats.file_kinds import BEGIN_NBYTES, kind_of
from reader.stores.files import Files, StoredFile

__all__ = ["StoredTokens", "Tokens", "as_integers", "check_as_dtype", "open_tokens"]

Tokens = npt.NDArray[Any]

_TYPES = ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64")
_USUAL = np.dtype(np.uint16)
_NPY = b"\x93NUMPY"
_COMPRESSED = {".gz": b"\x1f\x8b\x08", ".bz2": b"BZh", ".zst": b"\x28\xb5\x2f\xfd"}
_REMEDY = "write the tokens alone, by numpy.save or array.tofile, and pass that file"

# llm.c begins a shard with 256 int32: a magic number, a version, the count of tokens
_SHARD_NBYTES = 1024
_SHARD = np.dtype("<i4")
_SHARD_TYPES: dict[tuple[int, int], np.dtype[Any]] = {
    (20240520, 1): np.dtype("<u2"),
    (20240801, 7): np.dtype("<u4"),
}
_SHARD_MAGICS = {magic for magic, _ in _SHARD_TYPES}
# of llm.c's other files, which begin in the same way
_NO_SHARDS = {
    20240522: "questions to evaluate a model by",
    20240326: "the weights of a model",
    20240327: "the states of a model to compare with",
    20240328: "the tokens of a tokenizer",
    20240527: "the state of a training",
}

_TEXT_NBYTES = 4096  # of a file that are looked at for text
_LEAST_TEXT = 32  # fewer bytes may be tokens
_LEAST_BYTES = 4  # different ones; fewer are a few tokens again and again
_BLANKS = "\t\n\r\f\ufeff"
_CONTROLS = re.compile(rb"[\x00-\x08\x0b\x0e-\x1f\x7f]")  # no text has these
_MARKS = {b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


class StoredTokens:
    """The tokens of a file in a store.

    Args:
        files: how it is read.
        file: it, as it has to stay.
        dtype: of the tokens.
        begin: where they begin, in bytes.
        count: how many there are.
    """

    def __init__(
        self, files: Files, file: StoredFile, dtype: np.dtype[Any], begin: int, count: int
    ) -> None:
        self.dtype, self.file, self.begin = dtype, file, begin
        self._files, self._count = files, count

    def __len__(self) -> int:
        return self._count

    def windows(self, firsts: Sequence[int], length: int) -> Tokens:
        """Return windows of so many tokens, a row each, which are fetched together.

        Args:
            firsts: the number of the first token of each.
            length: of each, in tokens.

        Raises:
            DatasetError: they cannot be fetched, or the file has changed.
        """
        pieces = self.pieces(firsts, [length] * len(firsts))
        return np.concatenate([np.empty(0, self.dtype), *pieces]).reshape(len(pieces), length)

    def pieces(self, firsts: Sequence[int], counts: Sequence[int]) -> list[Tokens]:
        """Return pieces of several lengths, which are fetched together. See `windows`."""
        step = self.dtype.itemsize
        places = [self.begin + first * step for first in firsts]
        sizes = [count * step for count in counts]
        ranges = [(place, place + nbytes) for place, nbytes in zip(places, sizes) if nbytes]
        self._files.fetch([(self.file, ranges)])
        stored = self._files.stored(self.file)
        return [
            np.frombuffer(stored.read(place, nbytes), self.dtype)
            for place, nbytes in zip(places, sizes)
        ]


def open_tokens(
    path: str, dtype: np.dtype[Any] | None, header: int | None, files: Files
) -> Tokens | StoredTokens:
    """Map the tokens of a file, or return those of one in a store.

    Args:
        path: of a file of NumPy's (.npy), of a shard of llm.c, or of integers alone.
        dtype: of the tokens; None: what the file says, else uint16.
        header: how many bytes lie before them; None: what the file says, else 0. With a number the
            file is of integers alone, or .npy.
        files: how it is read.

    Raises:
        ConfigError: it cannot be mapped, or holds something else.
    """
    is_npy = path.endswith(".npy")
    if is_npy and (dtype is not None or header):
        raise ConfigError(
            f"'{path}' says its dtype and where its tokens begin: leave dtype and header out"
        )
    try:
        with files.open(path) as file:
            begin = _begin_of(path, file, is_npy, header)
            size = file.seek(0, os.SEEK_END)
            if is_npy and not files.is_here(path):
                header, dtype = _npy_header(path, file)
        if is_npy and files.is_here(path):
            return _open_npy(path)
        if header is None:
            header, dtype = _read_header(path, begin, size, dtype)
        dtype = _USUAL if dtype is None else dtype
        if size < header:
            raise ConfigError(
                f"'{path}' has {size:,} bytes, and header is {header:,}: pass how many bytes lie"
                " before its first token"
            )
        size -= header
        if size % dtype.itemsize:
            raise ConfigError(
                f"'{path}' has {size:,} bytes behind a header of {header}, which is no whole number"
                f" of tokens of {dtype}: pass the file's dtype and header"
            )
        if not files.is_here(path):
            return StoredTokens(files, files.file(path), dtype, header, size // dtype.itemsize)
        return np.memmap(path, dtype, "r", header) if size else np.empty(0, dtype)
    except DatasetError as error:
        raise ConfigError(str(error)) from error
    except OSError as error:
        remedy = "pass the path of a file that you may read"
        if not isinstance(error, PermissionError):  # whose usual remedy is of system calls
            remedy = remedy_for(error, remedy)
        raise ConfigError(f"'{path}' cannot be read as tokens: {error}; {remedy}") from error


def as_integers(name: str, dtype: Any) -> np.dtype[Any]:
    """Return a type of tokens. ConfigError: it is none."""
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (SyntaxError, TypeError, ValueError):
        found = np.dtype(object)
    if found.name not in _TYPES or not found.isnative:
        raise ConfigError(f"{name} must be one of {', '.join(_TYPES)}, got {got(dtype)}")
    return found


def check_as_dtype(found: np.dtype[Any], wanted: np.dtype[Any] | None) -> None:
    """Raise ConfigError where tokens would become other numbers.

    Unsigned ones of 4 bytes or more may be given as signed ones of their size: few are so large.
    """
    if wanted is None or np.can_cast(found, wanted):
        return
    if found.itemsize < 4 or wanted.itemsize < found.itemsize:
        raise ConfigError(
            f"as_dtype must hold every token of {found}, got {wanted}: pass a wider one"
        )


def _begin_of(path: str, file: BinaryIO, is_npy: bool, header: int | None) -> bytes:
    """Return how a file begins. ConfigError: as no tokens do."""
    begin = file.read(_TEXT_NBYTES)
    kind = kind_of(begin[:BEGIN_NBYTES])
    compressed = _COMPRESSED.get(Path(path).suffix)
    if compressed is not None and begin.startswith(compressed):
        kind = "compressed"
    elif begin.startswith(b"PAR1") and _ends_in(file, b"PAR1"):
        kind = "a Parquet file"
    elif begin.startswith(b"PK") and zipfile.is_zipfile(file):
        kind = "an archive of several arrays, as .npz and .pt files are"
    if kind is not None:
        raise ConfigError(f"'{path}' is {kind}: {_REMEDY}")
    begins_as_npy = begin.startswith(_NPY)
    if is_npy and not begins_as_npy:
        raise ConfigError(
            f"'{path}' is no file of NumPy: it begins with {begin[:6]!r}, and those with"
            f" {_NPY!r}. Give a file of plain tokens another ending than .npy"
        )
    if begins_as_npy and not is_npy and not header:
        raise ConfigError(
            f"'{path}' is a file of NumPy, which says its dtype and where its tokens begin: give it"
            " a name that ends in .npy"
        )
    return begin


def _read_header(
    path: str, begin: bytes, size: int, dtype: np.dtype[Any] | None
) -> tuple[int, np.dtype[Any] | None]:
    """Return how many bytes lie before the tokens, and their dtype.

    Raises:
        ConfigError: it is a shard whose header does not fit the file or `dtype`, or is text.
    """
    if len(begin) >= 3 * _SHARD.itemsize:
        magic, version, count = map(int, np.frombuffer(begin, _SHARD, 3))
        if magic in _NO_SHARDS and 0 < version < 256:
            raise ConfigError(
                f"'{path}' is a file of llm.c with {_NO_SHARDS[magic]} (magic number"
                f" {magic}), and no text to train on: pass a shard of its training text"
            )
        if magic in _SHARD_MAGICS and 0 < version < 256:
            return _SHARD_NBYTES, _type_of_shard(path, magic, version, count, size, dtype)
    if (dtype is None or dtype.itemsize > 1) and _is_text(begin):
        shown = bytes(begin[:24])
        raise ConfigError(
            f"'{path}' is text: it begins with {shown!r}. Turn it into tokens by your tokenizer,"
            " and write those by array.tofile; to train on its bytes pass dtype='uint8'. If they"
            f" are tokens of {_USUAL if dtype is None else dtype}, pass header=0"
        )
    return 0, dtype


def _type_of_shard(
    path: str, magic: int, version: int, count: int, size: int, dtype: np.dtype[Any] | None
) -> np.dtype[Any]:
    """Return the type of the tokens in a shard of llm.c. ConfigError: its header does not fit."""
    what = f"'{path}' is a shard as llm.c and modded-nanogpt write them (magic number {magic})"
    found = _SHARD_TYPES.get((magic, version))
    if found is None:
        raise ConfigError(
            f"{what} of version {version}, which is not known: pass"
            f" header={_SHARD_NBYTES} and the dtype of its tokens"
        )
    if dtype is not None and dtype != found:
        raise ConfigError(f"{what} of {found.name}, and dtype is {dtype}: leave dtype out")
    has = max(0, size - _SHARD_NBYTES) / found.itemsize  # it may end within its header
    if has != count:
        raise ConfigError(
            f"{what} of {count:,} tokens by its header, and {has:,.12g} follow: it is cut off, or"
            f" damaged. Write it anew, or pass header={_SHARD_NBYTES} to take what is there"
        )
    return found


def _is_text(begin: bytes) -> bool:
    """Whether a file that begins so is text: in UTF-8, in UTF-16, or in a code of 8 bits."""
    if len(begin) < _LEAST_TEXT or len(set(begin)) < _LEAST_BYTES:
        return False
    encoding = _MARKS.get(begin[:2])
    if encoding is not None:
        begin = begin[2 : len(begin) // 2 * 2]
    elif len(begin) >= _TEXT_NBYTES // 4 and not _CONTROLS.search(begin):
        return True
    for cut in range(4 if len(begin) >= _TEXT_NBYTES - 2 else 1):  # within the last character
        try:
            text = begin[: len(begin) - cut].decode(encoding or "utf-8")
        except UnicodeDecodeError:
            continue
        return all(each.isprintable() or each in _BLANKS for each in text)
    return False


def _open_npy(path: str) -> Tokens:
    try:
        tokens: Tokens = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError:
        raise
    except Exception as error:  # many types, of a header that is damaged
        raise _no_npy(path, error) from error
    _check_npy(path, tokens.shape, tokens.dtype)
    return tokens


def _npy_header(path: str, file: BinaryIO) -> tuple[int, np.dtype[Any]]:
    """Return how many bytes lie before the tokens of a file of NumPy's, and their dtype.

    Raises:
        ConfigError: it holds no tokens, or other bytes than its header says.
    """
    file.seek(0)
    try:
        version = np.lib.format.read_magic(file)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(file)
        else:
            raise ValueError(f"its version is {version}, and 1.0 and 2.0 are known")
    except (OSError, DatasetError):
        raise
    except Exception as error:  # many types, of a header that is damaged
        raise _no_npy(path, error) from error
    _check_npy(path, shape, dtype)
    begin = file.tell()
    has = file.seek(0, io.SEEK_END) - begin
    if has != shape[0] * dtype.itemsize:
        raise _no_npy(path, f"{shape[0]:,} tokens are named, and {has:,} bytes follow")
    return begin, dtype


def _no_npy(path: str, why: Any) -> ConfigError:
    return ConfigError(
        f"'{path}' holds no plain integers, or is damaged: {str(why).rstrip('.')}. Write tokens by"
        " numpy.save, as an array of integers"
    )


def _check_npy(path: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
    """Raise ConfigError where an array is not one axis of tokens."""
    if len(shape) != 1 or dtype.name not in _TYPES or not dtype.isnative:
        raise ConfigError(
            f"'{path}' holds {shape} of {dtype.str}: tokens are one axis of integers"
            " in the byte order of the machine. Write array.ravel().astype('uint16'), or another"
            " type, by numpy.save"
        )


def _ends_in(file: Any, end: bytes) -> bool:
    file.seek(-len(end), os.SEEK_END)
    found: bytes = file.read()
    return found == end
