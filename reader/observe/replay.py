"""Replay a loop with other workers, or with batches that take less time.

Imports NumPy alone. A model: batches go to the worker with the fewest tasks, within a limit ahead
of the consumer, who takes them in order. It does not model cores: the caller gives the time of a
batch.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["SLOW", "Replay", "replay_of", "usual_sample_s"]

SLOW = 10  # times as long as usual: a slow sample

_Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Replay:
    """The batches of a loop.

    Attributes:
        make_s: seconds of making each batch.
        step_s: seconds from the delivery of a batch until the consumer wanted the next one.
        fetch_s: the part of `make_s` in the dataset's code.
        slow_s: seconds of each batch's slowest sample; 0: unknown.
        worker: who made each batch.
        gap_s: for the first batch of an epoch, the seconds before it was begun; otherwise 0.
        workers: how many there were; 0: the consumer made them.
        ahead: how many batches are made ahead, in all.
        others_s: seconds before each batch in which its worker made batches of other loaders.
        lead_s: seconds from when a batch is asked for until an idle worker begins.
        travel_s: seconds from when each was made until it was here; its worker continues meanwhile.
    """

    make_s: _Floats
    step_s: _Floats
    fetch_s: _Floats
    slow_s: _Floats
    worker: npt.NDArray[np.int64]
    gap_s: _Floats
    workers: int
    ahead: int
    others_s: _Floats = field(default_factory=lambda: np.zeros(1))
    lead_s: float = 0.0
    travel_s: _Floats = field(default_factory=lambda: np.zeros(1))

    def seconds(
        self,
        workers: int | None = None,
        ahead: int | None = None,
        make_s: _Floats | None = None,
        step_s: _Floats | None = None,
        gap_s: _Floats | None = None,
        others_s: _Floats | None = None,
        travel_s: _Floats | None = None,
    ) -> float:
        """Return the length of the loop with the given values in place of the measured ones."""
        workers = self.workers if workers is None else workers
        others = self.others_s if others_s is None else others_s
        make = ((self.make_s if make_s is None else make_s) + others).tolist()
        step = (self.step_s if step_s is None else step_s).tolist()
        gap = (self.gap_s if gap_s is None else gap_s).tolist()
        travels = self.travel_s if travel_s is None else travel_s
        travel = np.broadcast_to(travels, (len(make),)).tolist()
        if workers == 0:
            return float(sum(make) + sum(step) + sum(gap))
        ahead = max(workers, self.ahead if ahead is None else ahead)
        is_new = (self.gap_s > 0).tolist()
        # workers keep their batches if their number stays the same
        is_same = workers == self.workers and make_s is None
        owner = self.worker.tolist() if is_same else None
        free = [0.0] * workers
        tasks: list[deque[float]] = [deque() for _ in range(workers)]  # when each task is done
        delivered: list[float] = []
        now = opened = 0.0
        first = 0
        all_before = 0.0
        for i, make_one in enumerate(make):
            if is_new[i]:  # an epoch begins: nothing is in flight
                opened, first = now + gap[i], i
                free = [opened] * workers
            sent_at = self.lead_s + (opened if i - first < ahead else delivered[i - ahead])
            who = _fewest(tasks, free, sent_at) if owner is None else owner[i] % workers
            done = free[who] = max(free[who], sent_at) + make_one
            tasks[who].append(done)
            all_before = max(all_before, done + travel[i])
            now = max(now, all_before)
            delivered.append(now)
            now += step[i]
        return now

    def fewest_workers(self, least: int, most: int, factor: int, enough: float) -> int:
        """Return the fewest workers that are nearly as good as `most`, by a search: tries are slow.

        Args:
            least: workers.
            most: workers.
            factor: batches ahead per worker.
            enough: allowed length, as a multiple of the loop with `most`.
        """
        limit_s = enough * self.seconds(workers=most, ahead=most * factor)
        tries = range(least, most)
        at = bisect_left(tries, True, key=lambda n: self.seconds(n, n * factor) <= limit_s)
        return least + at

    def without_slow_samples(self, usual_s: float) -> _Floats:
        """Return the times of batches without samples that took ten times as long as usual."""
        excess = np.where(self.slow_s > SLOW * usual_s, self.slow_s - usual_s, 0.0)
        return np.asarray(np.maximum(self.make_s - excess, 0.0), np.float64)

    def seconds_without_page_waits(self, own: float, holds_gil: bool) -> float:
        """Return the length of the loop if making batches waits for no page.

        Args:
            own: share of the time of batches that is not spent on pages.
            holds_gil: whether the consumer's steps waited too, for workers that are threads.
        """
        make_s = np.minimum(self.make_s * own, self.make_s.min())
        step_s = self.step_s
        if holds_gil:
            step_s = np.minimum(step_s, step_s[step_s > 0].min(initial=np.inf))
        return self.seconds(make_s=make_s, step_s=step_s)

    def with_equal_workers(self) -> _Floats:
        """Return the times of batches if each worker were as fast as most."""
        medians = [np.median(self.make_s[self.worker == who]) for who in np.unique(self.worker)]
        usual = float(np.median(medians)) if len(medians) > 2 else float(min(medians, default=0.0))
        made = self.make_s.copy()
        for who, median in zip(np.unique(self.worker), medians):
            if median > usual > 0:
                made[self.worker == who] *= usual / median
        return np.asarray(made, np.float64)


def _fewest(tasks: list[deque[float]], free: list[float], now: float) -> int:
    """Return the worker with the fewest tasks in flight; of equals, the one that is free first."""
    best = 0
    for worker_id, own in enumerate(tasks):
        while own and own[0] <= now:
            own.popleft()
        if (len(own), free[worker_id]) < (len(tasks[best]), free[best]):
            best = worker_id
    return best


def usual_sample_s(records: npt.NDArray[np.void]) -> float:
    """Return the usual time of samples, without the slowest of each batch; 0: unknown.

    The median over batches of the mean of the others, so one slow sample per batch does not count.
    For batches of one sample: the median.
    """
    known = records[(records["slowest_ns"] > 0) & (records["fetch_ns"] >= records["slowest_ns"])]
    if not len(known):
        return 0.0
    others = np.maximum(known["rows"].astype(np.int64) - 1, 0)
    mean_ns = (known["fetch_ns"] - known["slowest_ns"]) / np.maximum(others, 1)
    return float(np.median(np.where(others > 0, mean_ns, known["slowest_ns"]))) * 1e-9


def replay_of(
    records: npt.NDArray[np.void],
    begun_ns: int,
    ended_ns: int,
    workers: int,
    ahead: int,
    is_shared: bool = False,
    is_remote: bool = False,
) -> Replay | None:
    """Return the replay of the loop that gave these records; None: there are too few.

    Args:
        records: of batches, in the order of their delivery, with the fields of a `TimesLog`.
        begun_ns: when the loop began.
        ended_ns: when it ended.
        workers: see `Replay`.
        ahead: see `Replay`.
        is_shared: whether the workers make batches of other loaders too.
        is_remote: whether they are on other machines.
    """
    known = records[(records["begun_ns"] > 0) & (records["sent_ns"] > 0)]
    if len(known) < 2:
        return None
    made_ns = known["sent_ns"] - known["begun_ns"]
    after_ns = np.append(known["asked_ns"][1:], ended_ns)
    is_new = np.append(True, (known["epoch"][1:] != known["epoch"][:-1]))
    step_ns = after_ns - known["delivered_ns"]
    before_ns = np.append(begun_ns, known["delivered_ns"][:-1])
    gap_ns = np.zeros(len(known), np.int64)
    firsts = np.flatnonzero(is_new)
    for at, end in zip(firsts, [*firsts[1:], len(known)]):
        first_ns = known["begun_ns"][at : min(end, at + max(1, workers))].min()
        gap_ns[at] = max(1, first_ns - before_ns[at])
        if at:
            step_ns[at - 1] = 0  # it is in the gap
    others_s = known["others_ns"] * 1e-9  # workers on other machines report it
    if is_shared and not is_remote:
        others_s = _others_s(known)
    return Replay(
        made_ns * 1e-9,
        np.asarray(np.maximum(step_ns, 0) * 1e-9, np.float64),
        known["fetch_ns"] * 1e-9,
        known["slowest_ns"] * 1e-9,
        known["worker"].astype(np.int64),
        np.asarray(gap_ns * 1e-9, np.float64),
        workers,
        ahead,
        others_s,
        _lead_s(known) if is_remote else 0.0,
        np.where(known["landed_ns"] > 0, known["landed_ns"] - known["sent_ns"], 0) * 1e-9,
    )


def _others_s(known: npt.NDArray[np.void]) -> _Floats:
    """Return how long each batch waited at its worker after the worker's previous batch."""
    waited = np.zeros(len(known))
    for own, before_ns in _by_worker(known):
        free_ns = np.maximum(known["dispatched_ns"][own], before_ns)
        waited[own] = np.maximum(known["begun_ns"][own] - free_ns, 0) * 1e-9
        waited[own[0]] = 0.0  # the worker starts
    return np.asarray(waited, np.float64)


def _lead_s(known: npt.NDArray[np.void]) -> float:
    """Return how long an idle worker usually takes to begin a batch."""
    waited_ns = np.maximum(known["begun_ns"] - known["dispatched_ns"] - known["others_ns"], 0)
    of_idle_ns = np.concatenate(
        [
            waited_ns[own][known["dispatched_ns"][own] > before_ns]
            for own, before_ns in _by_worker(known)
        ]
    )
    return float(np.median(of_idle_ns)) * 1e-9 if len(of_idle_ns) else 0.0


def _by_worker(known: npt.NDArray[np.void]) -> Iterator[tuple[Any, Any]]:
    """Yield the indices of each worker's batches in order, and when its previous one was made."""
    for worker in np.unique(known["worker"]):
        own = np.flatnonzero(known["worker"] == worker)
        own = own[np.argsort(known["begun_ns"][own], kind="stable")]
        yield own, np.append(0, known["sent_ns"][own][:-1])
