"""Responses of stores: read chunk by chunk, and raced by a second request where one is late.

Imports the failures of stores. What is usual is learnt from the waits before.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from typing import Any

from reader.stores.fetcher.failure import Failure
from reader.stores.fetcher.object_store import Meta

__all__ = ["MOST_STALL_S", "Response", "Responses", "seen"]

_LEAST_STALL_S, MOST_STALL_S = 3.0, 20.0
_LATE = 10  # times the median
_LEAST_LATE_S, _LEAST_WAITS = 0.5, 8  # before a second request is made
_MOST_RACING, _RACED_SHARE = 4, 0.05  # requests that are made a second time: at once, and of all
_KNOWN_WAITS = 64


class Response:
    """The response of a store to one request.

    Args:
        reading: gives what `ObjectStore.read` does.

    Attributes:
        is_new: whether nothing has come yet.
        meta: what it says of the object, when some of it has come.
    """

    def __init__(self, reading: Coroutine[Any, Any, tuple[Meta, Any]]) -> None:
        self._reading, self._chunks = reading, None
        self.is_new, self.meta = True, Meta(-1, "")

    async def next(self) -> bytes:
        """Return its next bytes; none at its end. Failure: it has none, or breaks."""
        if self.is_new:
            self.meta, self._chunks = await self._reading
            self.is_new = False
        return await anext(self._chunks, b"")  # type: ignore[call-overload,no-any-return]


class Responses:
    """What is known of all responses: how long one waits, and how many are raced.

    Args:
        counts: gets the "requests", and those of them that were made a second time, "hedged".
    """

    def __init__(self, counts: Counter[str]) -> None:
        self._counts = counts
        self._waits: deque[float] = deque(maxlen=_KNOWN_WAITS)  # for first bytes
        self._gaps: deque[float] = deque(maxlen=_KNOWN_WAITS)  # for those that follow
        self._racing = 0  # transfers for which two requests are on their way

    def first(self, ask: Callable[[], Response]) -> Response:
        """Return the response to a request."""
        self._counts["requests"] += 1
        return ask()

    async def next(
        self, response: Response, again: Callable[[], Response]
    ) -> tuple[bytes, Response]:
        """Return the next bytes, and the response that has them.

        Where they are late, a second request for the same bytes races with the first: of a few
        transfers at once, and of a small share of all.

        Args:
            response: that is being read.
            again: asks for the bytes that are not here yet.

        Raises:
            Failure: nothing came in time, or all that race have failed.
        """
        began, waits = time.monotonic(), self._waits if response.is_new else self._gaps
        racing = {asyncio.ensure_future(response.next()): response}
        until, is_raced = began + _LEAST_LATE_S, False
        try:
            while True:
                left = max(0.0, until - time.monotonic())
                ended, _ = await asyncio.wait(
                    racing, timeout=left, return_when=asyncio.FIRST_COMPLETED
                )
                for each in ended:
                    found = racing.pop(each)
                    if each.exception() is None:
                        waits.append(time.monotonic() - began)
                    elif racing:  # the other one may not fail
                        continue
                    return each.result(), found
                if ended:
                    continue
                # what is usual may be known by now from what has come meanwhile
                late_s, stall_s = self._late_s(waits), self._stall_s()
                waited = time.monotonic() - began
                if waited >= stall_s:
                    raise Failure("later", f"nothing came for {stall_s:.1f} s")
                is_late = waited >= late_s
                until = began + (stall_s if is_late else min(late_s, stall_s))
                if is_late and not is_raced and self._may_race():
                    is_raced = True
                    self._racing += 1
                    self._counts["hedged"] += 1
                    second = self.first(again)
                    racing[asyncio.ensure_future(second.next())] = second
        finally:
            self._racing -= is_raced
            for each in racing:
                each.add_done_callback(seen)
                each.cancel()

    def _may_race(self) -> bool:
        """Whether another request may be made a second time, since it is late."""
        most = _MOST_RACING + self._counts["requests"] * _RACED_SHARE
        return self._counts["hedged"] <= most and self._racing < _MOST_RACING

    def _stall_s(self) -> float:
        """Return after how many seconds without a byte a request is given up, and made again."""
        usual = _median(self._waits) if self._waits else MOST_STALL_S
        return min(max(_LATE * usual, _LEAST_STALL_S), MOST_STALL_S)

    def _late_s(self, waits: deque[float]) -> float:
        """Return after how many seconds without a byte a second request is made beside it.

        Args:
            waits: for bytes of the same kind, which came.
        """
        known = waits if len(waits) >= _LEAST_WAITS else self._waits
        if len(known) < _LEAST_WAITS:  # what is usual is not known
            return _LEAST_STALL_S
        return max(_LATE * _median(known), _LEAST_LATE_S)


def seen(done: asyncio.Future[Any]) -> None:
    """Take note of an error that nobody may wait for."""
    if not done.cancelled():
        done.exception()


def _median(waits: deque[float]) -> float:
    return sorted(waits)[len(waits) // 2]
