"""A file of entries that processes share, in memory or on disk: written once, found by number.

Imports the core's table and mapping. An EntryFile owns its descriptor and its mapping; forked
processes have both, others get the descriptor as multiprocessing passes it. Bytes are taken from
the front to the end and never given to another entry: whoever looks at an entry may go on looking.

The file is a head of JSON that says what it is, a table with a word for each entry, and the
entries. An entry is written whole before the table says where it lies, so that a process that is
killed leaves an entry that is not there. Each has a checksum, which says whether a disk gave back
what it got.
"""

from __future__ import annotations

import errno
import os
import struct
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any, NamedTuple

import numpy as np

from reader._core.interpreter.signals import Finalized, interrupt_after
from reader._core.shared.entry_table import SUMS, EntryTable, checksum
from reader._core.shared.mapping import Mapping
from reader.available_memory import available_bytes
from reader.caching.sample_form import UnknownForm, spans
from reader.sharing.memory_file import Bytes, padded

__all__ = ["HEAD", "Entry", "EntryFile", "entries_begin"]

HEAD = 4096  # bytes of JSON that say what the file is
_PAGE = 4096
_WORD = 8
_LINE = 64
_MAGIC = 0x4C4F444341434845
_ENTRY = struct.Struct("<QQQQQQ")  # magic, number, tag, bytes of the form and of the rest, checksum
_WRITES = 512  # parts of one write: systems take 1,024
_GRANT = 64 << 20  # bytes of memory that are asked for at once
_RESERVE = 256 << 20  # bytes of memory that are left to others
# the numbers of the sums in the table
USED, HITS, MISSES, REFUSED, EVICTED, DAMAGED, GRANTED, CHECKED = range(8)


class Entry(NamedTuple):
    """The form of a sample, and its parts one after the other."""

    form: bytes
    content: Bytes


