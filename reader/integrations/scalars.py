"""The numbers of a loader that every dashboard shows, by name.

Imports the counters of a loader. Only this module defines the names.
"""

from __future__ import annotations

from typing import Any

from reader.integrations.counters import Counters, Reading

__all__ = ["NAMES", "Scalars"]

NAMES = (
    "wait_share",
    "batches_per_s",
    "samples_per_s",
    "workers_busy",
    "queued",
    "arena_bytes",
    "cache_hit_share",
    "worker_restarts",
    "failed_samples",
)


class Scalars:
    """The numbers of a loader between two readings.

    Args:
        loader: of this package; it is held weakly.
        prefix: of each name.

    Raises:
        ConfigTypeError: it is no loader of this package.

    >>> import reader
    >>> loader = reader.DataLoader([1.0, 2.0, 3.0, 4.0], batch_size=2)
    >>> scalars = Scalars(loader)
    >>> total = sum(float(batch.sum()) for batch in loader)
    >>> scalars.read()["reader/batches_per_s"] > 0
    True
    """

    def __init__(self, loader: Any, prefix: str = "reader/") -> None:
        self._counters = Counters(loader, "Scalars")
        self._prefix = prefix
        self._last = self._counters.read()

    def read(self) -> dict[str, float]:
        """Return the numbers since the last reading, by name. Unknown ones are absent.

        `wait_share`: the part of the time that the loop waited for batches, from 0 to 1.
        `batches_per_s` and `samples_per_s`: delivered. `workers_busy`: the part of the workers'
        time in which they made batches; counted when a batch is delivered, at most 1. `queued`:
        batches that are ready; near 0 if workers are too slow. `arena_bytes`: memory that holds
        batches. `cache_hit_share`: of the samples that were looked up in `reader.cache`.
        `worker_restarts` and `failed_samples` (left out or replaced): since the beginning.

        Empty if the loader is gone, or no time has passed. Does not block.
        """
        now, before = self._counters.read(), self._last
        self._last = now
        if now is None or before is None:
            return {}
        return {f"{self._prefix}{name}": value for name, value in between(before, now).items()}


def between(before: Reading, now: Reading) -> dict[str, float]:
    """Return the numbers between two readings, by the names of `NAMES`."""
    passed_s = now.at_s - before.at_s
    if passed_s <= 0:
        return {}
    found = {
        "wait_share": _share(now.wait_s - before.wait_s, passed_s),
        "batches_per_s": (now.batches - before.batches) / passed_s,
    }
    if now.samples:
        found["samples_per_s"] = (now.samples - before.samples) / passed_s
    if now.workers:
        found["workers_busy"] = _share(now.busy_s - before.busy_s, passed_s * now.workers)
    found["queued"] = float(now.queued)
    if now.arena_bytes is not None:
        found["arena_bytes"] = float(now.arena_bytes)
    if now.cache is not None:
        then = before.cache or {}
        hits, misses = (now.cache[name] - then.get(name, 0) for name in ("hits", "misses"))
        if hits + misses > 0:
            found["cache_hit_share"] = hits / (hits + misses)
    found["worker_restarts"] = float(now.restarts)
    found["failed_samples"] = float(now.failed_samples)
    return found


def _share(part_s: float, whole_s: float) -> float:
    return min(1.0, max(0.0, part_s / whole_s))
