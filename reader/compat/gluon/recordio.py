"""Records as `mx.recordio` has them: headers with labels, images, and files read and written.

Imports reader.RecordIO and RecordWriter, NumPy, and Pillow for images. A file belongs to the object
that opened it; readers may be shared by threads and forked processes.
"""

from __future__ import annotations

import numbers
import os
import struct
import threading
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import numpy as np
import numpy.typing as npt

from reader.compat.gluon.errors import ArgumentError
from reader.data.record_io import RecordIO, RecordWriter
from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.frameworks.pillow import decode, encode

__all__ = [
    "IRHeader",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "pack",
    "pack_img",
    "unpack",
    "unpack_img",
]

_HEADER = struct.Struct("<IfQQ")
_ENDS = (0, 3)  # flags of the last part of a record


class IRHeader(NamedTuple):
    """What stands before the content of a record.

    Attributes:
        flag: how many labels of 32 bits follow the header; 0: the label stands in it.
        label: a float, or several as an array of float32.
        id: of the record, an int of 64 bits.
        id2: a second one.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: Any, s: bytes) -> bytes:
    """Return a record: a header and a content, as bytes.

    Args:
        header: an IRHeader, or its four values. Its flag is set by its label: a number stands in
            the header, a sequence of numbers follows it.
        s: the content.

    >>> unpack(pack(IRHeader(0, [1, 2], 7, 0), b"abc"))
    (IRHeader(flag=2, label=array([1., 2.], dtype=float32), id=7, id2=0), b'abc')
    """
    header = IRHeader(*header)
    labels = b""
    if isinstance(header.label, numbers.Number):
        header = header._replace(flag=0)
    else:
        several = np.asarray(header.label, np.float32)
        header, labels = (
            header._replace(flag=several.size, label=0),
            several.astype("<f4").tobytes(),
        )
    try:
        return _HEADER.pack(*header) + labels + s
    except struct.error as error:
        raise ConfigError(
            f"a record cannot begin with {got(header)}: {error}. flag has 32 bits, the label is a"
            " number, id and id2 have 64 bits and no sign"
        ) from None


def unpack(s: bytes) -> tuple[IRHeader, bytes]:
    """Return the header and the content of a record, each the caller's own.

    Raises:
        DatasetError: it is too short for a header, or for the labels that the header counts.
    """
    if len(s) < _HEADER.size:
        raise DatasetError(
            f"a record of {len(s)} bytes has no header, which takes {_HEADER.size}. Was it written"
            " by pack?"
        )
    header, content = IRHeader(*_HEADER.unpack_from(s)), s[_HEADER.size :]
    if not header.flag:
        return header, content
    size = 4 * header.flag
    if len(content) < size:
        raise DatasetError(
            f"the header of a record counts {header.flag} labels, {size} bytes, and {len(content)}"
            " bytes follow it. Was it written by pack?"
        )
    labels = np.frombuffer(content, "<f4", header.flag).astype(np.float32)
    return header._replace(label=labels), content[size:]


def pack_img(header: Any, img: Any, quality: int = 95, img_fmt: str = ".jpg") -> bytes:
    """Return a record of an image.

    Args:
        header: as for `pack`.
        img: height x width x 3, of 8 bits: blue, green, red, as OpenCV and MXNet have it; or x 4
            with opacity, or height x width.
        quality: of a JPEG, 1 to 100; of a PNG how hard to compress, 0 to 9, and 9 for more.
        img_fmt: ".jpg", ".jpeg" or ".png".
    """
    return pack(header, encode(_swapped(np.asarray(img)), img_fmt, quality))


def unpack_img(s: bytes, iscolor: int = -1) -> tuple[IRHeader, npt.NDArray[np.uint8]]:
    """Return the header and the image of a record.

    The channels are blue, green, red, as OpenCV and MXNet have them here; the datasets of images
    give red, green, blue. A grey image is height x width.

    Args:
        s: the record.
        iscolor: 1: three channels; 0: grey; -1: as the file has it.

    Raises:
        DatasetError: the record is damaged, or holds no image.
    """
    header, content = unpack(s)
    image = decode(content, iscolor)
    return header, image[:, :, 0] if image.shape[2] == 1 else _swapped(image)


def _swapped(image: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Return an image with red and blue in each other's place."""
    if image.ndim != 3 or image.shape[2] not in (3, 4):
        return image
    return np.ascontiguousarray(image[:, :, [2, 1, 0, 3][: image.shape[2]]])


