"""A profile of a loop over a loader: what bounds it, and when its batches were at each stage.

Imports the engine's faces, the clocks and the verdict. It reads counters that are kept anyway;
while it runs one thread looks at the clocks of workers five times a second, and nothing else
changes.
"""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import asdict
from types import TracebackType
from typing import Any

import numpy as np
import numpy.typing as npt

from reader._core.wire.times_log import FIELDS
from reader.engine.face import EngineFace
from reader.errors import ConfigTypeError, ReaderError, got
from reader.observe.measured import Measured, SlowSample
from reader.observe.verdict import Verdict, judge
from reader.observe.worker_clock import WorkerClock, system_clock, worker_clock

__all__ = ["Profile", "profile"]

_EVERY_S = 0.2
_SLOW = 10  # samples that are named


def profile(loader: Any) -> Profile:
    """Return a profile of a loader, for a `with` statement around a loop over it.

    Args:
        loader: a loader of this package, of whichever face.

    Raises:
        ConfigTypeError: it is none.

    >>> import reader
    >>> loader = reader.DataLoader([1, 2, 3])
    >>> with reader.profile(loader) as seen:
    ...     total = sum(int(batch[0]) for batch in loader)
    >>> seen.batches
    3
    """
    if not isinstance(loader, EngineFace):
        raise ConfigTypeError(
            f"profile takes a loader of this package, got {got(loader)}: put reader.DataLoader, or"
            " one of reader.compat, in its place"
        )
    return Profile(loader)


