"""Transfers: pieces of objects on their way, those that somebody waits for before all others.

Imports the stores and what is kept. What breaks goes on from where it stopped, after waits that
grow, until its time is over.
"""

from __future__ import annotations

import asyncio
import functools
import hashlib
import heapq
import itertools
import os
import random
import re
import time
import zlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, TypeVar

from reader.stores.fetcher.failure import Failure
from reader.stores.fetcher.future import UNKNOWN, Future
from reader.stores.fetcher.kept_bytes import KeptBytes, KeptObject, Piece, write
from reader.stores.fetcher.object_store import Meta, ObjectStore, number_of
from reader.stores.fetcher.responses import MOST_STALL_S, Response, Responses, seen

__all__ = ["EXTENT", "FIRST_WAIT_S", "Source", "Transfers", "Wanted"]

_T = TypeVar("_T")

EXTENT = 8 << 20  # bytes that one request fetches
_SMALL = 1 << 16  # bytes of a range for which all of its extent is fetched
_WHOLE = 1 << 20  # bytes of an object that is fetched by one request, with the sum that it has
_MOST_ASKED, _MOST_AHEAD = 64, 8  # requests at once
_CROWD, _BLOCK = 16, 1 << 19  # requests at once, of so many bytes each
FIRST_WAIT_S, _LONGEST_WAIT_S = 0.1, 8.0
_ALONE_S = 1.0  # for which only the first samples of an epoch are fetched, at most
# ranges at its beginning that are fetched by themselves, their bytes, and those of one at least
_ALONE, _ALONE_NBYTES, _LEAST_ALONE = 1024, 64 << 20, 1 << 14
_FIRST_READS = 4  # of a reader: the places of shards, and samples of its first batches
_FIRST_SMALL = 2  # likewise, of small samples: what is beside them is here soon
_NEAR = 1 << 18  # bytes of a piece that is on its way: it will soon be here
_PART = 8  # of the limit is fetched ahead at first
_LOOKS = 16  # at what comes ahead, while as much is asked for as may be fetched ahead
_MD5 = re.compile('"[0-9a-f]{32}"')  # a version of S3, for what was uploaded by one request
_AGAIN_S = 30  # before what failed ahead of its time is tried again


class Source(NamedTuple):
    """Where an object is read: its store, and how long a transfer is tried."""

    store: ObjectStore
    patience_s: float


