"""Processes that fetch shards from stores, as `top` shows them.

Imports the caches of shards. It finds them by their command lines, and asks each for its counts, as
its users do; those of other users do not answer.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from reader.cgroups import PROC
from reader.stores.shard_cache import counts_at

__all__ = ["FetcherCounts", "FetcherView", "fetcher_counts", "fetchers_of"]

_RATES = {
    "bytes_per_s": "bytes",
    "requests_per_s": "requests",
    "given_per_s": "given",
    "waiting": "wait_s",
}
_MAIN = b"reader.stores.fetcher.main"


@dataclass(frozen=True)
class FetcherView:
    """What a process that fetches did during a moment.

    Attributes:
        pid: of the process.
        users: the pids of trainers and workers that are connected to it.
        bytes_per_s: that came from stores.
        requests_per_s: that it made.
        given_per_s: bytes that workers read.
        waiting: how many of them waited for bytes, in the mean.
        kept_bytes, limit_bytes: in its cache, and at most.
    """

    pid: int
    users: tuple[int, ...]
    bytes_per_s: float
    requests_per_s: float
    given_per_s: float
    waiting: float
    kept_bytes: int
    limit_bytes: int


@dataclass(frozen=True)
class FetcherCounts:
    """The counts of the processes that fetch, by their pids, at a moment."""

    at_s: float
    by_pid: dict[int, dict[str, Any]]


def fetcher_counts(proc: Path = PROC) -> FetcherCounts:
    """Return the counts of all processes that fetch and answer; waits a second at most for each."""
    found = {}
    for folder in proc.iterdir():
        if folder.name.isdecimal():
            with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
                words = (folder / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
                if any(_MAIN in word for word in words[:-1]):
                    said = json.loads(words[-1])
                    counts = counts_at(said["lock"], said["folder"])
                    if counts is not None and counts["pid"] == int(folder.name):
                        found[int(folder.name)] = counts
    return FetcherCounts(time.monotonic(), found)


def fetchers_of(
    users: Sequence[int], before: FetcherCounts, after: FetcherCounts
) -> tuple[FetcherView, ...]:
    """Return what the processes that fetch for some programs did, one for each cache.

    Args:
        users: the programs, and their workers.
        before: the counts at first.
        after: those at the end.
    """
    span_s = max(after.at_s - before.at_s, 1e-9)
    found = []
    for pid, now in after.by_pid.items():
        if not set(users) & set(now["users"]):
            continue
        then = before.by_pid.get(pid, now)
        rates = {rate: max(0.0, now[name] - then[name]) / span_s for rate, name in _RATES.items()}
        kept = {"kept_bytes": now["kept"], "limit_bytes": now["limit"]}
        found.append(FetcherView(pid, tuple(now["users"]), **rates, **kept))
    return tuple(found)
