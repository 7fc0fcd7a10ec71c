"""A loader's counters over all of its epochs and engines.

Imports the engine's faces. A loader for PyTorch has an engine for each epoch: the counters of the
previous one are kept until the next reading adds them up. The loader itself is held weakly.
"""

from __future__ import annotations

import sys
import time
import weakref
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from reader._core.wire.times_log import FIELDS, TimesLog
from reader.engine.auto import choice_of
from reader.engine.backends.backend import WorkerStatus
from reader.engine.engine import Engine
from reader.engine.face import EngineFace, engine_of
from reader.errors import ConfigTypeError, got
from reader.observe.observed import name_of

__all__ = ["Counters", "Reading", "as_loader", "is_loader"]

_RECORD = np.dtype(list(FIELDS))
_TORCH_FACE = "reader.compat.torch.loader"


@dataclass(frozen=True)
class Reading:
    """The counts since the counters were made. Seconds and counts only grow.

    Attributes:
        at_s: the time of the reading, by `time.monotonic`.
        batches: delivered.
        samples: in these batches, 0 where unknown. If more than 512 batches were delivered since
            the last reading, the last 512 stand for the others.
        wait_s: seconds in which the loop waited for batches, time of the sampler included.
        stages: seconds of batches in each stage, by name; see `TimesLog.sums`.
        transfer_wait_s: seconds in which no copy to a device could be issued.
        restarts: workers that were replaced during an epoch.
        failed_samples: samples that failed and were left out or replaced: see `on_error`.
        workers: how many workers the loader has now; 0: the consumer makes the batches.
        queued: batches that are ready now.
        arena_bytes: memory that the arena holds now; None: there is none.
        cache: counts of `reader.cache`; None: the dataset has none.
    """

    at_s: float
    batches: int = 0
    samples: int = 0
    wait_s: float = 0.0
    stages: dict[str, float] = field(default_factory=dict)
    transfer_wait_s: float = 0.0
    restarts: int = 0
    failed_samples: int = 0
    workers: int = 0
    queued: int = 0
    arena_bytes: int | None = None
    cache: dict[str, int] | None = None

    @property
    def busy_s(self) -> float:
        """Seconds in which workers made batches, all together."""
        return self.stages.get("fetch", 0.0) + self.stages.get("collate", 0.0)


def is_loader(value: Any) -> bool:
    """Whether `value` is a loader with an engine of this package, or acts as one."""
    face = sys.modules.get(_TORCH_FACE)  # a loader of that face implies its import
    return isinstance(value, EngineFace) or (
        face is not None and isinstance(value, face.DataLoader)
    )


def as_loader(value: Any, who: str) -> Any:
    """Return a loader of this package.

    Args:
        value: to check.
        who: the taker of the loader, for the message.

    Raises:
        ConfigTypeError: it is no loader of this package.
    """
    if is_loader(value):
        return value
    raise ConfigTypeError(
        f"{who} takes a loader of this package, got {got(value)}: put reader.DataLoader, or one of"
        " reader.compat, in its place. Where a library makes the loader itself, call"
        " reader.compat.torch.install() before"
    )


