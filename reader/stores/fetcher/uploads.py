"""Uploads: objects on their way to a store. What breaks is sent again, until its time is over.

Imports the transfers and the stores. The bytes lie in the caller's memory file.
"""

from __future__ import annotations

import asyncio
import mmap
import os
import time
from collections import deque
from collections.abc import Callable

from reader.stores.fetcher.object_store import Failure, Meta
from reader.stores.fetcher.transfers import FIRST_WAIT_S, Source, Transfers

__all__ = ["Uploads", "content_of"]

_SLOWEST = 250_000  # bytes a second, of each upload
_LEAST_STALL_S = 10.0
_LATE = 10  # times the median
_KNOWN_PACES = 64


def content_of(fd: int, nbytes: int) -> memoryview:
    """Return the content of a file, mapped; its descriptor is closed."""
    try:
        if os.fstat(fd).st_size < nbytes:
            raise Failure("lasting", f"the content has fewer than {nbytes:,} bytes")
        return memoryview(mmap.mmap(fd, nbytes, prot=mmap.PROT_READ) if nbytes else b"")
    finally:
        os.close(fd)


class Uploads:
    """What is sent.

    Args:
        transfers: which count the requests, and know how long to wait before another one.
    """

    def __init__(self, transfers: Transfers) -> None:
        self._transfers = transfers
        self._paces: deque[float] = deque(maxlen=_KNOWN_PACES)  # seconds a byte

    async def put(self, source: Source, key: str, content: memoryview) -> Meta:
        """Write an object; return what the store says of it then. Failure: it cannot be written."""
        nbytes = len(content)
        allowed_s = source.patience_s + nbytes / _SLOWEST
        wait, end = FIRST_WAIT_S, time.monotonic() + allowed_s
        furthest = 0

        def moved(place: int) -> None:
            nonlocal furthest, end
            if place > furthest:
                furthest, end = place, time.monotonic() + allowed_s

        while True:
            self._transfers.counts["requests"] += 1
            try:
                began = time.monotonic()
                await self._attempt(source, key, content, moved)
                self._paces.append((time.monotonic() - began) / max(nbytes, 1 << 20))
                break
            except Failure as error:
                wait = await self._transfers.pause(error, wait, end)
        self._transfers.counts["sent"] += nbytes
        meta = await self._transfers.tried(source, lambda: source.store.meta(key))
        if meta.nbytes != nbytes:
            raise Failure("lasting", f"it has {meta.nbytes:,} bytes, and {nbytes:,} were written")
        return meta

    async def _attempt(
        self, source: Source, key: str, content: memoryview, moved: Callable[[int], None]
    ) -> None:
        """Send all of an object. Failure: it broke, or nothing moved for some time."""
        since, stall_s = time.monotonic(), self._stall_s(source, len(content))

        def noted(place: int) -> None:
            nonlocal since
            since = time.monotonic()
            moved(place)

        task = asyncio.ensure_future(source.store.put(key, content, source.patience_s / 2, noted))
        try:
            while not task.done():
                left = since + stall_s - time.monotonic()
                if left <= 0:
                    raise Failure("later", f"nothing was taken for {stall_s:.0f} s")
                await asyncio.wait([task], timeout=left)
            task.result()
        finally:
            task.cancel()

    def _stall_s(self, source: Source, nbytes: int) -> float:
        """Return after how many seconds in which nothing moved an object is sent again."""
        longest = source.patience_s / 2 + nbytes / _SLOWEST
        if not self._paces:
            return longest
        usual = sorted(self._paces)[len(self._paces) // 2] * max(nbytes, 1 << 20)
        return min(longest, max(_LEAST_STALL_S, _LATE * usual))
