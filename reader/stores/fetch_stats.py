"""What was fetched for the datasets of a loader, from the processes that fetch.

Imports the caches, and how a dataset around others is looked through. It starts no process, and
waits for none longer than a second.
"""

from __future__ import annotations

import functools
from typing import Any

from reader.data.wrapped import own_of_all
from reader.stores.remote_readers import remote_counts
from reader.stores.shard_cache import CacheUse, counts_of

__all__ = ["fetch_stats", "stats_of", "uses_of"]

_OF_READERS = ("given", "hits", "waits", "wait_s")
_OF_PROCESSES = (
    *("bytes", "requests", "retries", "hedged", "transfer_s", "damaged"),
    *("ahead", "kept", "limit", "evicted"),
)


def fetch_stats(dataset: Any) -> dict[str, Any] | None:
    """Return the counts of a dataset's reads from stores, and of wrapped ones; None: it has none.

    See `DataLoader.stats`.
    """
    return stats_of(uses_of(dataset))


def uses_of(dataset: Any) -> list[CacheUse]:
    """Return the uses of caches by a dataset and those that it wraps."""
    return own_of_all(dataset, "_use", CacheUse)


def stats_of(uses: list[CacheUse]) -> dict[str, Any] | None:
    """Return the summed counts of some uses, those of each process once; None: there are none.

    Those of processes on other machines are among them.
    """
    if not uses:
        return None
    there = remote_counts(uses, functools.partial(counts_here, uses))
    told = list({**there, **counts_here(uses)}.values())
    sums: dict[str, Any] = {
        name: sum(each.get(name, 0) for each in told) for name in (*_OF_PROCESSES, *_OF_READERS)
    }
    errors: dict[str, int] = {}
    for each in told:
        for kind, count in each.get("errors", {}).items():
            errors[kind] = errors.get(kind, 0) + count
    return {**sums, "errors": errors, "is_running": all(each["is_running"] for each in told)}


def counts_here(uses: list[CacheUse]) -> dict[str, dict[str, Any]]:
    """Return the counts of some uses by the processes of this machine that fetch, by their ids."""
    names: dict[str, list[str]] = {}
    caches = {}
    for use in uses:
        names.setdefault(use.cache.place, []).append(use.name)
        caches[use.cache.place] = use.cache
    told = {place: counts_of(cache, sorted(names[place])) for place, cache in caches.items()}
    return {counts.get("id", place): counts for place, counts in told.items()}
