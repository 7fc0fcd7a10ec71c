"""Leases: one writer at a time for a folder of a store, by an object that its writer renews.

Imports the transfers and the stores. A lease ends with the connection of its owner. The object of a
writer whose machine was lost is taken over when nobody has renewed it for as long as it says.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from typing import Any

from reader.stores.fetcher.object_store import Failure
from reader.stores.fetcher.transfers import Source, Transfers

__all__ = ["Lease"]

_LEASE_S, _RENEWED_S = 60.0, 5.0
_MOST_LEASE_S = 600.0  # of another writer
_PAUSE_S = 0.5
_MOST_TOLD = 80  # characters of what another writer says
_RELEASED_S = 5.0


class Lease:
    """The right of a writer to a folder.

    Args:
        transfers: by which requests are tried again.
        source: the store.
        key: of the object.
        owner: what it says: the "id" of the writer, "host", "user" and "pid".

    Attributes:
        is_guarded: whether the store keeps apart two writers that begin at the same moment.
        is_lost: whether another writer has it.
        taken_over: from whom, in words; "": nobody else had it.
    """

    def __init__(
        self, transfers: Transfers, source: Source, key: str, owner: dict[str, Any]
    ) -> None:
        self._transfers, self._source, self.key, self._owner = transfers, source, key, owner
        self.is_guarded = True
        self.is_lost = False
        self.taken_over = ""
        self._version: dict[str, str] = {}
        self._renewing: asyncio.Task[None] | None = None
        self._given_up, self._settled = asyncio.Event(), asyncio.Event()

    async def take(self, patience_s: float) -> None:
        """Take it.

        Args:
            patience_s: how long to wait for a writer that may have ended.

        Raises:
            Failure: "held": another writer has just renewed it; "waiting": nobody has renewed it
                while this waited, for less than its time.
        """
        try:
            await self._take(patience_s)
        finally:
            self._settled.set()
        self._renewing = asyncio.get_running_loop().create_task(self._renew())

    async def _take(self, patience_s: float) -> None:
        seen: dict[str, str] | None = None
        since = began = time.monotonic()
        while True:
            version, said = await self._look()
            if version is None:
                if await self._put(None):
                    await self._check_guard()
                    return
                continue
            is_own = said.get("id") == self._owner["id"]
            if not is_own:
                if seen is not None and seen != version:
                    raise Failure("held", _in_words(said))
                now = time.monotonic()
                if seen is None:
                    seen, since = version, now
                if now - since < _seconds(said):
                    if now - began >= patience_s or self._given_up.is_set():
                        raise Failure("waiting", _in_words(said))
                    with contextlib.suppress(asyncio.TimeoutError):
                        await asyncio.wait_for(self._given_up.wait(), _PAUSE_S)
                    continue
            if await self._put(version):
                self.taken_over = "" if is_own else _in_words(said)
                await self._check_guard()
                return

    async def release(self) -> None:
        """Give it back, also while it is being taken; it is tried for a few seconds."""
        self._given_up.set()
        with contextlib.suppress(Failure, asyncio.TimeoutError):
            await asyncio.wait_for(self._delete(), _RELEASED_S)

    async def _delete(self) -> None:
        await self._settled.wait()
        if self._renewing is not None:
            self._renewing.cancel()
        _, said = await self._look()
        if said.get("id") == self._owner["id"]:
            await self._transfers.tried(self._source, lambda: self._source.store.delete(self.key))

    async def _renew(self) -> None:
        while not self.is_lost:
            await asyncio.sleep(_RENEWED_S)
            with contextlib.suppress(Failure):  # the store is away: uploads tell of it
                if not await self._put(self._version):
                    version, said = await self._look()
                    if version is not None and said.get("id") == self._owner["id"]:
                        self._version = version  # an answer was lost
                    else:
                        self.is_lost = True

    async def _look(self) -> tuple[dict[str, str] | None, dict[str, Any]]:
        """Return version and content of the object; None: it is not there."""
        try:
            content, version = await self._transfers.tried(
                self._source, lambda: self._source.store.content(self.key)
            )
        except Failure as error:
            if error.kind == "missing":
                return None, {}
            raise
        said = None
        with contextlib.suppress(ValueError, RecursionError):
            said = json.loads(content)
        return version, said if isinstance(said, dict) else {}

    async def _put(self, version: dict[str, str] | None) -> bool:
        """Write the object if it has a version, or is not there; returns whether it was written."""
        when = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        content = json.dumps({**self._owner, "time": when, "lease_s": _LEASE_S}).encode()
        store = self._source.store
        if self.is_guarded:
            try:
                self._version = await self._transfers.tried(
                    self._source, lambda: store.replaced(self.key, content, version)
                )
            except Failure as error:
                if error.kind == "changed":
                    return False
                if error.kind not in ("lasting", "option"):
                    raise
                self.is_guarded = False  # the store has no conditions
            else:
                return True
        self._version = await self._transfers.tried(
            self._source, lambda: store.overwritten(self.key, content)
        )
        return True

    async def _check_guard(self) -> None:
        """Note whether the store heeds conditions: what is there cannot be made anew."""
        if self.is_guarded and await self._put(None):
            self.is_guarded = False


def _seconds(said: dict[str, Any]) -> float:
    found = said.get("lease_s")
    is_number = isinstance(found, (int, float)) and 0 < found <= _MOST_LEASE_S
    return float(found) if is_number else _LEASE_S  # type: ignore[arg-type]


def _in_words(said: dict[str, Any]) -> str:
    """Return who has it."""
    pid, user, host, when = (
        "".join(filter(str.isprintable, str(said.get(name, "unknown"))))[:_MOST_TOLD]
        for name in ("pid", "user", "host", "time")
    )
    return f"process {pid} of {user} on {host}, which has last renewed its lock at {when}"