class Profile:
    """What was seen of a loop. `print` shows it; while the loop runs it has nothing to say.

    Attributes:
        measured: numbers, see `Measured`.
        verdict: what bounds the loop, see `Verdict`.
        records: of the last 512 batches, an array with the fields of
            `reader._core.wire.times_log.FIELDS`; times in ns of `time.monotonic_ns`, 0: unknown.
    """

    measured: Measured
    verdict: Verdict
    records: npt.NDArray[Any]

    def __init__(self, loader: EngineFace) -> None:
        self._loader = loader
        self._ends = threading.Event()
        self._first: dict[tuple[int, int], WorkerClock] = {}
        self._last: dict[tuple[int, int], WorkerClock] = {}
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Profile:
        engine = self._loader._engine
        if self._thread is not None:
            raise ReaderError("a profile is of one loop: make another one, reader.profile(loader)")
        self._times = engine.times
        self._begin = self._times.count
        self._sums = self._times.sums()
        self._transfer_s = self._transfer_wait_s()
        self._system = system_clock()
        self._look()
        self._own = worker_clock(os.getpid(), threading.get_native_id())
        self._begun_ns = time.monotonic_ns()
        self._thread = threading.Thread(target=self._watch, name="reader-profile", daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        ended_ns = time.monotonic_ns()
        self._ends.set()
        if self._thread is not None:
            self._thread.join()
        self._look()
        self._own_ended = worker_clock(os.getpid(), threading.get_native_id())
        count = self._times.count - self._begin
        self.records = np.frombuffer(self._times.last(count), np.dtype(list(FIELDS)))
        self.measured = self._measure(count, (ended_ns - self._begun_ns) * 1e-9)
        self.verdict = judge(self.measured)

    @property
    def bound_by(self) -> str:
        """What bounds the loop, in a word; see `Verdict`."""
        return self.verdict.bound_by

    @property
    def batches(self) -> int:
        """How many were delivered."""
        return self.measured.batches

    def to_json(self) -> str:
        """Return verdict and numbers as JSON."""
        return json.dumps({"verdict": asdict(self.verdict), "measured": asdict(self.measured)})

    def __str__(self) -> str:
        seen, verdict = self.measured, self.verdict
        lines = [verdict.sentence]
        if verdict.advice:
            gain = "" if verdict.gain is None else f" (up to {verdict.gain:.2g} times as fast)"
            lines.append(f"{verdict.advice}{gain}")
        lines += ["", f"{'stage':10s} {'seconds':>9s} {'per batch':>11s}"]
        rows = {**seen.stages, "step": seen.step_s}
        rows["wait"] = seen.first_wait_s + seen.wait_s
        for name, seconds in rows.items():
            each_ms = seconds / max(1, seen.batches) * 1e3
            lines.append(f"{name:10s} {seconds:9.3f} {each_ms:8.3f} ms")
        lines += ["", f"{seen.batches} batches in {seen.seconds:.2f} s, {seen.workers} workers"]
        lines += [
            f"slow: sample {'-' if s.index is None else s.index}, row {s.row} of batch {s.batch},"
            f" {s.seconds * 1e3:.1f} ms"
            for s in seen.slow_samples[:5]
        ]
        return "\n".join(lines)

    # -- looking ---------------------------------------------------------------------------------

    def _watch(self) -> None:
        while not self._ends.wait(_EVERY_S):
            self._look()

    def _look(self) -> None:
        """Note the clocks of the workers that there are now."""
        for status in self._loader.workers():
            if status.pid is None or status.thread_id is None:
                continue
            clock = worker_clock(status.pid, status.thread_id)
            if clock is None:
                continue
            at = (status.pid, status.thread_id)
            is_new = self._thread is not None and at not in self._first
            self._first.setdefault(at, WorkerClock(0.0, 0.0) if is_new else clock)
            self._last[at] = clock

    def _transfer_wait_s(self) -> float:
        devices = self._loader.stats()["devices"]
        return 0.0 if devices is None else float(devices["wait_s"])

    def _measure(self, count: int, seconds: float) -> Measured:
        config = self._loader._engine.config
        records = self.records
        after = self._times.sums()
        stages = {name: after[name] - self._sums[name] for name in after}
        wait_s = stages.pop("wait")
        first_wait_s = 0.0
        if len(records) and count == len(records):
            first = records[0]
            first_wait_s = (int(first["delivered_ns"]) - self._begun_ns) * 1e-9
            wait_s -= (int(first["delivered_ns"]) - int(first["asked_ns"])) * 1e-9
        busy_s = stages["fetch"] + stages["collate"]
        clocks = [(self._first[at], self._last[at]) for at in self._last]
        if config.num_workers == 0:  # this thread makes them, and computes for the step besides
            clocks = [(self._own, self._own_ended)] if self._own and self._own_ended else []
        has_clocks = bool(clocks)
        slow = records[np.argsort(records["slowest_ns"])[::-1]][:_SLOW]
        known = records["slowest_ns"][records["slowest_ns"] > 0]
        return Measured(
            seconds=seconds,
            batches=count,
            first_wait_s=max(0.0, first_wait_s),
            wait_s=max(0.0, wait_s),
            stages=stages,
            workers=config.num_workers,
            uses_threads=config.uses_threads,
            busy_s=busy_s,
            cpu_s=sum(b.cpu_s - a.cpu_s for a, b in clocks) if has_clocks else None,
            runnable_s=sum(b.runnable_s - a.runnable_s for a, b in clocks) if has_clocks else None,
            cores=len(os.sched_getaffinity(0)),
            idle_cores=self._idle_cores(seconds),
            prefetch=config.prefetch_factor * max(1, config.num_workers),
            slow_samples=[_slow_sample(record) for record in slow if record["slowest_ns"] > 0],
            usual_sample_s=float(np.median(known)) * 1e-9 if len(known) else 0.0,
            transfer_wait_s=self._transfer_wait_s() - self._transfer_s,
        )

    def _idle_cores(self, seconds: float) -> float | None:
        now, then = system_clock(), self._system
        if now is None or then is None or seconds < 0.05:
            return None
        return min(float(len(os.sched_getaffinity(0))), (now.idle_s - then.idle_s) / seconds)


def _slow_sample(record: Any) -> SlowSample:
    key = int(record["slowest_key"])
    return SlowSample(
        None if key < 0 else key,
        int(record["slowest_row"]),
        int(record["seq"]),
        int(record["epoch"]),
        int(record["slowest_ns"]) * 1e-9,
    )