class Counters:
    """Adds up the counters of one loader. Made and read by one thread at a time, any thread.

    Args:
        loader: of this package; it is held weakly.
        who: the taker of the loader, for the message.

    Raises:
        ConfigTypeError: it is no loader of this package.
    """

    def __init__(self, loader: Any, who: str = "Counters") -> None:
        self._loader = weakref.ref(as_loader(loader, who))
        self._times: TimesLog | None = None
        self._engine: weakref.ref[Engine] | None = None
        self._batches = self._samples = self._restarts = self._failed = 0
        self._stages: dict[str, float] = {}
        self._transfer_wait_s = 0.0
        # of the last batch: its epoch, its number there, and the count of all
        self._position: tuple[int, int, int] | None = None
        self._identities: dict[int, Any] = {}  # identities of workers: see `name_of`
        self._sums: dict[str, float] = {}
        self._reset()
        engine = engine_of(loader)
        if engine is not None:
            self._times, self._engine = engine.times, weakref.ref(engine)
            self._count, self._sums = engine.times.count, engine.times.sums()
            stats = engine.counts()
            self._transfer_s, self._engine_failed = _transfer_wait_s(stats), stats["failed_samples"]
            self._note_workers(engine.times, loader.workers())

    @property
    def loader(self) -> Any:
        """The loader; None if it is gone."""
        return self._loader()

    def read(self) -> Reading | None:
        """Return the counts so far; None: the loader is gone. Does not block.

        For a loader for PyTorch without persistent workers, of several epochs that began and ended
        since the last reading only the first is counted.
        """
        loader = self._loader()
        if loader is None:
            return None
        at_s = time.monotonic()
        engine = engine_of(loader)
        if self._times is not None:
            self._add(self._times)
        if engine is None:
            return self._reading(at_s)
        stats = engine.counts()
        if engine.times is not self._times:
            self._reset()
            self._times = engine.times
            self._add(engine.times)
        if self._engine is None or self._engine() is not engine:
            self._reset_engine()
            self._engine = weakref.ref(engine)
        transfer_s = _transfer_wait_s(stats)
        self._transfer_wait_s += transfer_s - self._transfer_s
        self._transfer_s = transfer_s
        self._failed += stats["failed_samples"] - self._engine_failed
        self._engine_failed = stats["failed_samples"]
        self._note_workers(engine.times, loader.workers())
        arena = stats["arena"]
        return self._reading(
            at_s,
            workers=choice_of(engine.config, engine.auto).num_workers,
            queued=stats["queued"],
            arena_bytes=arena["owned_bytes"] if arena and arena["is_open"] else None,
            cache=stats["cache"],
        )

    def _reading(self, at_s: float, **now: Any) -> Reading:
        stages = dict(self._stages)
        return Reading(
            at_s=at_s,
            batches=self._batches,
            samples=self._samples,
            wait_s=stages.pop("wait", 0.0) + stages.get("draw", 0.0),
            stages=stages,
            transfer_wait_s=self._transfer_wait_s,
            restarts=self._restarts,
            failed_samples=self._failed,
            **now,
        )

    def _reset(self) -> None:
        """Start at zero, as a new log of times does."""
        self._count = 0
        self._sums = {}
        self._reset_engine()

    def _reset_engine(self) -> None:
        """Reset an engine's counts: the face for PyTorch has an engine for each epoch."""
        self._transfer_s, self._engine_failed = 0.0, 0
        self._position = None
        self._identities = {}

    def _add(self, times: TimesLog) -> None:
        """Add the batches delivered since the last call."""
        count, sums = times.count, times.sums()
        new = count - self._count
        if new > 0:
            rows = np.frombuffer(times.last(new), _RECORD)["rows"]
            if len(rows):
                self._samples += round(int(rows.sum()) * new / len(rows))
        for name, seconds in sums.items():
            passed_s = seconds - self._sums.get(name, 0.0)
            self._stages[name] = self._stages.get(name, 0.0) + passed_s
        self._batches += new
        self._count, self._sums = count, sums

    def _note_workers(self, times: TimesLog, statuses: list[WorkerStatus]) -> None:
        """Count workers that were replaced within the same epoch.

        The epoch is the same if its batch number grew by the count of delivered batches: the
        epoch's own number is not enough, since a program may set it.
        """
        identities = {
            each.worker_id: name_of(each)
            for each in statuses
            if each.pid is not None and (each.thread_id is not None or each.host is not None)
        }
        records = np.frombuffer(times.last(1), _RECORD)
        position = None
        if len(records):
            position = (int(records[0]["epoch"]), int(records[0]["seq"]), times.count)
        before = self._position
        if (
            position is not None
            and before is not None
            and position[0] == before[0]
            and position[2] - before[2] <= position[1] - before[1]
        ):
            known = self._identities
            self._restarts += sum(
                known.get(worker_id, identity) != identity
                for worker_id, identity in identities.items()
            )
            identities = {**known, **identities}
        self._position, self._identities = position, identities


def _transfer_wait_s(stats: dict[str, Any]) -> float:
    devices = stats["devices"]
    return 0.0 if devices is None else float(devices["wait_s"])