def entries_begin(count: int) -> int:
    """Return where the entries of a file begin, in bytes."""
    end = HEAD + (SUMS + count) * _WORD
    return -(-end // _PAGE) * _PAGE


class EntryFile(Finalized):
    """A file of entries.

    Args:
        fd: of the file, which has its head and its table; this object owns it.
        count: how many entries there may be.
        limit: how many bytes they may take.
        is_memory: whether the file is in memory; else it is on a disk.

    Raises:
        OSError: the system refuses to map it.
    """

    _fd = -1

    def __init__(self, fd: int, count: int, limit: int, is_memory: bool) -> None:
        self.count, self.limit, self.is_memory = count, limit, is_memory
        self._begin = entries_begin(count)
        self.table = EntryTable(Mapping(fd, self._begin, is_writable=True), HEAD, count)
        self._content: Bytes | None = None
        if is_memory:
            whole = memoryview(Mapping(fd, self._begin + limit))
            self._content = np.frombuffer(whole, np.uint8)[self._begin :]
        self._fd = fd

    def __reduce__(self) -> Any:
        """Pass the descriptor to another process, in the way of multiprocessing."""
        passed = reduction.DupFd(self._fd), self.count, self.limit, self.is_memory
        return _received, passed

    def finalize(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    @property
    def used(self) -> int:
        """How many bytes entries take."""
        return self.sum(USED)

    def read(self, number: int, tag: int) -> Entry | None:
        """Return an entry; None: it is not there.

        An entry of another tag, and one that the disk gave back damaged, is forgotten.
        """
        place = self.table.place(number) if self.is_whole else 0
        if not place:
            return None
        try:
            entry = self._read_at((place - 1) * _LINE, number, tag)
        except (OSError, OverflowError):  # the disk fails, or the place is none
            entry = DAMAGED
        if not isinstance(entry, Entry) and self.table.forget(number, place):
            self.table.add(entry)
        return entry if isinstance(entry, Entry) else None

    def holds(self, number: int) -> bool:
        """Whether an entry is there, of whatever tag."""
        return self.is_whole and self.table.place(number) > 0

    def add(self, sum_number: int) -> int:
        """Add one to a sum; returns what it was."""
        return self.table.add(sum_number) if self.is_whole else 0

    def sum(self, sum_number: int) -> int:
        """Return a sum."""
        return self.table.sum(sum_number) if self.is_whole else 0

    @property
    def is_whole(self) -> bool:
        """Whether the table is there: a program may have cut off the file on a disk."""
        return self.is_memory or os.fstat(self._fd).st_size >= self._begin

    def keep(self, number: int, tag: int, form: bytes, parts: Sequence[Any]) -> None:
        """Write an entry, unless it is there, another process writes it, or there is no room.

        Raises:
            OSError: the disk is full, or fails. Nothing is lost but this entry.
        """
        pid = os.getpid()
        with interrupt_after():  # which would leave the claim
            if not self.is_whole or not self._claim(number, pid):
                return
            place = 0
            try:
                place = self._written(number, tag, form, parts)
            finally:
                self.table.publish(number, pid, place)

    def _written(self, number: int, tag: int, form: bytes, parts: Sequence[Any]) -> int:
        """Write an entry; returns its place, or 0: there is no room."""
        total = _LINE + sum(map(padded, [len(form), *map(_nbytes, parts)]))
        at = self._take(total)
        if at < 0:
            self.table.add(REFUSED)
            return 0
        content = total - _LINE - padded(len(form))
        # memory is not read by another program later: there its entries are not compared with it
        expected = 0 if self.is_memory else checksum([form, *parts])
        head = _ENTRY.pack(_MAGIC, number, tag, len(form), content, expected)
        try:
            if self.is_memory:  # pages are made sooner all at once
                os.posix_fallocate(self._fd, self._begin + at, total)
            self._write([head, form, *parts], self._begin + at)
        except BaseException:
            self.table.give_back(at, total)
            raise
        return at // _LINE + 1

    def _claim(self, number: int, pid: int) -> bool:
        holder = self.table.claim(number, 0, pid)
        if holder > 0 and holder != pid and _has_ended(holder):
            return self.table.take_over(number, holder, pid)
        return holder == 0

    def _take(self, nbytes: int) -> int:
        """Return where free bytes begin; -1: there are none."""
        if self.is_memory and self.used + nbytes > self.table.sum(GRANTED):
            if available_bytes() < nbytes + _GRANT + _RESERVE:
                return -1
            self.table.add(GRANTED, max(_GRANT, nbytes))
        return self.table.take(nbytes, self.limit)

    def _write(self, parts: list[Any], at: int) -> None:
        pieces: list[Any] = []
        for part in parts:
            nbytes = _nbytes(part)
            pieces += [part, bytes(padded(nbytes) - nbytes)]
        pieces = [memoryview(piece).cast("B") for piece in pieces if _nbytes(piece)]
        while pieces:
            written = os.pwritev(self._fd, pieces[:_WRITES], at)
            if not written:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            at += written
            while pieces and written >= len(pieces[0]):
                written -= len(pieces.pop(0))
            if written:
                pieces[0] = pieces[0][written:]

    def _read_at(self, at: int, number: int, tag: int) -> Entry | int:
        """Return an entry, or the number of the sum that counts why it is none."""
        head = self._bytes_at(at, _LINE)
        if head is None:
            return DAMAGED
        magic, its_number, its_tag, length, content, expected = _ENTRY.unpack_from(head.data)
        if magic != _MAGIC or its_number != number or length + content > self._size() - at:
            return DAMAGED
        if its_tag != tag:
            return EVICTED
        whole = self._bytes_at(at + _LINE, padded(length) + content)
        if whole is None:
            return DAMAGED
        entry = Entry(whole[:length].tobytes(), whole[padded(length) :])
        if not self.is_memory and not _is_whole(entry, expected):
            return DAMAGED
        return entry

    def _size(self) -> int:
        """Return how many bytes of entries the file may have."""
        return self.limit if self.is_memory else os.fstat(self._fd).st_size - self._begin

    def _bytes_at(self, at: int, nbytes: int) -> Bytes | None:
        """Return bytes; None: the file is cut off."""
        if self._content is not None:
            return self._content[at : at + nbytes]
        found = np.empty(nbytes, np.uint8)
        done = 0
        while done < nbytes:
            got = os.preadv(self._fd, [found[done:].data], self._begin + at + done)
            if not got:
                return None
            done += got
        return found


def _received(descriptor: Any, count: int, limit: int, is_memory: bool) -> EntryFile:
    fd = descriptor.detach()
    try:
        return EntryFile(fd, count, limit, is_memory)
    except BaseException:
        os.close(fd)
        raise


def _is_whole(entry: Entry, expected: int) -> bool:
    try:
        return checksum([entry.form, *spans(*entry)]) == expected
    except UnknownForm:
        return False


def _nbytes(part: Any) -> int:
    return int(part.nbytes) if hasattr(part, "nbytes") else len(part)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OverflowError:  # no process has that number: the table is damaged
        return True
    except PermissionError:
        return False
    return False
