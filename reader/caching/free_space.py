"""The free bytes of a file of entries: taken for an entry, and released after it.

Imports the core's table. The table's counters have the end of the used bytes, and the first of each
list of free pieces before it; a piece begins with a link to the next. Each change is one atomic
step: a process that is killed between two of them loses some bytes until the file is opened by one
process alone, but never gives bytes to two entries.
"""

from __future__ import annotations

import os
import struct
import time
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.shared.entry_table import PLACES, WORDS, EntryTable, allocate, checksum
from reader.available_memory import available_bytes

__all__ = ["END", "LINE", "FreeSpace"]

LINE = 64  # bytes: an entry takes a multiple of it
# the numbers of the counters in the table; entry_file.py has others
END, GRANTED, FREE, GIVEN, DUE = 0, 6, 8, 9, 10
_LISTS = 16  # from here on: the first free piece of 1 line, of 2 and 3, of 4 to 7, ...
_KINDS = PLACES.bit_length()
_LINK = struct.Struct("<QQQQQ")  # magic, place, lines, place of the next, checksum of these
_MAGIC = 0x4C4F444652454521
_DISK_STEP = 8 << 20  # bytes of a disk to allocate at once
_MEMORY_STEP = 64 << 20  # the same of memory
_RESERVE = 256 << 20  # bytes of memory to leave to others
_PAUSE_S = 1.0  # before short memory is checked again: that reads system files


class _Piece(NamedTuple):
    """Free bytes.

    Attributes:
        place: where they begin: the number of the line, plus 1.
        lines: how many there are.
        after: the place of the next in its list; 0: none.
    """

    place: int
    lines: int
    after: int = 0


