"""The files of `mx.recordio`: records read from the beginning to the end, or by key, and written.

Imports reader.RecordIO and RecordWriter. A file belongs to the object that opened it; threads and
forked processes may share a reader.
"""

from __future__ import annotations

import copy
import io
import os
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, TextIO

from reader.checks import refuse_url
from reader.compat.gluon.errors import ArgumentError
from reader.errors import ConfigError, ConfigTypeError, DatasetError, got
from reader.files import new_file
from reader.formats.record_io import RecordIO, RecordWriter
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url

__all__ = ["MXIndexedRecordIO", "MXRecordIO"]

_ENDS = (0, 3)  # flags of the last part of a record


class MXRecordIO:
    """A file of records that is read, or written, from its beginning to its end.

    Threads that share a reader get each record once; a forked process goes on by itself from where
    its parent was. A written file is there once it is closed, or when the object is collected.

    Args:
        uri: path of the file; of one to read, also its address, such as "s3://bucket/train.rec".
        flag: "r" to read it, "w" to write it anew.
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Raises:
        ConfigError: the flag is another one, or the file cannot be opened.
    """

    _records: _Records
    _writer: _Writer
    _close: Callable[[], Any]

    def __init__(
        self,
        uri: str | os.PathLike[str],
        flag: str,
        *,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        if flag not in ("r", "w"):
            raise ConfigError(f"Invalid flag {flag}: pass 'r' to read a file, 'w' to write it")
        self.flag = flag
        self.writable = flag == "w"
        self.uri = self._path_of("uri", uri)
        self._cache, self._store = cache, store
        self.is_open = False
        self._locks: dict[int, threading.Lock] = {}  # by process: a fork may find one held
        self.open()

    def _path_of(self, name: str, path: Any) -> str:
        """Return a path, or to read the address of what lies in a store."""
        if self.writable:
            refuse_url(name, path)
        return str(os.fspath(as_path_or_url(name, path)))

    def open(self) -> None:
        """Open the file; a writer begins anew. One that is open is closed before."""
        self.close()
        if self.writable:
            self._writer = self._make_writer()
            self._close = weakref.finalize(self, self._writer.close)
        else:
            self._records = _Records(self.uri, self._cache, self._store)
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
                " with flag 'r' to read, or 'w' to write"
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
        state = {name: value for name, value in self.__dict__.items() if name not in gone}
        return {**state, "_records": copy.copy(self._records)} if self.is_open else state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _locks={})
        if self.is_open:
            self._close = self._records.close


class MXIndexedRecordIO(MXRecordIO):
    """A file of records with an index, whose records are read in any order.

    Threads and forked processes may read a reader at once. An index that is written is there once
    the file is closed.

    Args:
        idx_path: path of the index: a line "key<tab>offset" for each record.
        uri: path of the records.
        flag: "r" to read them, "w" to write them anew.
        key_type: makes a key of the text before the tab, and of what `write_idx` is given.
        cache, store: as for `MXRecordIO`; both paths may be addresses where they are read.

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
        *,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        self.writable = flag == "w"
        self.idx_path = self._path_of("idx_path", idx_path)
        self.key_type = key_type
        self.idx: dict[Any, int] = {}
        super().__init__(uri, flag, cache=cache, store=store)

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
            files = files_for([self.idx_path], self._cache, self._store)
            with files.open(self.idx_path) as file:
                lines = file.read().decode("utf-8").splitlines()
        except (OSError, UnicodeDecodeError, DatasetError) as error:
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
                    f"line {number} of the index '{self.idx_path}' must be a key, a tab and an"
                    f" offset within the {nbytes} bytes of '{self.uri}', got {line[:80]!r}. Pass"
                    " the index that was written with these records"
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

    def __init__(
        self, path: str, cache: ShardCache | None, store: Mapping[str, Any] | None
    ) -> None:
        self._take(path, None, cache, store)  # its index is named in errors

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
            self._index_file = io.TextIOWrapper(new_file(self._index_part), encoding="utf-8")
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
