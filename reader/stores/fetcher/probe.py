"""A probe of a store: whether it is reached, how soon it answers, and how many bytes it gives.

Imports the stores. It takes some seconds, and keeps nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import time
from typing import Any

from reader.stores.fetcher.failure import Failure
from reader.stores.fetcher.object_store import ObjectStore

__all__ = ["probe"]

_SMALL, _LARGE = 1 << 10, 8 << 20  # bytes of a range
_TIMES = 9  # small ranges
_AT_ONCE = 8  # large ones
_MOST_NBYTES = 256 << 20
_SECONDS = 3.0
_PATIENCE_S = 20.0  # for an answer


async def probe(store: ObjectStore, place: str) -> dict[str, Any]:
    """Return what was found below a place of a store.

    Args:
        store: a bucket, container or host.
        place: a key, or a folder of keys.

    Returns:
        The key of an object and its bytes; `first_s`, the seconds of the first request, and
        `latency_s`, the median of some that follow; `bytes_per_s` of several transfers at once.

    Raises:
        Failure: it cannot be read, or there is no object.
    """
    began = time.monotonic()
    objects = await _in_time(_objects(store, place))
    first_s = time.monotonic() - began
    key, nbytes = max(objects, key=lambda each: each[1])
    if not nbytes:
        raise Failure("missing", "there are empty objects alone")
    seconds = []
    for _ in range(_TIMES):
        began = time.monotonic()
        await _in_time(_read(store, key, 0, min(_SMALL, nbytes)))
        seconds.append(time.monotonic() - began)
    return {
        "key": key,
        "nbytes": nbytes,
        "first_s": first_s,
        "latency_s": sorted(seconds[1:])[len(seconds) // 2 - 1],
        "bytes_per_s": await _bandwidth(store, [each for each in objects if each[1]]),
    }


async def _objects(store: ObjectStore, place: str) -> list[tuple[str, int]]:
    """Return key and bytes of an object, or of the first ones in a folder."""
    if place and not place.endswith("/"):
        try:  # what is told of a request without content is less
            meta, _ = await store.read(place, 0, 1, "")
        except Failure as error:
            if error.kind != "missing":
                raise
        else:
            return [(place, meta.nbytes)]
    found = await store.listed(f"{place.rstrip('/')}/" if place else "", most=1)
    if not found:
        raise Failure("missing", "there is no object of that name, or in that folder")
    return [(key, nbytes) for key, nbytes, _ in found]


async def _bandwidth(store: ObjectStore, objects: list[tuple[str, int]]) -> float:
    """Return the bytes a second that come by several transfers at once."""
    parts = (
        (key, begin, min(begin + _LARGE, nbytes))
        for key, nbytes in itertools.cycle(objects)
        for begin in range(0, nbytes, _LARGE)
    )
    began, total = time.monotonic(), 0

    async def take() -> None:
        nonlocal total
        while total < _MOST_NBYTES:
            _, chunks = await store.read(*next(parts), "")
            async for chunk in chunks:
                total += len(chunk)

    tasks = [asyncio.ensure_future(take()) for _ in range(_AT_ONCE)]
    done, late = await asyncio.wait(tasks, timeout=_SECONDS, return_when=asyncio.FIRST_EXCEPTION)
    seconds = time.monotonic() - began
    for task in late:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError, Failure):
            await task
    for task in done:
        task.result()  # raises what failed
    return total / seconds


async def _read(store: ObjectStore, key: str, begin: int, end: int) -> None:
    _, chunks = await store.read(key, begin, end, "")
    async for _ in chunks:
        pass


async def _in_time(asked: Any) -> Any:
    try:
        return await asyncio.wait_for(asked, _PATIENCE_S)
    except asyncio.TimeoutError:
        raise Failure("later", f"nothing came for {_PATIENCE_S:.0f} s") from None
