"""A measurement of a loop over a loader, from its beginning to its end.

Imports the watch, the clocks and the replay. It belongs to the thread that begins and ends it,
which is the one that iterates.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.observe.machine import Machine
from reader.observe.measured import Measured, SlowSample, cached_share, with_store
from reader.observe.observed import Observed, ObservedOptions
from reader.observe.processors import usable_cores
from reader.observe.replay import SLOW, Replay, replay_of, usual_sample_s
from reader.observe.watch import MemorySample, Watch, system_counts
from reader.worker_clock import ProcessCounts, WorkerClock, own_clock

__all__ = ["Measurement"]

_SLOW = 10  # samples that are named
_OFTEN = 0.05  # a share of the loop in which a quota of cores was used up


class Measurement:
    """Counts of a loader and of the system since this object was made; `stop` sums them up.

    Attributes:
        loader: the measured loader.
        begun_ns: when it began, by `time.monotonic_ns`.
        ended_ns: when it ended.
    """

    def __init__(self, loader: Observed) -> None:
        self.loader = self._loader = loader
        self._machine = Machine()
        self._times = self._loader._observed_times()
        self._begin = self._times.count
        self._sums = self._times.sums()
        self._computed_s = self._times.computed_s
        self._transfer_s = self._transfer_wait_s()
        self._cache = self._cache_counts()
        self._watch = Watch(self._loader, self._times)
        self._watch.start()
        self._system = system_counts(self._machine)
        self._own = own_clock()
        self.begun_ns = self.ended_ns = time.monotonic_ns()

    def stop(
        self, opened_ns: Sequence[int] = (), is_other: bool = False
    ) -> tuple[Measured, Replay | None]:
        """End it, once; return the measurements and the replay.

        Args:
            opened_ns: when each epoch began, if known: then time between epochs and after the last
                is not part of the loop.
            is_other: whether another thread began it.
        """
        self.ended_ns = time.monotonic_ns()
        self._own_ended = None if is_other else own_clock()
        self._system_ended = system_counts(self._machine)
        self._watch.stop()
        self.records = self._watch.records
        options = self._loader._observed_options() or ObservedOptions(0, 0, False, "", False)
        apart = self._leave_out(opened_ns)
        self._apart_s = float(apart.sum())
        replay = replay_of(
            self.records,
            self.begun_ns,
            self.ended_ns,
            options.workers,
            options.ahead,
            is_shared=options.shares_workers,
            is_remote=options.is_remote,
        )
        if replay is not None and len(apart) == len(replay.gap_s):
            replay = replace(replay, gap_s=np.maximum(replay.gap_s - apart, 1e-9 * (apart > 0)))
        return self._measure(options, replay), replay

    def _leave_out(self, opened_ns: Sequence[int]) -> npt.NDArray[np.float64]:
        """Return the seconds before each batch outside of loops; end with the last step."""
        records = self.records
        apart = np.zeros(len(records))
        if not opened_ns or len(records) < 2:
            return apart
        usual_ns = int(np.median(records["asked_ns"][1:] - records["delivered_ns"][:-1]))
        opened = np.array(opened_ns)
        firsts = np.flatnonzero(records["epoch"][1:] != records["epoch"][:-1]) + 1
        for first in firsts:
            before_ns = int(records["delivered_ns"][first - 1]) + usual_ns
            later = opened[(opened > before_ns) & (opened <= int(records["asked_ns"][first]))]
            if len(later):
                apart[first] = (int(later[-1]) - before_ns) * 1e-9
        self.ended_ns = min(self.ended_ns, int(records["delivered_ns"][-1]) + usual_ns)
        return apart

    @property
    def memory(self) -> list[MemorySample]:
        """Samples of the memory."""
        return self._watch.memory

    def _cache_counts(self) -> dict[str, int] | None:
        stats = self._loader._observed_stats()
        return None if stats is None else stats.get("cache")

    def _transfer_wait_s(self) -> float:
        stats = self._loader._observed_stats()
        devices = None if stats is None else stats["devices"]
        return 0.0 if devices is None else float(devices["wait_s"])

    def _measure(self, options: ObservedOptions, replay: Replay | None) -> Measured:
        records, watch, workers = self.records, self._watch, options.workers
        count = self._times.count - self._begin
        seconds = max((self.ended_ns - self.begun_ns) * 1e-9 - self._apart_s, 1e-9)
        after = self._times.sums()
        stages = {name: after[name] - self._sums[name] for name in after}
        wait_s = stages.pop("wait")
        first_wait_s = epoch_wait_s = 0.0
        waits = (records["delivered_ns"] - records["asked_ns"]) * 1e-9
        is_new = records["epoch"][1:] != records["epoch"][:-1]
        if len(records) and count == len(records):
            first_wait_s = (int(records[0]["delivered_ns"]) - self.begun_ns) * 1e-9
            wait_s -= float(waits[0])
        if len(records):
            epoch_wait_s = float(waits[1:][is_new].sum())
        own = self._own_clock()
        computed_s, runnable_s = watch.computed_s, watch.runnable_s
        if workers == 0:  # this thread makes them, and computes the steps too
            computed_s = self._times.computed_s - self._computed_s
            runnable_s = None if own is None else own.runnable_s
        slow = records[np.argsort(records["slowest_ns"], kind="stable")[::-1]][:_SLOW]
        usual_s = usual_sample_s(records)
        least_ns = max(SLOW * usual_s * 1e9, 0.1 * float(records["slowest_ns"].max(initial=0)))
        long = records["slowest_ns"] > least_ns
        system, before = self._system_ended, self._system
        stall_s = None
        if system.memory_stall_s is not None and before.memory_stall_s is not None:
            stall_s = system.memory_stall_s - before.memory_stall_s
        cores = usable_cores(self._machine)
        trainer = system.trainer.since(before.trainer)
        fetched = watch.fetched or dict.fromkeys(("bytes", "given", "transfer_s", "evicted"), 0)
        is_in_trainer = workers == 0 or options.uses_threads
        processes = watch.processes
        makers = trainer if is_in_trainer else processes
        return Measured(
            seconds=seconds,
            batches=count,
            first_wait_s=max(0.0, first_wait_s),
            wait_s=max(0.0, wait_s),
            stages=with_store(stages, watch.stored_s),
            workers=workers,
            uses_threads=options.uses_threads,
            busy_s=stages["fetch"] + stages["collate"],
            cpu_s=computed_s,
            runnable_s=runnable_s,
            cores=cores,
            idle_cores=self._idle_cores(seconds, cores),
            prefetch=options.ahead,
            slow_samples=[SlowSample.of(record) for record in slow if record["slowest_ns"] > 0],
            usual_sample_s=usual_s,
            slow_batches=int(long.sum()) if usual_s else 0,
            slow_s=float(records["slowest_ns"][long].sum()) * 1e-9 if usual_s else 0.0,
            cached=cached_share(self._cache_counts(), self._cache),
            keeps_files=options.keeps_files,
            has_collate_fn=options.has_collate_fn,
            in_order=options.in_order,
            transfer_wait_s=self._transfer_wait_s() - self._transfer_s,
            epochs=1 + int(is_new.sum()) if len(records) else 0,
            epoch_wait_s=epoch_wait_s,
            own_cpu_s=None if own is None else own.cpu_s,
            own_runnable_s=None if own is None else own.runnable_s,
            threads_s=_threads_s(trainer, own, computed_s if options.uses_threads else None),
            stopped_s=system.stopped_s - before.stopped_s,
            memory_stall_s=stall_s,
            memory_events=system.memory_events - before.memory_events,
            major_faults=trainer.major_faults + processes.major_faults,
            user_share=_user_share(makers),
            worker_s=_medians(records, workers),
            decoder=options.decoder,
            persists=options.persists,
            shares_workers=options.shares_workers,
            is_remote=options.is_remote,
            room=options.room,
            bounded_s=watch.bounded_s,
            clock_errors=dict(watch.clock_errors),
            others_s=0.0 if replay is None else float(replay.others_s.sum()),
            others_cpu_s=watch.others_s,
            network_s=None if watch.fetched is None else watch.fetched["wait_s"],
            network_nbytes=int(fetched["bytes"]),
            stored_nbytes=int(fetched["given"]),
            transfers=fetched["transfer_s"] / seconds,
            evicted_nbytes=int(fetched["evicted"]),
            cache_limit=watch.limit,
            held_s=float(_spans_s(records, "handed_ns", "given_back_ns").sum()),
            copy_s=[
                float(_spans_s(records[records["place"] == place], "issued_ns", "copied_ns").sum())
                for place in range(int(records["place"].max(initial=-1)) + 1)
            ],
        )

    def _own_clock(self) -> WorkerClock | None:
        now, then = self._own_ended, self._own
        if now is None or then is None:
            return None
        return now.since(then)

    def _idle_cores(self, seconds: float, cores: float) -> float | None:
        now, then = self._system_ended.idle_s, self._system.idle_s
        if now is None or then is None or seconds < 0.05:
            return None
        idle = (now - then) / seconds
        stopped = (self._system_ended.stopped_s - self._system.stopped_s) / seconds
        return 0.0 if stopped > _OFTEN else max(0.0, min(cores, idle))


def _threads_s(trainer: ProcessCounts, own: WorkerClock | None, workers_s: float | None) -> float:
    """Return the CPU time of the trainer's threads besides the consumer's and workers'."""
    if own is None:
        return 0.0
    return max(0.0, trainer.user_s + trainer.kernel_s - own.cpu_s - (workers_s or 0.0))


def _user_share(counts: ProcessCounts) -> float:
    """Return the share of user time in the CPU time of processes; 1: unknown."""
    whole_s = counts.user_s + counts.kernel_s
    return counts.user_s / whole_s if whole_s > 0 else 1.0


def _spans_s(records: npt.NDArray[Any], begin: str, end: str) -> npt.NDArray[np.float64]:
    """Return the seconds between two fields of the records that have both."""
    known = records[(records[begin] > 0) & (records[end] > 0)]
    return np.asarray(np.maximum(known[end] - known[begin], 0) * 1e-9, np.float64)


def _medians(records: npt.NDArray[Any], workers: int) -> list[float]:
    """Return each worker's median seconds of a batch; 0: it made none."""
    known = records[(records["begun_ns"] > 0) & (records["sent_ns"] > 0)]
    made_s = (known["sent_ns"] - known["begun_ns"]) * 1e-9
    by_worker = [made_s[known["worker"] == worker_id] for worker_id in range(workers)]
    return [float(np.median(each)) if len(each) else 0.0 for each in by_worker]
