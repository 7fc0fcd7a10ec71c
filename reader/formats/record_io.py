"""Files of records in the RecordIO format, with or without an index: read anywhere, and written.

Imports the standard library, NumPy, Dataset, how files are opened and named, those of stores, and
the errors. A record is found by its offset and read by `pread`: threads and forked processes may
share a reader. Source: the format of MXNet and dmlc-core, whose files are read, and which reads
what is written here.

A record is one part or several: magic number, 4 bytes; flag << 29 | length, 4 bytes; the data,
filled up with zeros to a multiple of 4. Where the data has the magic number at a multiple of 4, it
is cut there: the parts are flagged as first (1), middle (2) and last (3), and the magic number
between two of them is left out. All numbers are little-endian. An index has a line "key<tab>offset"
a record.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import operator
import os
import struct
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import described, refuse_url
from reader.data.dataset import Dataset
from reader.errors import ConfigError, DatasetError, got
from reader.files import new_file, open_regular
from reader.formats.file_kinds import BEGIN_NBYTES, kind_of
from reader.stores.files import Files, StoredFile
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url, is_url

__all__ = ["RecordIO", "RecordWriter"]

MAGIC = 0xCED7230A
_MAGIC = struct.pack("<I", MAGIC)
_HEAD = struct.Struct("<II")
_LENGTH_BITS = 29
MAX_NBYTES = (1 << _LENGTH_BITS) - 1  # of a part
_WHOLE, _FIRST, _MIDDLE, _LAST = range(4)


class RecordIO(Dataset[bytes]):
    """The records of a file, as bytes, by their position in the index.

    Args:
        path: of the file, such as "train.rec", or its address in a store, such as
            "s3://bucket/train.rec".
        index: path or address of its index; None: "train.idx" beside it. Where there is no such
            file, the records are found by reading their heads, in the order of the file, with keys
            from 0; the index is then written if the folder is writable.
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Raises:
        ConfigError: there is no such file, or the index does not fit it.

    A record that is damaged raises DatasetError when it is read; it names file, record and offset.
    """

    __repr__ = described

    def __init__(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | None = None,
        *,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ):
        self._take(path, index, cache, store)
        if self._files.has(str(self.index_path)):
            try:
                self._keys, self._offsets = _read_index(self._files, self.index_path, self._nbytes)
            except (OSError, DatasetError) as error:
                raise ConfigError(
                    f"the index '{self.index_path}' cannot be read: {error}"
                ) from None
        elif index is not None:
            raise ConfigError(
                f"there is no index '{self.index_path}'; leave index= out to have it made"
            )
        else:
            self._offsets = array("q", self._scan())
            self._keys = array("q", range(len(self._offsets)))
            if isinstance(self.index_path, Path):
                _try_to_write_index(self.index_path, self._keys, self._offsets)
        self._positions: dict[int, int] | None = None  # by key, when one is asked for

    def _take(
        self,
        path: str | os.PathLike[str],
        index: str | os.PathLike[str] | None,
        cache: ShardCache | None,
        store: Mapping[str, Any] | None,
    ) -> None:
        """Take paths and addresses, and open the records."""
        self.path = _path_of("path", path)
        if index is not None:
            self.index_path = _path_of("index", index)
        elif isinstance(self.path, Path):
            self.index_path = self.path.with_suffix(".idx")
        else:
            self.index_path = os.path.splitext(self.path)[0] + ".idx"  # noqa: PTH122
        self._files = files_for([str(self.path), str(self.index_path)], cache, store)
        self._use = self._files.use  # see stores.fetch_stats
        self._fd = -1
        self._pread: Callable[[int, int], bytes] = _closed
        self._stored: StoredFile | None = None  # in a store: it must be as it was
        self._ends: npt.NDArray[np.int64] | None = None
        self._open()

    def _open(self) -> None:
        """Open the records. ConfigError: they cannot be read, or are something else."""
        try:
            if isinstance(self.path, Path):
                self._fd = open_regular(self.path)
                self._nbytes = os.fstat(self._fd).st_size
                self._pread = functools.partial(os.pread, self._fd)
            else:
                is_open = self._stored is not None
                self._stored = self._stored or self._files.file(self.path)
                self._nbytes = self._stored.nbytes
                self._pread = self._files.stored(self._stored).pread
                if is_open:  # in another process
                    return
            begin = self._pread(BEGIN_NBYTES, 0)
        except (OSError, DatasetError) as error:
            raise ConfigError(f"the records '{self.path}' cannot be opened: {error}") from None
        kind = None if begin.startswith(_MAGIC) else kind_of(begin)
        if kind is not None:
            self.close()
            raise ConfigError(
                f"'{self.path}' is {kind}, and no file of RecordIO: write its records by"
                " reader.RecordWriter"
            )

    @property
    def keys(self) -> list[int]:
        """The keys of all records, in the order of the index."""
        return list(self._keys)

    def __len__(self) -> int:
        """Return the number of records."""
        return len(self._offsets)

    def __getitem__(self, index: int) -> bytes:
        """Return the record at a position of the index; negative ones count from the end."""
        try:
            offset = self._offsets[index]
        except (IndexError, TypeError):
            raise IndexError(
                f"the index must be an int in [{-len(self)}, {len(self)}), as '{self.path}'"
                f" has {len(self)} records, got {got(index)}"
            ) from None
        return self._read(offset, f"record {index}")

    def read(self, key: int) -> bytes:
        """Return the record with a key of the index. KeyError where there is none."""
        if self._positions is None:
            self._positions = {each: place for place, each in enumerate(self._keys)}
        return self._read(self._offsets[self._positions[key]], f"record with key {key}")

    def __iter__(self) -> Iterator[bytes]:
        """Yield all records in the order of the index."""
        return (self[position] for position in range(len(self)))

    @property
    def __read_ahead__(self) -> Callable[[Sequence[int]], None]:
        """Have the records of a batch fetched together; exists for a file in a store."""
        if self._stored is None:
            raise AttributeError("__read_ahead__")
        return self._fetch

    def _fetch(self, indices: Sequence[int]) -> None:
        offsets = np.frombuffer(self._offsets, np.int64)
        if self._ends is None:
            self._ends = np.append(np.sort(offsets), self._nbytes)
        begins = offsets[np.asarray(indices)]
        ends = self._ends[np.searchsorted(self._ends, begins, "right")]
        if self._stored is not None:
            ranges = list(zip(begins.tolist(), ends.tolist(), strict=True))
            self._files.fetch([(self._stored, ranges)])

    def _read(self, offset: int, name: str) -> bytes:
        parts: list[bytes] = []
        at, wanted = offset, (_WHOLE, _FIRST)
        while True:
            flag, length = self._head(at, name, offset)
            if flag not in wanted:
                what = f"the part at offset {at} has flag {flag}, expected one of {wanted}"
                raise self._damage(name, offset, what)
            parts.append(self._bytes(at + _HEAD.size, length, name, offset))
            if flag in (_WHOLE, _LAST):
                return parts[0] if flag == _WHOLE else _MAGIC.join(parts)
            at, wanted = at + _HEAD.size + _filled(length), (_MIDDLE, _LAST)

    def _head(self, at: int, name: str, offset: int) -> tuple[int, int]:
        head = self._pread(_HEAD.size, at)
        if len(head) < _HEAD.size:
            raise self._damage(name, offset, f"the file ends at {self._nbytes}, within it")
        magic, flag_and_length = _HEAD.unpack(head)
        if magic != MAGIC:
            raise self._damage(
                name, offset, f"at {at} stands {magic:#010x} in place of the magic {MAGIC:#010x}"
            )
        length = flag_and_length & MAX_NBYTES
        if at + _HEAD.size + length > self._nbytes:
            raise self._damage(
                name,
                offset,
                f"its part at {at} has {length} bytes, and the file ends at {self._nbytes}",
            )
        return flag_and_length >> _LENGTH_BITS, length

    def _bytes(self, at: int, length: int, name: str, offset: int) -> bytes:
        found = self._pread(length, at)
        while len(found) < length:  # a signal came, or the file was cut
            more = self._pread(length - len(found), at + len(found))
            if not more:
                raise self._damage(name, offset, f"the file ends at {at + len(found)}, within it")
            found += more
        return found

    def _damage(self, name: str, offset: int, what: str) -> DatasetError:
        return DatasetError(
            f"{name} of '{self.path}', at offset {offset}, is damaged: {what}. If the file was"
            f" written anew, remove its index '{self.index_path}'"
        )

    def _scan(self) -> Iterator[int]:
        """Yield where each record begins."""
        at, offset, number, is_open = 0, 0, 0, False
        while at < self._nbytes:
            if not is_open:
                offset = at
            flag, length = self._head(at, f"record {number}", offset)
            if is_open != (flag in (_MIDDLE, _LAST)):
                raise self._damage(
                    f"record {number}", offset, f"a part with flag {flag} stands at {at}"
                )
            if not is_open:
                yield at
            is_open = flag in (_FIRST, _MIDDLE)
            number += not is_open
            at += _HEAD.size + _filled(length)

    def close(self) -> None:
        """Close the file. Idempotent; reading then raises."""
        fd, self._fd = self._fd, -1
        self._pread = _closed
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        if "_fd" in self.__dict__:
            self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy in another process gets: it opens the file for itself."""
        return {**self.__dict__, "_fd": -1, "_pread": _closed, "_ends": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._open()


class RecordWriter:
    """Writes a file of records, and its index when it is closed.

        with RecordWriter("train.rec") as file:
            file.write(b"...")

    Args:
        path: of the file; one that is there is replaced when this one is closed.
        index: path of its index; None: beside it, with the ending ".idx".

    If an exception leaves the block, the old files stay as they were.
    """

    def __init__(self, path: str | os.PathLike[str], index: str | os.PathLike[str] | None = None):
        refuse_url("path", path)
        refuse_url("index", index)
        self.path = Path(path)
        self.index_path = self.path.with_suffix(".idx") if index is None else Path(index)
        self._part_path = _part_of(self.path)
        self._offsets: dict[int, int] = {}  # by key
        self._next_key = 0
        try:
            self._file = new_file(self._part_path)
        except OSError as error:
            raise ConfigError(f"records cannot be written to '{self.path}': {error}") from None

    def write(self, data: bytes, key: int | None = None) -> int:
        """Write a record; returns its key.

        Args:
            data: the bytes, of any length below 512 MiB between two magic numbers.
            key: an int that no other record has; None: one more than the largest so far.
        """
        view = memoryview(data).cast("B")
        number = self._next_key if key is None else operator.index(key)
        if number in self._offsets:
            raise ConfigError(f"two records of '{self.path}' have the key {number}")
        cuts = _cuts(bytes(view))
        begins = [0, *(cut + len(_MAGIC) for cut in cuts)]
        ends = [*cuts, len(view)]
        longest = max(end - begin for begin, end in zip(begins, ends, strict=True))
        if longest > MAX_NBYTES:
            raise ConfigError(
                f"a record may have at most {MAX_NBYTES} bytes between two magic numbers, got"
                f" {longest} in a record of {len(view)} bytes. Split it into several records"
            )
        self._offsets[number] = self._file.tell()
        self._next_key = max(self._next_key, number + 1)
        for place, (begin, end) in enumerate(zip(begins, ends, strict=True)):
            if not cuts:
                flag = _WHOLE
            else:
                flag = _FIRST if place == 0 else _LAST if place == len(cuts) else _MIDDLE
            self._file.write(_HEAD.pack(MAGIC, flag << _LENGTH_BITS | (end - begin)))
            self._file.write(view[begin:end])
            self._file.write(bytes(_filled(end - begin) - (end - begin)))
        return number

    def close(self) -> None:
        """Write the index, and put the file in its place. Idempotent."""
        if not self._file.closed:
            self._file.close()
            _write_index(self.index_path, list(self._offsets), list(self._offsets.values()))
            self._part_path.replace(self.path)

    def drop(self) -> None:
        """Discard what was written; the old files stay. Idempotent."""
        if not self._file.closed:
            self._file.close()
            self._part_path.unlink()

    def __enter__(self) -> RecordWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:
            self.drop()


def _filled(length: int) -> int:
    return (length + 3) // 4 * 4


def _cuts(data: bytes) -> list[int]:
    """Return where the magic number stands at a multiple of 4."""
    found, at = [], data.find(_MAGIC)
    while at >= 0:
        if at % 4 == 0:
            found.append(at)
            at = data.find(_MAGIC, at + 4)
        else:
            at = data.find(_MAGIC, at + 1)
    return found


def _closed(nbytes: int, place: int) -> bytes:  # noqa: ARG001
    """Refuse to read from a file that is closed."""
    raise OSError(errno.EBADF, os.strerror(errno.EBADF))


def _path_of(name: str, path: Any) -> Path | str:
    """Return a path of this machine, or the address of what lies in a store, as text."""
    found = as_path_or_url(name, path)
    return found if is_url(found) else Path(found)


def _read_index(files: Files, path: Path | str, nbytes: int) -> tuple[array[int], array[int]]:
    keys, offsets = array("q"), array("q")
    with io.TextIOWrapper(files.open(str(path)), encoding="ascii", errors="replace") as file:
        for number, line in enumerate(file, 1):
            if not line.strip():
                continue
            try:
                key, offset = map(int, line.split())
                keys.append(key)
            except (ValueError, OverflowError):
                raise ConfigError(
                    f"line {number} of the index '{path}' is {line.strip()[:80]!r}, and not a key"
                    " and an offset. Remove the index to have it made anew"
                ) from None
            if not 0 <= offset < max(nbytes, 1):
                raise ConfigError(
                    f"line {number} of the index '{path}' names offset {offset}, and the records"
                    f" have {nbytes} bytes. Remove the index to have it made anew"
                )
            offsets.append(offset)
    return keys, offsets


def _write_index(path: Path, keys: Iterable[int], offsets: Iterable[int]) -> None:
    part = _part_of(path)
    with new_file(part) as file:
        for key, at in zip(keys, offsets, strict=True):
            file.write(b"%d\t%d\n" % (key, at))
    part.replace(path)  # in one step: others may read it meanwhile


def _part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.{os.getpid()}.part")


def _try_to_write_index(path: Path, keys: Iterable[int], offsets: Iterable[int]) -> None:
    try:
        _write_index(path, keys, offsets)
    except OSError:  # a read-only folder: next time it is made again
        with contextlib.suppress(OSError):
            _part_of(path).unlink()