class MXRecordIO:
    """A file of records that is read, or written, from its beginning to its end.

    Threads that share a reader get each record once; a forked process goes on by itself from where
    its parent was. What is written is there once it is closed, also when the object goes.

    Args:
        uri: path of the file.
        flag: "r" to read it, "w" to write it anew.

    Raises:
        ConfigError: the flag is another one, or the file cannot be opened.
    """

    _records: _Records
    _writer: _Writer
    _close: Callable[[], Any]

    def __init__(self, uri: str | os.PathLike[str], flag: str) -> None:
        if flag not in ("r", "w"):
            raise ConfigError(f"Invalid flag {flag}: pass 'r' to read a file, 'w' to write it")
        self.uri = os.fspath(uri)
        self.flag = flag
        self.writable = flag == "w"
        self.is_open = False
        self._locks: dict[int, threading.Lock] = {}  # by process: a fork may find one held
        self.open()

    def open(self) -> None:
        """Open the file; a writer begins anew. One that is open is closed before."""
        self.close()
        if self.writable:
            self._writer = self._make_writer()
            self._close = weakref.finalize(self, self._writer.close)
        else:
            self._records = _Records(Path(self.uri))
            self._close = self._records.close
            self._position = (0, False)  # of a record, and whether it was read
        self.is_open = True

    def _make_writer(self) -> _Writer:
        return _Writer(Path(self.uri))

    def close(self) -> None:
        """Close the file; what was written takes its place. Idempotent."""
        if self.is_open:
            self.is_open = False
            self._close()

    def reset(self) -> None:
        """Go back to the first record; a writer closes its file, and begins it anew."""
        if self.writable:
            self.open()
        else:
            self._position = (0, False)

    def read(self) -> bytes | None:
        """Return the next record; None: there are no more.

        Raises:
            DatasetError: it is damaged; file and offset are in the text.
        """
        records = self._opened_to_read()
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            at = self._next(records)
            if at >= records.nbytes:
                return None
            self._position = (at, True)
        return records.read_at(at, "a record")

    def _next(self, records: _Records) -> int:
        at, was_read = self._position
        return records.end_of(at, "a record") if was_read else at

    def write(self, buf: bytes) -> None:
        """Write a record."""
        self._opened_to_write().write(buf)

    def tell(self) -> int:
        """Return the offset of the next record, in bytes."""
        if self.writable:
            return self._opened_to_write().tell()
        return self._next(self._opened_to_read())

    def _opened_to_read(self) -> _Records:
        self._check(not self.writable, "read")
        return self._records

    def _opened_to_write(self) -> _Writer:
        self._check(self.writable, "written")
        return self._writer

    def _check(self, is_right: bool, use: str) -> None:
        if not is_right:
            raise ArgumentError(
                f"'{self.uri}' cannot be {use}: it was opened with flag '{self.flag}'. Open it"
                " with the other one"
            )
        if not self.is_open:
            raise ConfigError(f"'{self.uri}' cannot be {use}: it is closed. Call open()")

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process gets: it opens the file for itself."""
        if self.writable:
            raise ConfigTypeError(
                f"a writer of '{self.uri}' cannot be copied: two would write the same file. Close"
                " it, and open the file in each process to read"
            )
        gone = ("_locks", "_records", "_close")
        return {name: value for name, value in self.__dict__.items() if name not in gone}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _locks={}, is_open=False)
        if state["is_open"]:
            MXRecordIO.open(self)
            self._position = state["_position"]


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index, whose records are read in any order.

    Threads and forked processes may read a reader at once. An index that is written is there once
    the file is closed.

    Args:
        idx_path: path of the index: a line "key<tab>offset" for each record.
        uri: path of the records.
        flag: "r" to read them, "w" to write them anew.
        key_type: makes a key of the text before the tab, and of what `write_idx` is given.

    Raises:
        ConfigError: the flag is another one, a file cannot be opened, or a line of the index is
            none.

    Attributes:
        idx: the offsets of the records by key.
    """

    def __init__(
        self,
        idx_path: str | os.PathLike[str],
        uri: str | os.PathLike[str],
        flag: str,
        key_type: Callable[[Any], Any] = int,
    ) -> None:
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        super().__init__(uri, flag)

    @property
    def keys(self) -> list[Any]:
        """The keys of all records, in the order of the index."""
        return list(self.idx)

    def open(self) -> None:
        """Open both files; a writer begins anew. Those that are open are closed before."""
        super().open()
        self.idx = {} if self.writable else dict(self._lines())

    def _make_writer(self) -> _Writer:
        return _Writer(Path(self.uri), Path(self.idx_path))

    def _lines(self) -> Iterator[tuple[Any, int]]:
        try:
            lines = Path(self.idx_path).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"the index '{self.idx_path}' cannot be read: {error}") from None
        nbytes = self._records.nbytes
        for number, line in enumerate(lines, 1):
            try:
                key, offset = line.split("\t")
                found = self.key_type(key), int(offset)
                is_right = 0 <= found[1] < nbytes
            except ValueError:
                is_right = False
            if not is_right:
                raise ConfigError(
                    f"line {number} of the index '{self.idx_path}' is {line[:80]!r}, and not a key,"
                    f" a tab and an offset within the {nbytes} bytes of '{self.uri}'. Is it the"
                    " index of these records?"
                )
            yield found

    def read_idx(self, idx: Any) -> bytes:
        """Return the record with a key; `read` goes on behind it.

        Raises:
            KeyError: there is none.
            DatasetError: it is damaged; key, file and offset are in the text.
        """
        records, offset = self._opened_to_read(), self._offset_of(idx)
        self._position = (offset, True)
        return records.read_at(offset, f"the record with key {idx!r}")

    def seek(self, idx: Any) -> None:
        """Have `read` go on with the record with a key. KeyError: there is none."""
        self._opened_to_read()
        self._position = (self._offset_of(idx), False)

    def _offset_of(self, idx: Any) -> int:
        try:
            return self.idx[idx]
        except KeyError:
            raise KeyError(f"no record of '{self.uri}' has the key {got(idx)}") from None

    def write_idx(self, idx: Any, buf: bytes) -> None:
        """Write a record, and its key into the index.

        Raises:
            ConfigError: another record has the key, or the key cannot stand in an index.
        """
        writer, key = self._opened_to_write(), self.key_type(idx)
        if key in self.idx:
            raise ConfigError(f"two records of '{self.uri}' have the key {got(key)}")
        if len(f"{key}!".splitlines()) > 1 or "\t" in str(key):
            raise ConfigError(f"the key {got(key)} has a tab or the end of a line in it")
        offset = writer.tell()
        writer.write(buf)
        self.idx[key] = offset
        writer.write_line(key, offset)


