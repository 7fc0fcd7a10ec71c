"""The bytes that are here: pieces of objects, within a limit.

Imports the standard library. A piece is a file of its own, in memory or in the folder of a cache.
To let it go is to close and unlink that: who has its descriptor keeps the bytes. Which piece goes
is Belady's rule: the one that is read again last.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import errno
import itertools
import json
import os
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reader.stores.fetcher.future import UNKNOWN

__all__ = ["LEAST", "KeptBytes", "KeptObject", "Piece", "write"]

LEAST = 64 << 20  # bytes of a limit: of some extents on their way at once

_LOG = "pieces.jsonl"
_FOR_ASKED = 512 << 20  # bytes of the limit that are left for what is asked for at once
_SUFFIX = ".piece"
_MOST_LINES = 10_000
_MOST_OF = 0.98  # of a piece: what lies between samples is not handed out
_MOST_SPARE = 256 << 20  # bytes that are in memory since the disk has no room for them
_FULL = (errno.ENOSPC, errno.EDQUOT)


class Piece:
    """Some bytes of an object, or those that are on their way.

    Attributes:
        begin, end: where they lie in the object.
        here: where those end that are here already.
        done: None: they are here; else done, or failed, when they are.
        waiting: who waits for a part of those that are on their way, and for what end of it.
        users: how many wait for them.
        used: a number that grows with each use; 0: not used yet.
        given: how many bytes of it were handed out in this epoch.
        is_checked: whether its sum was compared, or need not be.
        is_passing: whether it is for one use, and none of its object's pieces.
        is_ahead: whether it was fetched, or is, before anybody asked for it, and nobody has yet.
        content: its bytes, where it has no file, since it is small and for one use.
    """

    def __init__(self, of: KeptObject, begin: int, end: int) -> None:
        self.of, self.begin, self.end = of, begin, end
        self.fd, self.path, self.sum = -1, "", 0
        self.here = begin
        self.done: asyncio.Future[None] | None = None
        self.waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.users, self.used, self.given = 0, 0, 0
        self.is_checked, self.is_passing, self.is_ahead = True, False, False
        self.content: bytearray | None = None

    @property
    def nbytes(self) -> int:
        """How many bytes it has."""
        return self.end - self.begin

    @property
    def is_spent(self) -> bool:
        """Whether all of it was handed out in this epoch."""
        return self.given >= self.nbytes * _MOST_OF

    def reached(self, here: int) -> None:
        """Note that its bytes are here up to some place."""
        self.here = here
        for end, waiter in self.waiting:
            if end <= here and not waiter.done():
                waiter.set_result(None)
        self.waiting = [each for each in self.waiting if each[0] > here]

    def open(self) -> int:
        """Return a descriptor of the bytes, which stays the piece's."""
        if self.fd < 0:
            self.fd = os.open(self.path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        return self.fd

    def shut(self) -> None:
        """Close the descriptor of a piece in a folder, which can be opened again."""
        if self.path and self.fd >= 0 and self.done is None:
            os.close(self.fd)
            self.fd = -1


class KeptObject:
    """An object of a store, with the pieces of it that are here.

    Attributes:
        root: what names the store in the folder.
        key: of it.
        nbytes, version: as the store says; -1, "": not known yet.
        pieces: by where they begin, none over another.
        spent: where bytes begin and end that were handed out in this epoch, and went since.
        number: of the version that is wanted; 0: any.
        is_known: whether nbytes and version are from the store, in this process's life.
        read_to: where the range ends that was asked for last.
    """

    def __init__(self, root: str, key: str) -> None:
        self.root, self.key = root, key
        self.nbytes, self.version, self.number, self.read_to = -1, "", 0, 0
        self.pieces: list[Piece] = []
        self.spent: list[tuple[int, int]] = []
        self.is_known = False

    def piece_at(self, place: int) -> Piece | None:
        """Return the piece that has a byte."""
        number = bisect.bisect_right(self.pieces, place, key=_begin) - 1
        if number < 0 or self.pieces[number].end <= place:
            return None
        return self.pieces[number]

    def unspent(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the parts of a gap that are not spent."""
        while begin < end:
            number = bisect.bisect_right(self.spent, (begin, self.nbytes + 1))
            if number and self.spent[number - 1][1] > begin:
                begin = self.spent[number - 1][1]
                continue
            stop = self.spent[number][0] if number < len(self.spent) else end
            yield begin, min(stop, end)
            begin = stop

    def gap_at(self, place: int, least: int, most: int) -> tuple[int, int]:
        """Return where the gap around a byte begins and ends, within limits."""
        number = bisect.bisect_right(self.pieces, place, key=_begin)
        begin = self.pieces[number - 1].end if number else 0
        end = self.pieces[number].begin if number < len(self.pieces) else most
        return max(least, begin), min(most, end)


def _begin(piece: Piece) -> int:
    return piece.begin


class KeptBytes:
    """All pieces.

    Args:
        folder: where they lie, of this user alone; None: in memory.
        limit: how many bytes they have at most.
        distance: says in how many groups an object is read next.

    Attributes:
        limit: as it was given, or less since the disk was full in this epoch.
        nbytes: of all pieces.
        ahead_nbytes: of those that nobody has asked for yet.
        evicted: how many bytes went for others.
        is_short: whether the folder did not take some of them.
        objects: by the names of their stores and their keys.
    """

    def __init__(self, folder: str | None, limit: int, distance: Callable[[Any], int]) -> None:
        self.limit = self._limit = limit
        self.nbytes, self.ahead_nbytes, self.evicted, self.is_short = 0, 0, 0, False
        self._folder, self._distance = folder, distance
        self._spare: dict[Piece, None] = {}  # in memory, for want of a disk; the oldest first
        self.objects: dict[tuple[str, str], KeptObject] = {}
        self._clock = itertools.count(1)
        self._victims: list[tuple[int, bool, int, Piece]] = []
        self._log: Any = None
        self._lines = 0  # of the list, since it was written anew
        if folder is not None:
            self._read_log(folder)

    def of(self, root: str, key: str) -> KeptObject:
        """Return an object, which may have no piece."""
        found = self.objects.get((root, key))
        if found is None:
            found = self.objects[root, key] = KeptObject(root, key)
        return found

    def new(self, of: KeptObject, begin: int, end: int) -> Piece:
        """Return a new piece for a gap of an object, with room for its bytes; they are to come."""
        piece = Piece(of, begin, end)
        if self._folder is None or not self._has_file(piece, -1):
            self._have_memory(piece)
        return self._added(piece)

    def new_ahead(self, of: KeptObject, begin: int, end: int, distance: int) -> Piece | None:
        """Return a new piece that nobody waits for yet; None: there is no room for it.

        Args:
            of: the object.
            begin: of a gap in it.
            end: of the gap.
            distance: in how many groups it is read: see `make_room`.
        """
        if not self.make_room(end - begin, distance):
            return None
        piece = Piece(of, begin, end)
        if self._folder is None:
            self._have_memory(piece)
        elif not self._has_file(piece, distance):
            return None
        piece.is_ahead = True
        self.ahead_nbytes += piece.nbytes
        return self._added(piece)

    def _added(self, piece: Piece) -> Piece:
        bisect.insort(piece.of.pieces, piece, key=_begin)
        self.nbytes += piece.nbytes
        return piece

    def _has_file(self, piece: Piece, distance: int) -> bool:
        """Whether a piece has a file in the folder, for which others may have gone."""
        for _ in range(2):
            try:
                self._make_file(piece)
            except OSError as error:
                self._drop_file(piece)
                self._lower_limit()
                least = self.nbytes - piece.nbytes
                if error.errno not in _FULL:
                    return False
                while self.nbytes > least:
                    if not self._evict(distance):
                        return False
            else:
                return True
        return False  # those who read what went keep it on the disk

    def _make_file(self, piece: Piece) -> None:
        """Make the file of a piece. OSError: it cannot be made, or its disk is full."""
        path = f"{self._folder}/{os.urandom(12).hex()}{_SUFFIX}"
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        piece.fd, piece.path = os.open(path, flags, 0o600), path
        try:
            os.posix_fallocate(piece.fd, 0, piece.nbytes)
        except OSError as error:
            if error.errno not in (errno.EOPNOTSUPP, errno.EINVAL):
                raise

    def _have_memory(self, piece: Piece) -> None:
        """Give a piece memory; of what is there for want of a disk the oldest goes for it."""
        piece.fd = os.memfd_create("reader-piece", os.MFD_CLOEXEC)
        if self._folder is None:
            return
        left = sum(each.nbytes for each in self._spare) + piece.nbytes - _MOST_SPARE
        for each in list(self._spare) if left > 0 else ():
            if left > 0 and each.done is None and not each.users:
                left -= each.nbytes
                self.drop(each)
        self._spare[piece] = None

    def _lower_limit(self) -> None:
        """Take what is kept now for the limit, since the disk is full, until an epoch begins."""
        self.is_short, self.limit = True, min(self.limit, max(LEAST, self.nbytes))

    def leave_disk(self, piece: Piece, at: int) -> None:
        """Go on in memory with a piece of which some bytes are here: its disk fails, or is full."""
        here = os.pread(piece.fd, at - piece.begin, 0)
        self._drop_file(piece)
        self._lower_limit()
        self._have_memory(piece)
        write(piece, here, piece.begin)

    def passing(self, of: KeptObject, begin: int, end: int) -> Piece:
        """Return a new piece that is no part of its object, for one use: a few bytes."""
        piece = Piece(of, begin, end)
        piece.content, piece.is_passing = bytearray(piece.nbytes), True
        return piece

    def take(self, piece: Piece) -> None:
        """Note that somebody waits for a piece."""
        piece.users += 1
        if piece.is_ahead:
            piece.is_ahead = False
            self.ahead_nbytes -= piece.nbytes

    def use(self, piece: Piece) -> None:
        """Note that a piece is handed out."""
        piece.used = next(self._clock)

    def spend(self, piece: Piece) -> None:
        """Note that all of a piece was handed out: it may go before all others."""
        if self._victims and not piece.is_passing:
            self._victims.append((UNKNOWN, True, piece.used, piece))

    def is_sound(self, piece: Piece) -> bool:
        """Whether a piece can be read, and has the bytes that an earlier process wrote."""
        try:
            fd = piece.open()  # somebody may have removed it
            if not piece.is_checked:
                content = os.pread(fd, piece.nbytes, 0)
                piece.is_checked = len(content) == piece.nbytes and zlib.crc32(content) == piece.sum
        except OSError:
            return False
        return piece.is_checked

    def keep(self, piece: Piece) -> None:
        """Note that all bytes of a piece are there."""
        if not piece.path or self._log is None or piece.is_passing:
            return
        self._lines += 1
        if self._lines > _MOST_LINES and self._lines > 4 * sum(1 for _ in self._all()):
            self._write_log()
            return
        with contextlib.suppress(OSError):  # of a full disk: the next process fetches it again
            self._log.write(_line_of(piece))
            self._log.flush()

    def cut(self, piece: Piece, end: int) -> None:
        """Note that a piece ends sooner: so does its object."""
        self.nbytes -= piece.end - end
        self.ahead_nbytes -= (piece.end - end) * piece.is_ahead
        piece.end = end
        if end <= piece.begin:
            self.drop(piece)
        else:
            os.ftruncate(piece.fd, piece.nbytes)

    def drop(self, piece: Piece) -> None:
        """Let a piece go."""
        if piece.is_passing:
            self._drop_file(piece)
            return
        number = bisect.bisect_left(piece.of.pieces, piece.begin, key=_begin)
        if number < len(piece.of.pieces) and piece.of.pieces[number] is piece:
            del piece.of.pieces[number]
            if piece.is_spent:
                bisect.insort(piece.of.spent, (piece.begin, piece.end))
            self.nbytes -= piece.nbytes
            self.ahead_nbytes -= piece.nbytes * piece.is_ahead
            piece.is_ahead = False
            self._drop_file(piece)

    def forget(self, piece: Piece) -> None:
        """Let a piece go that has wrong bytes, or old ones; who waits for it has it yet."""
        if piece.done is None and not piece.users:
            self.drop(piece)
            return
        piece.of.pieces.remove(piece)
        self.nbytes -= piece.nbytes
        self.ahead_nbytes -= piece.nbytes * piece.is_ahead
        piece.is_passing, piece.is_ahead = True, False

    def renewed(self, of: KeptObject) -> KeptObject:
        """Return the object of a key anew: it has another version, and what was here goes."""
        for piece in list(of.pieces):
            self.forget(piece)
        del self.objects[of.root, of.key]
        return self.of(of.root, of.key)

    def make_room(self, nbytes: int, distance: int) -> bool:
        """Whether there is room, once pieces went that are read later than in `distance` groups."""
        while not self.has_space(nbytes, distance):
            if not self._evict(distance):
                return False
        return True

    def has_space(self, nbytes: int, distance: int) -> bool:
        """Whether there is room, and nothing has to go. `distance`: see `make_room`."""
        # what nobody waits for yet leaves room for what somebody will
        left = min(self.limit // 4, _FOR_ASKED) if distance >= 0 else 0
        return self.nbytes + nbytes <= self.limit - left

    def _evict(self, distance: int) -> bool:
        """Let the piece go that is read last, if that is later than in `distance` groups."""
        is_fresh = False
        while self._victims or not is_fresh:
            if not self._victims:
                self._victims, is_fresh = self._ranked(), True
                continue
            found, is_done, _, piece = self._victims.pop()
            if piece.done is not None or piece.users or piece.of.piece_at(piece.begin) is not piece:
                continue
            if found <= distance and not (is_done and distance >= 0):
                self._victims.clear()
                return False
            self.evicted += piece.nbytes
            self.drop(piece)
            return True
        return False

    def is_half_empty(self) -> bool:
        """Whether much more can come before anything goes."""
        return self.nbytes < self.limit // 2

    def moved(self) -> None:
        """Note that what is read next has changed."""
        self._victims.clear()

    def begin_epoch(self) -> None:
        """Note that an epoch begins: all will be read again, and the disk may have room again."""
        self.moved()
        self.limit = self._limit
        for each in self.objects.values():
            each.spent.clear()
        for piece in self._all():
            piece.given = 0

    def _ranked(self) -> list[tuple[int, bool, int, Piece]]:
        """Return the pieces that may go, the one that is read again last at the end.

        Of two that are read in the same group that one goes first of which all was handed out. Of
        those of which nothing is known it is the one that was used last: it will be read again an
        epoch later, as the others will sooner. One that was never used stays.
        """
        found: list[tuple[int, bool, int, Piece]] = []
        for each in self.objects.values():
            distance = self._distance(each) if each.pieces else 0
            for piece in each.pieces:
                if piece.done is None and not piece.users:
                    far = distance if distance < UNKNOWN or piece.used else 1
                    if not piece.used and not each.is_known:
                        far = UNKNOWN + 1
                    found.append((far, piece.is_spent, piece.used, piece))
        found.sort(key=lambda each: each[:3])
        return found

    def _drop_file(self, piece: Piece) -> None:
        self._spare.pop(piece, None)
        if piece.fd >= 0:
            os.close(piece.fd)
        if piece.path:
            with contextlib.suppress(OSError):
                Path(piece.path).unlink()
        piece.fd, piece.path = -1, ""

    def close(self) -> None:
        """Close all that is open; what is in the folder stays there."""
        if self._log is not None:
            with contextlib.suppress(OSError):  # of a full disk
                self._log.close()
        for piece in self._all():
            if piece.fd >= 0:
                os.close(piece.fd)
                piece.fd = -1

    def _read_log(self, folder: str) -> None:
        """Take the pieces that an earlier process has left in the folder; write the list anew."""
        path = f"{folder}/{_LOG}"
        left: dict[str, dict[str, Any]] = {}
        for said in _lines_of(path):
            name = said.get("file")
            if isinstance(name, str) and name.endswith(_SUFFIX) and "/" not in name:
                left[name] = said
        with os.scandir(folder) as entries:
            sizes = {each.name: each.stat(follow_symlinks=False).st_size for each in entries}
        for name, said in left.items():
            with contextlib.suppress(KeyError, TypeError, ValueError):
                self._take(f"{folder}/{name}", sizes.get(name, -1), said)
        kept = {Path(piece.path).name for piece in self._all()}
        for name in sizes:
            if (name.endswith(_SUFFIX) and name not in kept) or name.startswith(f"{_LOG}."):
                with contextlib.suppress(OSError):
                    Path(folder, name).unlink()
        self._write_log()
        self.make_room(0, -1)

    def _write_log(self) -> None:
        """Write the list of pieces anew; on a full disk the old one stays."""
        path = f"{self._folder}/{_LOG}"
        draft = f"{path}.{os.urandom(6).hex()}"
        self._lines = 0
        with contextlib.ExitStack() as undone, contextlib.suppress(OSError):
            log = open(draft, "x", encoding="utf-8", opener=_of_this_user)  # noqa: SIM115
            undone.callback(_discard, log, draft)
            for each in self._all():
                if each.path and each.done is None:
                    log.write(_line_of(each))
            log.flush()
            Path(draft).replace(path)
            undone.pop_all()
            before, self._log = self._log, log
            if before is not None:
                before.close()

    def _take(self, path: str, size: int, said: dict[str, Any]) -> None:
        """Take a piece that an earlier process has left. ValueError, ...: it cannot be."""
        begin, end, nbytes = (int(said[name]) for name in ("begin", "end", "nbytes"))
        of = self.of(str(said["root"]), str(said["key"]))
        if not 0 <= begin < end <= nbytes or size != end - begin or of.nbytes not in (-1, nbytes):
            raise ValueError("it is not what the list says")
        if of.version not in ("", said["version"]) or of.gap_at(begin, begin, end) != (begin, end):
            raise ValueError("there is another piece of it")
        of.nbytes, of.version = nbytes, str(said["version"])
        piece = Piece(of, begin, end)
        piece.path, piece.sum, piece.is_checked = path, int(said["sum"]), False
        piece.here = end
        bisect.insort(of.pieces, piece, key=_begin)
        self.nbytes += piece.nbytes

    def _all(self) -> Iterator[Piece]:
        for each in self.objects.values():
            yield from each.pieces


def write(piece: Piece, content: bytes, at: int) -> None:
    """Write some bytes of a piece. OSError: its disk fails, or is full."""
    if piece.content is not None:
        piece.content[at - piece.begin : at - piece.begin + len(content)] = content
        return
    done = 0
    while done < len(content):
        done += os.pwrite(piece.fd, memoryview(content)[done:], at - piece.begin + done)


def _line_of(piece: Piece) -> str:
    """Return what the list says of a piece."""
    said = {
        "root": piece.of.root,
        "key": piece.of.key,
        "nbytes": piece.of.nbytes,
        "version": piece.of.version,
        "begin": piece.begin,
        "end": piece.end,
        "sum": piece.sum,
        "file": Path(piece.path).name,
    }
    return json.dumps(said) + "\n"


def _discard(log: Any, path: str) -> None:
    """Close and remove a list that could not be written."""
    for remove in (log.close, Path(path).unlink):
        with contextlib.suppress(OSError):
            remove()


def _lines_of(path: str) -> Iterator[dict[str, Any]]:
    """Yield what the lines of a list say that are whole."""
    try:
        with open(path, encoding="utf-8", opener=_without_links) as file:
            for line in file:
                with contextlib.suppress(ValueError):
                    said = json.loads(line)
                    if isinstance(said, dict):
                        yield said
    except (OSError, UnicodeDecodeError):
        return


def _without_links(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)


def _of_this_user(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