class Transfers:
    """What is fetched, and kept.

    Args:
        kept: the bytes that are here.
        future: what is read next.
        ahead: how many bytes are fetched that nobody has asked for; None: as many as fit while
            nothing goes for them; then this group and the next one, and beyond them an eighth of
            the limit, or more when somebody had to wait.

    Attributes:
        counts: of requests, bytes and retries, for statistics.
        goes_ahead: whether what nobody waits for yet is fetched.
    """

    def __init__(self, kept: KeptBytes, future: Future, ahead: int | None = None) -> None:
        self.kept, self._future = kept, future
        self._is_auto = ahead is None
        self._most_ahead = kept.limit // _PART if ahead is None else ahead
        self._raised_s = 0.0  # when it was last
        self.counts: Counter[str] = Counter()
        self.goes_ahead = True
        self._sources: dict[KeptObject, Source] = {}
        # large objects of which nobody has told when they are read, and their bytes
        self._untold: dict[tuple[str, str], KeptObject] = {}
        self._untold_nbytes: int | None = None  # None: they are to be summed
        self._asked: list[tuple[tuple[int, int], int, Piece]] = []  # a heap: by turn and number
        self._numbers = itertools.count()
        self._running: set[asyncio.Task[None]] = set()
        self._running_nbytes = 0
        self._running_ahead = self._ahead_nbytes = 0  # requests of them, and their bytes
        self._running_s, self._looked_s = 0.0, time.monotonic()
        self._spent = 0  # bytes, since what comes ahead was looked at
        self._asked_for = 0  # likewise, for the first time
        self._alone_left = self._alone_nbytes = 0  # ranges that may yet be fetched by themselves
        self._responses = Responses(self.counts)
        self._failed: dict[KeptObject, float] = {}
        self._ahead: Iterator[tuple[KeptObject, int, int]] | None = None
        self._gap: tuple[KeptObject, int, int] | None = None  # the next one of these
        self._is_full = False  # there was no room for it

    async def known(
        self, root: str, key: str, source: Source, nbytes: int, number: int
    ) -> KeptObject:
        """Return an object in the version that an index says.

        Args:
            root: of its store.
            key: of it.
            source: where it lies.
            nbytes: that it has; -1: not known.
            number: of its version; 0: not known.

        Raises:
            Failure: the store has another version.
        """
        of = self.kept.of(root, key)
        is_old = bool(of.version) and number not in (0, number_of(of.version))
        if is_old or (of.version and not of.is_known and not number):
            # what is here is of another version, or a folder has it from some time
            meta = await self.meta(of, source)
            if number not in (0, number_of(meta.version)):
                raise Failure("changed", "it has another version")
            if meta != (of.nbytes, of.version):
                of = self.kept.renewed(of)
        of.is_known = True
        self.expect(of, source, nbytes, number)
        if nbytes >= 0 and of.nbytes != nbytes:
            raise Failure("changed", f"it has {of.nbytes:,} bytes, and an index says {nbytes:,}")
        if of.nbytes > _WHOLE and self._untold.get((root, key)) is not of:
            self._untold[root, key] = of
            self._untold_nbytes = None
        return of

    def expect(self, of: KeptObject, source: Source, nbytes: int, number: int) -> None:
        """Take what an index says of an object that will be read. See `known`."""
        self._sources[of] = source
        of.number = of.number or number
        if of.nbytes < 0:
            of.nbytes = nbytes

    async def meta(self, of: KeptObject, source: Source) -> Meta:
        """Return what a store says of an object."""
        return await self.tried(source, lambda: source.store.meta(of.key))

    async def tried(self, source: Source, ask: Callable[[], Coroutine[Any, Any, _T]]) -> _T:
        """Return what a request gives, which is made again where that may help."""
        wait, end = FIRST_WAIT_S, time.monotonic() + source.patience_s
        while True:
            self.counts["requests"] += 1
            try:
                return await asyncio.wait_for(ask(), source.patience_s)
            except (Failure, asyncio.TimeoutError) as error:
                wait = await self.pause(error, wait, end)

    async def pieces(self, wanted: Wanted, counts: Counter[str]) -> list[Piece]:
        """Return the pieces that have some bytes of a known object, when all of them are here.

        Args:
            wanted: these bytes.
            counts: gets the bytes that are not here yet, "missed".

        Raises:
            Failure: they cannot be had.
        """
        of, begin, end = wanted.of, wanted.begin, wanted.end
        is_known = of.nbytes >= 0
        if not is_known:
            last = begin + EXTENT if end < 0 else end
            first = of.piece_at(begin) or self._ask(wanted, begin, last)
            await self._here([first], first.end)
        if end < 0:
            end = of.nbytes
            wanted = wanted._replace(end=end)
        if not 0 <= begin <= end <= of.nbytes:
            raise Failure(
                "range", f"bytes {begin:,} to {end:,} are wanted, and it has {of.nbytes:,}"
            )
        is_scattered = wanted.is_small and self._is_scattered(of, begin)
        of.read_to = end
        found: list[Piece] = []
        at = begin
        while at < end:
            piece = self._kept_at(of, at)
            if piece is None or wanted.may_be_alone:
                piece = self._wanted_at(wanted, at, piece, is_scattered)
            found.append(piece)
            self.kept.take(piece)
            at = piece.end
        missed = end - begin - (sum(_here(each, begin, end) for each in found) if is_known else 0)
        try:
            await self._here(found, end)
        except BaseException:
            self.release(found)
            raise
        counts["missed"] += missed
        if missed:
            self._raise_ahead()
        self._note_given(of, found, begin, end)
        return found

    def _note_given(self, of: KeptObject, pieces: list[Piece], begin: int, end: int) -> None:
        """Note that some bytes of pieces are handed out; what comes next may have changed."""
        for piece in pieces:
            self._asked_for += 0 if piece.given else piece.nbytes
            piece.given += min(end, piece.end) - max(begin, piece.begin)
        if self._future.touched(of):
            self.moved()
        elif self._asked_for >= max(EXTENT, self._most_ahead / _LOOKS):
            self._asked_for, self._ahead = 0, None
            self.pump()

    def _raise_ahead(self) -> None:
        """Note that somebody had to wait: more is fetched ahead, if the store could give more."""
        now = time.monotonic()
        is_idle = self._running_ahead < _MOST_AHEAD and not self._is_busy()
        if self._is_auto and self.goes_ahead and is_idle and now - self._raised_s > _ALONE_S:
            self._most_ahead = min(2 * self._most_ahead, self.kept.limit)
            self._raised_s, self._ahead = now, None

    def _wanted_at(self, wanted: Wanted, at: int, piece: Piece | None, is_scattered: bool) -> Piece:
        """Return a piece with a byte of a range: that which has it, or a new one."""
        of, end = wanted.of, wanted.end
        if piece is None and of.nbytes <= _WHOLE:
            return self._ask(wanted, *of.gap_at(at, 0, of.nbytes))
        is_lonely = piece is None and is_scattered
        if wanted.may_be_alone and (is_lonely or self._goes_alone(wanted, piece, at)):
            if not wanted.is_small:
                return self._ask(wanted, *of.gap_at(at, at, end))
            stop = of.gap_at(at, at, end)[1] if piece is None else min(end, piece.end)
            return self._passing(wanted, at, stop)
        if piece is not None:
            return piece
        gap = of.gap_at(at, at, min(end, at + EXTENT))
        if wanted.is_near or wanted.is_small:
            low = at // EXTENT * EXTENT
            gap = of.gap_at(at, low, min(low + EXTENT, of.nbytes))
        elif wanted.may_be_alone and self._is_crowded(of):
            low = at // _BLOCK * _BLOCK
            high = max(low + _BLOCK, min(end, at + EXTENT))
            gap = of.gap_at(at, low, min(high, of.nbytes))
        return self._ask(wanted, *gap)

    def _goes_alone(self, wanted: Wanted, piece: Piece | None, at: int) -> bool:
        """Whether a range is fetched by itself: to be here soon, and what is beside it after it.

        So are some at an epoch's beginning, until what will be read is here. A request for a few
        bytes costs as much as one for many: of such ranges those that somebody begins with are.

        Args:
            wanted: the range.
            piece: that has its byte at `at`; None: nobody fetches it.
            at: where what is not here yet begins.
        """
        end, nbytes = wanted.end, wanted.end - at
        if piece is not None:  # its bytes come twice then: they must be few
            is_near = piece.done is None or min(end, piece.end) - piece.here <= _NEAR
            if is_near or nbytes >= _SMALL:
                return False
        if nbytes < _LEAST_ALONE:
            return wanted.reads < _FIRST_SMALL and piece is None
        if wanted.is_first:
            return True
        self._alone_left -= 1
        self._alone_nbytes -= nbytes
        return self._alone_left >= 0 and self._alone_nbytes >= 0

    def _is_scattered(self, of: KeptObject, begin: int) -> bool:
        """Whether what is beside a range would go again before anybody reads it.

        So it is where it does not follow what was read last, and nobody has told what comes next
        of more bytes than are kept.
        """
        if 0 <= begin - of.read_to < _BLOCK or self._future.distance(of) < UNKNOWN:
            return False
        if self._untold_nbytes is None:
            found = self._untold.values()
            self._untold_nbytes = sum(
                each.nbytes for each in found if self._future.distance(each) >= UNKNOWN
            )
        return self._untold_nbytes > self.kept.limit

    def _is_crowded(self, of: KeptObject) -> bool:
        """Whether so many wait that more is to be fetched by each request.

        What is beside is wanted in this group, too, and there is room for it.
        """
        is_crowd = len(self._running) + len(self._asked) >= _CROWD
        return is_crowd and self._future.distance(of) == 0 and self.kept.is_half_empty()

    def _kept_at(self, of: KeptObject, place: int) -> Piece | None:
        """Return the piece that has a byte; one that has not the bytes of its sum goes."""
        piece = of.piece_at(place)
        if piece is not None and piece.done is None and not self.kept.is_sound(piece):
            self.kept.drop(piece)
            return None
        return piece

    def release(self, pieces: list[Piece]) -> None:
        """Note that pieces were handed out."""
        for piece in pieces:
            piece.users -= 1
            self.kept.use(piece)
            if piece.is_spent and not piece.users:
                self.kept.spend(piece)
                self._spent += piece.nbytes
            if not piece.users:
                piece.shut()
            if piece.is_passing and not piece.users:
                self.kept.drop(piece)
        if self._spent >= EXTENT:  # there is room for what comes
            self._spent, self._is_full = 0, False
            self.pump()

    def begin_epoch(self) -> None:
        """Take a new order: what it begins with comes before all else, for a while."""
        self.goes_ahead = False
        if self._is_auto:
            self._most_ahead = max(self._most_ahead // 2, self.kept.limit // _PART)
        self.kept.begin_epoch()
        self._ahead, self._is_full, self._untold_nbytes = None, False, None
        self._alone_left, self._alone_nbytes = _ALONE, _ALONE_NBYTES
        asyncio.get_running_loop().call_later(_ALONE_S, self.go_ahead)

    def go_ahead(self) -> None:
        """Fetch also what nobody waits for yet."""
        if not self.goes_ahead:
            self.goes_ahead = True
            self.pump()

    def moved(self) -> None:
        """Note that what is read next has changed."""
        self.kept.moved()
        self._ahead, self._is_full, self._untold_nbytes = None, False, None
        self.pump()

    async def _here(self, pieces: list[Piece], end: int) -> None:
        """Wait until pieces are here, of the last one what is before some end."""
        for piece, done in [(piece, piece.done) for piece in pieces]:  # which becomes None
            if done is None or (piece.here >= min(end, piece.end) and not done.done()):
                continue
            part: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            piece.waiting.append((min(end, piece.end), part))
            await asyncio.wait([part, done], return_when=asyncio.FIRST_COMPLETED)
            if done.done():
                done.result()  # raises the error of a transfer that failed

    def _ask(self, wanted: Wanted, begin: int, end: int) -> Piece:
        """Return a piece with what is wanted, before all that nobody waits for yet."""
        self.kept.make_room(end - begin, -1)
        return self._first(wanted, self.kept.new(wanted.of, begin, end))

    def _passing(self, wanted: Wanted, begin: int, end: int) -> Piece:
        """Return a piece that will not be kept: it comes again with what is beside it."""
        return self._first(wanted, self.kept.passing(wanted.of, begin, end))

    def _first(self, wanted: Wanted, piece: Piece) -> Piece:
        """Fetch a piece before all that nobody waits for yet."""
        heapq.heappush(self._asked, (wanted.turn, next(self._numbers), self._coming(piece)))
        self.pump()
        return piece

    def _coming(self, piece: Piece) -> Piece:
        """Note that the bytes of a new piece are on their way."""
        piece.done = asyncio.get_running_loop().create_future()
        piece.done.add_done_callback(seen)
        return piece

    def pump(self) -> None:
        """Begin what can be begun."""
        while self._asked and len(self._running) < _MOST_ASKED:
            self._begin(heapq.heappop(self._asked)[-1])
        while self.goes_ahead and self._has_slot():
            piece = self._next_ahead()
            if piece is None:
                return
            self._begin(piece, is_ahead=True)

    def _has_slot(self) -> bool:
        """Whether more may be fetched that nobody waits for: few extents, or many small objects."""
        is_small = self._ahead_nbytes < EXTENT and self._running_ahead < _MOST_ASKED
        return not self._is_busy() and (self._running_ahead < _MOST_AHEAD or is_small)

    def _is_busy(self) -> bool:
        """Whether as much is on its way as the network should have, also where somebody waits."""
        return self._running_nbytes >= _MOST_AHEAD * EXTENT

    def _next_ahead(self) -> Piece | None:
        """Return a piece that will be read, and for which there is room; None: none is wanted."""
        if self._ahead is None:
            self._ahead, self._gap = self._gaps_ahead(), None
        while not self._is_full:
            self._gap = self._gap or next(self._ahead, None)
            if self._gap is None:
                return None
            of, begin, end = self._gap
            if of.gap_at(begin, begin, end) != (begin, end):
                self._gap = None  # it was asked for meanwhile
            else:
                piece = self.kept.new_ahead(of, begin, end, self._future.distance(of))
                if piece is not None:
                    self._gap = None
                    return self._coming(piece)
                self._is_full = True  # until something is read
        return None

    def _gaps_ahead(self) -> Iterator[tuple[KeptObject, int, int]]:
        """Yield what is to be fetched, and is not yet, as far ahead as may be."""
        now, left = time.monotonic(), self._most_ahead
        for of in self._future.ahead():
            if not isinstance(of, KeptObject) or now < self._failed.get(of, 0):
                continue
            is_soon = self._is_auto and self._future.distance(of) <= 1
            at = 0
            while at < of.nbytes:
                piece = of.piece_at(at)
                if piece is not None:
                    left -= 0 if piece.given or is_soon else piece.nbytes
                    at = piece.end
                    continue
                begin, end = of.gap_at(at, at, min(at // EXTENT * EXTENT + EXTENT, of.nbytes))
                for part in of.unspent(begin, end):
                    if left <= 0 and not is_soon and not self._is_free(part):
                        return
                    left -= 0 if is_soon else part[1] - part[0]
                    yield of, *part
                at = end

    def _is_free(self, part: tuple[int, int]) -> bool:
        """Whether nothing has to go for some bytes, where that is ours to say."""
        return self._is_auto and self.kept.has_space(part[1] - part[0], 0)

    def _begin(self, piece: Piece, is_ahead: bool = False) -> None:
        self.running_s()
        task = asyncio.get_running_loop().create_task(self._transfer(piece))
        self._running.add(task)
        self._note_running(piece.nbytes, is_ahead, 1)
        task.add_done_callback(functools.partial(self._ended, piece.nbytes, is_ahead))

    def _note_running(self, nbytes: int, is_ahead: bool, count: int) -> None:
        self._running_nbytes += count * nbytes
        if is_ahead:
            self._running_ahead += count
            self._ahead_nbytes += count * nbytes

    def running_s(self) -> float:
        """Return the seconds of all transfers, summed; called before their number changes."""
        now = time.monotonic()
        self._running_s += len(self._running) * (now - self._looked_s)
        self._looked_s = now
        return self._running_s

    def _ended(self, nbytes: int, is_ahead: bool, task: asyncio.Task[None]) -> None:
        self.running_s()
        self._running.discard(task)
        self._note_running(nbytes, is_ahead, -1)
        self.pump()

    async def _transfer(self, piece: Piece) -> None:
        """Fetch a piece; it is dropped if that fails."""
        done: Any = piece.done
        try:
            await self._fetch(piece)
        except BaseException as error:
            self._failed[piece.of] = time.monotonic() + _AGAIN_S
            piece.done = None
            self.kept.drop(piece)
            if not isinstance(error, (Failure, asyncio.CancelledError)):
                error = Failure("lasting", f"fetching it failed: {error!r}")
            done.set_exception(error if isinstance(error, Failure) else Failure("later", "ended"))
            return
        piece.done = None
        self.kept.keep(piece)
        done.set_result(None)
        if piece.is_passing and not piece.users:
            self.kept.drop(piece)

    async def _fetch(self, piece: Piece) -> None:
        """Fetch a piece, and once more if its bytes are not those of the store's sum.

        Of an object that is encrypted the version looks like a sum, and is none: then the same
        bytes come again.
        """
        before = b""
        while True:
            await self._fill(piece)
            if not self._has_sum(piece):
                return
            found = await asyncio.to_thread(_md5, piece)
            if found in (before, bytes.fromhex(piece.of.version.strip('"'))):
                return
            before = found
            self.counts["damaged"] += 1
            piece.here, piece.sum = piece.begin, 0

    def _has_sum(self, piece: Piece) -> bool:
        """Whether a sum of its bytes is known: it is a whole object, of S3 or the like."""
        is_whole = piece.begin == 0 and 0 < piece.end == piece.of.nbytes
        return is_whole and _MD5.fullmatch(piece.of.version) is not None

    async def _fill(self, piece: Piece) -> None:
        of, at = piece.of, piece.begin
        source = self._sources[of]
        wait, end = FIRST_WAIT_S, time.monotonic() + source.patience_s
        while at < piece.end:
            try:
                at = await self._go_on(piece, source.store, at)
                wait = FIRST_WAIT_S
            except Failure as error:
                if error.kind == "range" and of.version == "" and at == 0:
                    meta = await self.meta(of, source)
                    if meta.nbytes == 0:
                        self._learn(of, meta)
                        self.kept.cut(piece, piece.begin)
                        return
                wait = await self.pause(error, wait, end)
            except _Broken as error:
                at = error.at
                wait = await self.pause(error.failure, wait, end)

    async def _go_on(self, piece: Piece, store: ObjectStore, at: int) -> int:
        """Read a piece from a place on; returns where it ends. _Broken: some of it came."""
        of, known = piece.of, None

        def ask() -> Response:
            return Response(store.read(of.key, at, piece.end, of.version))

        response = self._responses.first(ask)
        try:
            while at < piece.end:
                chunk, response = await self._responses.next(response, ask)
                if response is not known:
                    self._learn(of, response.meta)
                    known = response
                    if piece.end > of.nbytes:
                        self.kept.cut(piece, of.nbytes)
                if not chunk and at < piece.end:
                    raise Failure("later", f"it ended at {at:,}")
                if at + len(chunk) > piece.end:
                    raise Failure("later", "it gave more bytes than were asked for")
                self._write(piece, chunk, at)
                at += len(chunk)
                if not self._has_sum(piece):
                    piece.reached(at)
                self.counts["bytes"] += len(chunk)
        except Failure as error:
            if known is None:
                raise
            raise _Broken(at, error) from None
        return at

    def _write(self, piece: Piece, chunk: bytes, at: int) -> None:
        """Write some bytes of a piece: into memory, where its disk fails or is full."""
        try:
            write(piece, chunk, at)
        except OSError:
            if not piece.path:
                raise
            self.kept.leave_disk(piece, at)
            write(piece, chunk, at)
        if piece.path:
            piece.sum = zlib.crc32(chunk, piece.sum)

    def _learn(self, of: KeptObject, meta: Meta) -> None:
        """Take what a store says of an object. Failure: it is another version."""
        number = of.number or number_of(meta.version)
        if (
            of.nbytes not in (-1, meta.nbytes)
            or of.version not in ("", meta.version)
            or number != number_of(meta.version)
        ):
            raise Failure("changed", f"it has {meta.nbytes:,} bytes now")
        of.nbytes, of.version, of.is_known = meta.nbytes, meta.version, True

    async def pause(self, error: Exception, wait: float, end: float) -> float:
        """Wait before another attempt; returns how long the next wait is.

        Raises:
            Failure: another attempt is of no use, or the time is over.
        """
        if not isinstance(error, Failure):
            error = Failure("later", f"nothing came for {MOST_STALL_S} s")
        if error.kind != "later" or time.monotonic() + wait > end:
            raise error from None
        self.counts["retries"] += 1
        await asyncio.sleep(wait * (0.5 + random.random() / 2))  # no secret
        return min(2 * wait, _LONGEST_WAIT_S)


class Wanted(NamedTuple):
    """Bytes of an object that somebody waits for.

    Attributes:
        of, begin, end: these bytes; an `end` of -1 is the object's.
        is_near: whether others beside them will be wanted.
        reads: how often the reader has asked for samples before.
        reader: the number of its process: workers are started in the order of their batches.
    """

    of: KeptObject
    begin: int
    end: int
    is_near: bool
    reads: int
    reader: int

    @property
    def is_small(self) -> bool:
        """Whether all of the extent is fetched with it."""
        return self.end - self.begin < _SMALL

    @property
    def may_be_alone(self) -> bool:
        """Whether it may be fetched by itself."""
        return not self.is_near and self.end - self.begin < _BLOCK

    @property
    def is_first(self) -> bool:
        """Whether the reader begins to read."""
        return not self.is_near and self.reads < _FIRST_READS

    @property
    def turn(self) -> tuple[int, int]:
        """What is fetched before others has less: first batches, in the order of their readers."""
        return (self.reads, self.reader) if self.is_first else (_FIRST_READS, 0)


class _Broken(Exception):
    """A transfer that has ended before all of it was there."""

    def __init__(self, at: int, failure: Failure) -> None:
        super().__init__(at)
        self.at, self.failure = at, failure


def _here(piece: Piece, begin: int, end: int) -> int:
    """Return how many bytes of a range a piece has already."""
    here = piece.end if piece.done is None else piece.here
    return max(0, min(end, here) - max(begin, piece.begin))


def _md5(piece: Piece) -> bytes:
    content = os.pread(piece.fd, piece.nbytes, 0)
    return hashlib.md5(content, usedforsecurity=False).digest()