class _Records(RecordIO):
    """A file of records that are found by their offsets alone."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.index_path = path.with_suffix(".idx")  # for the texts of errors
        self._fd = -1
        self._open()

    @property
    def nbytes(self) -> int:
        """The size of the file."""
        return self._nbytes

    def read_at(self, offset: int, name: str) -> bytes:
        """Return the record at an offset; `name` is for an error."""
        return self._read(offset, name)

    def end_of(self, offset: int, name: str) -> int:
        """Return where the record at an offset ends; `name` is for an error."""
        at, flag = offset, -1
        while flag not in _ENDS:
            flag, length = self._head(at, name, offset)
            at += 8 + (length + 3) // 4 * 4
        return at


class _Writer(RecordWriter):
    """A writer whose index has keys of any type, or that writes none."""

    def __init__(self, path: Path, index: Path | None = None) -> None:
        super().__init__(path)
        self._index_file: TextIO | None = None
        if index is None:
            return
        self.index_path = index
        self._index_part = index.with_name(f"{index.name}.{os.getpid()}.part")
        try:
            self._index_file = self._index_part.open("w", encoding="utf-8")
        except OSError as error:
            self.drop()
            raise ConfigError(f"an index cannot be written to '{index}': {error}") from None

    def write_line(self, key: Any, offset: int) -> None:
        """Write a line of the index."""
        if self._index_file is not None:
            self._index_file.write(f"{key}\t{offset}\n")

    def tell(self) -> int:
        """Return how many bytes were written."""
        return self._file.tell()

    def close(self) -> None:
        """Put the files in their places. Idempotent."""
        if self._file.closed:
            return
        self._file.close()
        if self._index_file is not None:
            self._index_file.close()
            self._index_part.replace(self.index_path)
        self._part_path.replace(self.path)
