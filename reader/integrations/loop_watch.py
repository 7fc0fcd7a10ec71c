"""Watch a loop from its own steps: scalars at intervals, a verdict at its end.

Imports the scalars of a loader, the clocks of workers and the verdict. The common part of the
callbacks of training libraries; it lives as long as one training.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from reader._core.wire.times_log import FIELDS, TimesLog
from reader.checks import as_int
from reader.engine.face import engine_of
from reader.errors import ReaderError
from reader.integrations.counters import Counters, Reading, as_loader
from reader.integrations.scalars import between
from reader.observe.judge import judge
from reader.observe.measured import Measured, SlowSample, cached_share, with_store
from reader.observe.observed import clock_of, name_of, options_of
from reader.observe.replay import usual_sample_s
from reader.observe.verdict import Verdict
from reader.worker_clock import WorkerClock, system_clock, worker_clock

__all__ = ["LoopWatch", "every_steps"]

_LOOK_S = 0.2  # between two readings of the workers' clocks, as in a profile
_LOOK_SHARE = 1 / 200  # share of the thread's time for readings: slow ones are rarer
_SLOW = 10  # how many slow samples to name
_RECORD = np.dtype(list(FIELDS))


def every_steps(every: Any) -> int:
    """Return how many steps lie between two readings.

    Raises:
        ConfigError: it is below 1.
        ConfigTypeError: it is no integer.
    """
    return as_int("every", every, low=1, remedy="1 reads the counters at each step.")


class LoopWatch:
    """Watches one loop: `step` after each step, `end` after the last. For one thread.

    Args:
        loader: of this package.
        every: steps from one reading to the next.
        prefix: of the names of scalars.
        who: takes the loader, for the message.

    Raises:
        ConfigTypeError: it is no loader of this package.
        ConfigError: `every` is below 1.
    """

    def __init__(
        self, loader: Any, every: int = 50, prefix: str = "reader/", who: str = "LoopWatch"
    ) -> None:
        self._loader = as_loader(loader, who)
        self._every = every_steps(every)
        self._prefix = prefix
        self._counters = Counters(loader, who)
        self._begun_ns = time.monotonic_ns()
        self._begin = self._last = self._read()
        self._steps = 0
        self._first_wait_s: float | None = None
        self._slow: dict[tuple[int, int, int], SlowSample] = {}
        self._usual_s: deque[float] = deque(maxlen=512)
        # of the last reading: the log, the workers' clocks, and their busy time
        self._looked: tuple[Any, dict[Any, WorkerClock], float] = (None, {}, 0.0)
        self._seen_busy_s = self._cpu_s = self._runnable_s = self._others_s = 0.0
        self._stored_s = self._bounded_s = 0.0
        self._system = system_clock()
        self._own = worker_clock(os.getpid(), threading.get_native_id())
        self._look()

    def step(self) -> dict[str, float] | None:
        """Count a step. At each `every`-th return the scalars since the last; otherwise None."""
        self._steps += 1
        is_first = self._steps == 1  # its times are in the records now, maybe not later
        if is_first or time.monotonic() >= self._next_look_s:
            self._look()
        if self._steps % self._every:
            return None
        now, before = self._read(), self._last
        self._last = now
        return {f"{self._prefix}{name}": value for name, value in between(before, now).items()}

    def end(self) -> Verdict:
        """Return what bounded the loop; `reader.profile` gives the same in more detail.

        Steps read the workers' clocks at most five times a second, so the computing time of workers
        that live for less is unknown.
        """
        return judge(self.measured())

    def measured(self) -> Measured:
        """Return the measurements since the watch was made."""
        seconds = (time.monotonic_ns() - self._begun_ns) * 1e-9
        self._look()
        return self._measure(self._read(), seconds)

    def _read(self) -> Reading:
        reading = self._counters.read()
        if reading is None:
            raise ReaderError("the loader is gone: a watch holds it until it ends")
        return reading

    def _look(self) -> None:
        """Note the clocks of the current workers, and the slowest samples.

        Computing time is compared with busy time between two readings; if the workers were replaced
        in between, that time is unknown.
        """
        begun_s = time.thread_time()
        engine, clocks = engine_of(self._loader), {}
        for status in self._loader.workers():
            clock = clock_of(status)
            if clock is not None:
                clocks[name_of(status)] = clock
        if engine is not None:
            sums = engine.times.sums()
            busy_s = sums["fetch"] + sums["collate"]
            times, before, busy_before_s = self._looked
            if times is engine.times and clocks.keys() == before.keys() and clocks:
                self._seen_busy_s += busy_s - busy_before_s
                since = [clocks[at].since(before[at]) for at in clocks]
                self._cpu_s += sum(each.cpu_s for each in since)
                self._runnable_s += sum(each.runnable_s for each in since)
                self._others_s += sum(each.others_s for each in since)
                self._stored_s += sum(each.stored_s for each in since)
                self._bounded_s += sum(each.bounded_s for each in since)
            self._looked = engine.times, clocks, busy_s
            self._note_records(engine.times)
        took_s = time.thread_time() - begun_s
        self._next_look_s = time.monotonic() + max(_LOOK_S, took_s / _LOOK_SHARE)

    def _note_records(self, times: TimesLog) -> None:
        records = np.frombuffer(times.last(), _RECORD)
        records = records[records["asked_ns"] >= self._begun_ns]
        if not len(records):
            return
        if self._first_wait_s is None:
            is_all = len(records) == times.count or len(records) < 512
            first_ns = int(records[0]["delivered_ns"]) - self._begun_ns
            self._first_wait_s = first_ns * 1e-9 if is_all else 0.0
            asked_ns = int(records[0]["delivered_ns"]) - int(records[0]["asked_ns"])
            self._first_asked_s = asked_ns * 1e-9 if is_all else 0.0
        known = records[records["slowest_ns"] > 0]
        if not len(known):
            return
        self._usual_s.append(usual_sample_s(known))
        for record in known[np.argsort(known["slowest_ns"])[-_SLOW:]]:
            slow = SlowSample.of(record)
            self._slow[slow.epoch, slow.batch, slow.row] = slow
        most = sorted(self._slow.items(), key=lambda item: -item[1].seconds)[:_SLOW]
        self._slow = dict(most)

    def _measure(self, now: Reading, seconds: float) -> Measured:
        begin, engine = self._begin, engine_of(self._loader)
        options = None if engine is None else options_of(engine)
        stages = {name: s - begin.stages.get(name, 0.0) for name, s in now.stages.items()}
        wait_s = now.wait_s - begin.wait_s - stages.get("draw", 0.0)
        first_wait_s = self._first_wait_s or 0.0
        if first_wait_s:
            wait_s -= self._first_asked_s
        busy_s = now.busy_s - begin.busy_s
        cpu_s = runnable_s = None
        if not now.workers:  # this thread makes the batches, and computes the steps too
            own = worker_clock(os.getpid(), threading.get_native_id())
            if own is not None and self._own is not None:
                cpu_s = own.cpu_s - self._own.cpu_s
                runnable_s = own.runnable_s - self._own.runnable_s
        elif self._seen_busy_s > 0:
            cpu_s = self._cpu_s / self._seen_busy_s * busy_s
            runnable_s = self._runnable_s / self._seen_busy_s * busy_s
        cores = len(os.sched_getaffinity(0))
        system, idle_cores = system_clock(), None
        if system is not None and self._system is not None and seconds >= 0.05:
            idle_cores = min(float(cores), (system.idle_s - self._system.idle_s) / seconds)
        return Measured(
            seconds=seconds,
            batches=now.batches - begin.batches,
            first_wait_s=max(0.0, first_wait_s),
            wait_s=max(0.0, wait_s),
            stages=with_store(stages, self._stored_s),
            workers=now.workers,
            uses_threads=options is not None and options.uses_threads,
            busy_s=busy_s,
            cpu_s=cpu_s,
            runnable_s=runnable_s,
            cores=cores,
            idle_cores=idle_cores,
            prefetch=0 if options is None else options.ahead,
            slow_samples=list(self._slow.values()),
            usual_sample_s=float(np.median(self._usual_s)) if self._usual_s else 0.0,
            transfer_wait_s=now.transfer_wait_s - begin.transfer_wait_s,
            shares_workers=options is not None and options.shares_workers,
            is_remote=options is not None and options.is_remote,
            room=None if options is None else options.room,
            others_cpu_s=self._others_s,
            bounded_s=self._bounded_s,
            cached=cached_share(now.cache, begin.cache),
            keeps_files=options is not None and options.keeps_files,
            has_collate_fn=options is None or options.has_collate_fn,
            in_order=options is None or options.in_order,
        )