class FreeSpace:
    """The free bytes of a file.

    Args:
        fd: of the file, which the caller keeps open.
        table: of the file.
        begin: where entries begin in the file; all other numbers count from there.
        limit: the end of the bytes that entries may use.
        is_memory: whether the file is in memory.
    """

    def __init__(self, fd: int, table: EntryTable, begin: int, limit: int, is_memory: bool) -> None:
        self._fd, self._table, self._begin, self._is_memory = fd, table, begin, is_memory
        self._limit = min(limit, PLACES * LINE)
        self._is_allocated = not is_memory  # before it is written
        self._short_until = 0.0

    @property
    def used(self) -> int:
        """How many bytes are not free."""
        return max(0, self._table.sum(END) - self._table.sum(FREE))

    def has_space(self, nbytes: int) -> bool:
        """Whether that many bytes can probably be taken. Cheap."""
        end = self._table.sum(END) + nbytes
        if end <= self._limit and (
            not self._is_memory
            or end <= self._table.sum(GRANTED)
            or time.monotonic() >= self._short_until
        ):
            return True
        return bool(self._table.sum(FREE) >= nbytes)

    def take(self, nbytes: int) -> int:
        """Take bytes; return where they begin, or -1: there is no space.

        Args:
            nbytes: a multiple of a line.

        Raises:
            OSError: the disk is full. Nothing was taken.
        """
        at = self._reused(nbytes)
        if at < 0:
            at = self._appended(nbytes)
        if at < 0 and self._gather(nbytes):
            at = self._reused(nbytes)
            if at < 0:
                at = self._appended(nbytes)
        return at

    def release(self, at: int, nbytes: int) -> None:
        """Release bytes that were taken, or a part of them."""
        if nbytes:
            self._table.add(GIVEN)
            if not self._table.release(at, nbytes):
                self._push(_Piece(at // LINE + 1, nbytes // LINE))

    def recover(self, entries: npt.NDArray[np.uint64]) -> None:
        """Compute the free bytes from the used ones. No other process may have the file open.

        Args:
            entries: the words of the table; impossible entries are dropped from it.
        """
        words, lengths = entries[0::WORDS], entries[1::WORDS]
        end = self._table.sum(END) // LINE
        begins = (words & np.uint64(PLACES)).astype(np.int64) - 1
        lines = np.minimum(lengths, PLACES).astype(np.int64)
        is_there = (begins >= 0) & (lines > 0) & (begins + lines <= end)
        words[(words != 0) & ~is_there] = 0
        found = np.flatnonzero(is_there)
        found = found[np.argsort(begins[found], kind="stable")]
        ends = begins[found] + lines[found]
        before = np.maximum.accumulate(np.concatenate([[0], ends]))
        is_within = begins[found] < before[:-1]  # the table is damaged
        words[found[is_within]] = 0
        for number in (*range(_LISTS, _LISTS + _KINDS), FREE, GIVEN, DUE):
            self._set(number, 0)
        self._set(END, int(before[-1]) * LINE)
        for place in np.flatnonzero(begins[found] > before[:-1]).tolist():
            start = int(before[place])
            self._push(_Piece(start + 1, int(begins[found[place]]) - start))

    def _set(self, number: int, value: int) -> None:
        self._table.swap(number, self._table.sum(number), value)

    def _appended(self, nbytes: int) -> int:
        """Take bytes that were never used; -1: there are not that many."""
        while True:
            end = self._table.sum(END)
            if end + nbytes > self._limit:
                return -1
            granted = self._granted()
            if end + nbytes > granted:
                granted = self._grant(end, nbytes)
                if granted < 0:
                    return -1
            at = int(self._table.take(nbytes, min(granted, self._limit)))
            if at >= 0:
                return at

    def _granted(self) -> int:
        """Return the end of the bytes that the system has allocated."""
        if self._is_memory:
            return int(self._table.sum(GRANTED))
        if self._is_allocated:
            return os.fstat(self._fd).st_size - self._begin
        return self._limit

    def _grant(self, end: int, nbytes: int) -> int:
        """Allocate bytes from `end` on; returns the new end of the allocated bytes.

        Returns:
            -1: memory is short.

        Raises:
            OSError: the disk is full. Allocate before taking bytes, which would be lost.
        """
        if not self._is_memory:
            several = min(max(nbytes, _DISK_STEP), self._limit - end)
            try:
                return self._allocated(end, several)
            except OSError:
                if several == nbytes:
                    raise
            return self._allocated(end, nbytes)
        if time.monotonic() < self._short_until:
            return -1
        if available_bytes() < nbytes + _MEMORY_STEP + _RESERVE:
            self._short_until = time.monotonic() + _PAUSE_S
            return -1
        granted = self._table.sum(GRANTED)
        if granted < end + nbytes:
            self._table.swap(GRANTED, granted, end + max(_MEMORY_STEP, nbytes))
        return end + nbytes

    def _allocated(self, end: int, nbytes: int) -> int:
        self._is_allocated = allocate(self._fd, self._begin + end, nbytes)
        return end + nbytes if self._is_allocated else self._limit

    def _reused(self, nbytes: int) -> int:
        """Take free bytes before the end; -1: no piece is large enough."""
        if self._table.sum(FREE) < nbytes:
            return -1
        lines = nbytes // LINE
        for kind in range(lines.bit_length() - 1, _KINDS):
            piece = self._pop(kind, lines)
            if piece is not None:
                at = (piece.place - 1) * LINE
                self.release(at + nbytes, piece.lines * LINE - nbytes)
                return at
        return -1

    def _gather(self, nbytes: int) -> bool:
        """Join free pieces that lie side by side. False: that was done recently."""
        table = self._table
        due, given = table.sum(DUE), table.sum(GIVEN)
        is_enough = table.sum(FREE) > 0 and self.used + nbytes <= self._limit
        if not is_enough or given < due or not table.swap(DUE, due, given + 1):
            return False
        pieces = []
        for kind in range(_KINDS):
            while True:
                piece = self._pop(kind, 1)
                if piece is None:
                    break
                pieces.append(piece)
        joined: list[_Piece] = []
        for piece in sorted(pieces):
            last = joined[-1] if joined else None
            if last is not None and last.place + last.lines == piece.place:
                joined[-1] = _Piece(last.place, last.lines + piece.lines)
            else:
                joined.append(piece)
        for piece in reversed(joined):
            self.release((piece.place - 1) * LINE, piece.lines * LINE)
        # not again before a share of them came: otherwise each sample would pay for all
        table.swap(DUE, given + 1, table.sum(GIVEN) + max(1, len(joined) // 4))
        return True

    def _push(self, piece: _Piece) -> None:
        number = _LISTS + piece.lines.bit_length() - 1
        self._table.add(FREE, piece.lines * LINE)
        while True:
            first = self._table.sum(number)
            fields = (_MAGIC, piece.place, piece.lines, first & PLACES)
            try:
                at = self._begin + (piece.place - 1) * LINE
                os.pwrite(self._fd, _LINK.pack(*fields, _sum_of(fields)), at)
            except OSError:  # lost until the file is opened by one process alone
                return
            if self._table.swap(number, first, _next_word(first, piece.place)):
                return

    def _pop(self, kind: int, lines: int) -> _Piece | None:
        """Take the first piece of a list, if it has at least that many lines."""
        number = _LISTS + kind
        while True:
            first = self._table.sum(number)
            if not first & PLACES:
                return None
            piece = self._piece_at(first & PLACES)
            if piece is None or piece.lines.bit_length() - 1 != kind:
                # another process has it now; or it is damaged, and so is the list
                if self._table.swap(number, first, _next_word(first, 0)):
                    return None
            elif piece.lines < lines:
                return None
            elif self._table.swap(number, first, _next_word(first, piece.after)):
                self._table.add(FREE, -piece.lines * LINE)
                return piece

    def _piece_at(self, place: int) -> _Piece | None:
        try:
            found = os.pread(self._fd, _LINK.size, self._begin + (place - 1) * LINE)
        except (OSError, OverflowError):
            return None
        if len(found) < _LINK.size:
            return None
        *fields, expected = _LINK.unpack(found)
        magic, its_place, lines, after = fields
        is_link = magic == _MAGIC and its_place == place and expected == _sum_of(tuple(fields))
        is_within = lines > 0 and (place - 1 + lines) * LINE <= self._table.sum(END)
        return _Piece(place, lines, after) if is_link and is_within else None


def _sum_of(fields: tuple[int, ...]) -> int:
    return checksum([struct.pack("<4Q", *fields)])


def _next_word(word: int, place: int) -> int:
    """Return the next word of a list: never one that it had shortly before."""
    generation = (word >> PLACES.bit_length()) + 1
    return (generation << PLACES.bit_length() | place) & ((1 << 64) - 1)
