"""A file of entries that processes share, in memory or on disk: written once, found by number.

Imports the core's table and mapping, and the free space. An EntryFile owns its descriptor and its
mapping; forked processes have both, others get the descriptor as multiprocessing passes it. Bytes
of a dropped entry are used for another one: after reading an entry in memory, ask whether it was
there all the time.

The file has a JSON header with its identity, a table with a word for each entry, and the entries.
An entry is written completely before the table has its place, so a process that is killed leaves no
partial entry. The checksum of an entry finds errors of the disk.
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
from reader._core.shared.entry_table import GENERATIONS, PLACES, SUMS, WORDS, EntryTable, checksum
from reader._core.shared.mapping import Mapping
from reader.caching.free_space import LINE, FreeSpace
from reader.caching.sample_form import UnknownForm, spans
from reader.sharing.memory_file import Bytes, padded

__all__ = ["HEAD", "Entry", "EntryFile", "entries_begin"]

HEAD = 4096  # bytes of the JSON header
_PAGE = 4096
_WORD = 8
_MAGIC = 0x4C4F444341434845
_ENTRY = struct.Struct("<QQQQQQ")  # magic, number, tag, bytes of the form and of the rest, checksum
_WRITES = 512  # parts of one write: systems take 1,024
_GENERATION_BITS = PLACES.bit_length()
# the numbers of the counters in the table; free_space.py has others
HITS, MISSES, REFUSED, EVICTED, DAMAGED, CHECKED, GENERATION = 1, 2, 3, 4, 5, 7, 11
ABSENT = 0  # EVICTED and DAMAGED are also reasons why there is no entry


class Entry(NamedTuple):
    """An entry.

    Attributes:
        form: of a sample.
        content: its parts one after the other.
        word: of the table, for `EntryFile.is_same`.
    """

    form: bytes
    content: Bytes
    word: int


def entries_begin(count: int) -> int:
    """Return where the entries of a file begin, in bytes."""
    end = HEAD + (SUMS + WORDS * count) * _WORD
    return -(-end // _PAGE) * _PAGE


class EntryFile(Finalized):
    """A file of entries.

    Args:
        fd: of the file, with its header and table; this object owns it.
        count: how many entries there may be.
        limit: how many bytes they may take.
        is_memory: whether the file is in memory; otherwise it is on a disk.

    Raises:
        OSError: the system refuses to map it.
    """

    _fd = -1

    def __init__(self, fd: int, count: int, limit: int, is_memory: bool) -> None:
        self.count, self.limit, self.is_memory = count, limit, is_memory
        self._begin = entries_begin(count)
        self._table_map = Mapping(fd, self._begin, is_writable=True)
        self.table = EntryTable(self._table_map, HEAD, count)
        self._space = FreeSpace(fd, self.table, self._begin, limit, is_memory)
        self._content: Bytes | None = None
        if is_memory:
            whole = memoryview(Mapping(fd, self._begin + limit))
            self._content = np.frombuffer(whole, np.uint8)[self._begin :]
        self._fd = fd

    def __reduce__(self) -> Any:
        """Pass the descriptor to another process, as multiprocessing does."""
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
        return self._space.used if self.is_whole else 0

    def recover(self) -> None:
        """Drop entries that ended processes were writing. No other process has the file open."""
        self.table.drop_claims()
        words = np.frombuffer(memoryview(self._table_map), np.uint64)
        begin = HEAD // _WORD + SUMS
        self._space.recover(words[begin : begin + WORDS * self.count])

    def read(self, number: int, tag: int) -> Entry | int:
        """Return an entry; ABSENT: it is not there.

        Returns:
            EVICTED, DAMAGED: it had another tag, or the disk damaged it; it is dropped. Only one of
            several callers gets this.
        """
        word = self.table.word(number) if self.is_whole else 0
        if not word:
            return ABSENT
        try:
            entry = self._read_at(_begin_of(word), number, tag, word)
        except (OSError, OverflowError):  # the disk fails, or the place is invalid
            entry = DAMAGED
        if not isinstance(entry, Entry):
            return entry if self._drop(number, word) else ABSENT
        # if the bytes are another entry's by now, the checksum may be too
        return entry if self.is_memory or self.table.is_same(number, word) else ABSENT

    def is_same(self, number: int, word: int) -> bool:
        """Whether an entry was there all the time while its bytes were read.

        An entry from a disk is a copy: `read` has checked it.
        """
        return not self.is_memory or bool(self.table.is_same(number, word))

    def _drop(self, number: int, word: int) -> bool:
        """Drop an entry and release its bytes. False: another process did."""
        lines, at = self.table.lines(number), _begin_of(word)
        try:
            head = self._bytes_at(at, LINE)
        except (OSError, OverflowError):
            head = None
        if not self.table.drop(number, word):
            return False
        # if table and entry disagree on its length, others may have the bytes
        if head is not None and _lines_in(head, number) == lines:
            self._space.release(at, lines * LINE)
        return True

    def holds(self, number: int) -> bool:
        """Whether an entry is there, of whatever tag."""
        return self.is_whole and self.table.word(number) > 0

    def add(self, sum_number: int) -> int:
        """Add one to a counter; returns its value before."""
        return self.table.add(sum_number) if self.is_whole else 0

    def sum(self, sum_number: int) -> int:
        """Return a counter."""
        return self.table.sum(sum_number) if self.is_whole else 0

    @property
    def is_whole(self) -> bool:
        """Whether the table is there: another program may have truncated the file on a disk."""
        return self.is_memory or os.fstat(self._fd).st_size >= self._begin

    def has_space(self, entry: Entry) -> bool:
        """Whether there is probably space for an entry of another file."""
        return self.is_whole and self._space.has_space(_total(entry.form, [entry.content]))

    def keep(self, number: int, tag: int, form: bytes, parts: Sequence[Any]) -> bool:
        """Write an entry, unless it is there, or another process writes it.

        Returns:
            False: there is no space.

        Raises:
            OSError: the disk is full, or fails. Only this entry is lost.
        """
        pid = os.getpid()
        with interrupt_after():  # an interrupt would leave the claim
            if not self.is_whole or not self._claim(number, pid):
                return True
            at, total, word = -1, _total(form, parts), 0
            try:
                at = self._space.take(total)
                if at >= 0:
                    self._write_entry(at, number, tag, form, parts)
                    self.table.set_lines(number, total // LINE)
                    generation = self.table.add(GENERATION) & GENERATIONS
                    word = generation << _GENERATION_BITS | at // LINE + 1
            finally:
                is_kept = self.table.publish(number, pid, word) and word
                if at >= 0 and not is_kept:
                    self._space.release(at, total)
            return at >= 0

    def _write_entry(
        self, at: int, number: int, tag: int, form: bytes, parts: Sequence[Any]
    ) -> None:
        total = _total(form, parts)
        content = total - LINE - padded(len(form))
        # no checksum in memory: no later program reads it
        expected = 0 if self.is_memory else checksum([form, *parts])
        head = _ENTRY.pack(_MAGIC, number, tag, len(form), content, expected)
        if self.is_memory:  # faster to get all pages at once
            os.posix_fallocate(self._fd, self._begin + at, total)
        self._write([head, form, *parts], self._begin + at)

    def _claim(self, number: int, pid: int) -> bool:
        holder = self.table.claim(number, 0, pid)
        if holder > 0 and holder != pid and _has_ended(holder):
            return self.table.take_over(number, holder, pid)
        return holder == 0

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

    def _read_at(self, at: int, number: int, tag: int, word: int) -> Entry | int:
        """Return an entry, or the number of the counter for the reason that there is none."""
        head = self._bytes_at(at, LINE) if at >= 0 else None
        if head is None:
            return DAMAGED
        magic, its_number, its_tag, length, content, expected = _ENTRY.unpack_from(head.data)
        if magic != _MAGIC or its_number != number or length + content > self._size() - at:
            return DAMAGED
        if its_tag != tag:
            return EVICTED
        # check the table's length against the file's before memory is allocated for it
        if _lines_in(head, number) != self.table.lines(number):
            return DAMAGED
        try:
            whole = self._bytes_at(at + LINE, padded(length) + content)
        except MemoryError:  # the file claims that size, but has holes
            return DAMAGED
        if whole is None:
            return DAMAGED
        entry = Entry(whole[:length].tobytes(), whole[padded(length) :], word)
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
        return checksum([entry.form, *spans(entry.form, entry.content)]) == expected
    except UnknownForm:
        return False


def _total(form: bytes, parts: Sequence[Any]) -> int:
    """Return how many bytes an entry takes."""
    return LINE + sum(map(padded, [len(form), *map(_nbytes, parts)]))


def _begin_of(word: int) -> int:
    """Return where the entry of a word begins; below 0: the word is damaged."""
    return ((word & PLACES) - 1) * LINE


def _lines_in(head: Bytes, number: int) -> int:
    """Return how many lines an entry's own header says it takes; -1: it is another entry."""
    if len(head) < LINE:
        return -1
    magic, its_number, _, length, content, _ = _ENTRY.unpack_from(head.data)
    is_entry = magic == _MAGIC and its_number == number
    return (LINE + padded(length) + content) // LINE if is_entry else -1


def _nbytes(part: Any) -> int:
    return int(part.nbytes) if hasattr(part, "nbytes") else len(part)


def _has_ended(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except OverflowError:  # no process has such a number: the table is damaged
        return True
    except PermissionError:
        return False
    return False
