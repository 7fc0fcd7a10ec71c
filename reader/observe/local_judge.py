"""The judge of a loop whose workers are on this machine: what bounds it, and what a change saves.

Imports what was measured, and the loop to play it again. It looks nothing up.
"""

from __future__ import annotations

import math
from statistics import median_high
from typing import Any

from reader.observe.measured import Measured
from reader.observe.replay import Replay
from reader.observe.verdict import Verdict, in_words

__all__ = ["LITTLE", "MOST", "LocalJudge"]

LITTLE = 0.05  # a share of the loop that nobody would notice
MOST = 0.5  # a share that explains the rest
_MANY = 64  # workers: more are not advised
_ENOUGH = 1.05  # times the best that can be had


class LocalJudge:
    """One loop, and what its numbers say.

    Attributes:
        lost_s: seconds that the consumer would not need with a loader that costs nothing.
        use: share of their time in which workers make batches, of whichever loader.
        computes, queues: shares of the time that batches are made in which workers compute, and in
            which they could and have no core.
        no_more, others, waits_freely: words for what differs where workers are on a cluster.
    """

    no_more = "No core is left for"
    others = "loaders"
    waits_freely = "Waiting needs no core"

    def __init__(self, seen: Measured, replay: Replay | None) -> None:
        self.seen = seen
        self.replay = replay
        self.base_s = 0.0 if replay is None else replay.seconds()
        self.draw_s = seen.stages.get("draw", 0.0)
        self.lost_s = seen.first_wait_s + seen.wait_s + self.draw_s + seen.transfer_wait_s
        self.span_s = max(seen.seconds - seen.first_wait_s, 1e-9)
        self.use = (seen.busy_s + seen.others_s) / (max(1, seen.workers) * self.span_s)
        busy_s = max(seen.busy_s, 1e-9)
        self.computes = 1.0 if seen.cpu_s is None else min(1.0, seen.cpu_s / busy_s)
        self.queues = 0.0
        if seen.runnable_s is not None:
            self.queues = min(1.0 - self.computes, seen.runnable_s / busy_s)
        self.make_s = seen.busy_s / seen.batches
        self.step_s = max(0.0, seen.step_s - seen.transfer_wait_s) / seen.batches
        self.who = f"{seen.workers} workers" if seen.workers != 1 else "1 worker"
        self.are = "are" if seen.workers != 1 else "is"
        if not seen.workers:
            self.who, self.are = "the trainer itself", "is"

    def verdict(self) -> Verdict:
        """Return the first cause that explains the loop: what lies over others comes first."""
        for cause in (
            self._memory,
            self._gil,
            self._step,
            self._sampler,
            self._start,
            self._transfer,
            self._sample,
            self._straggler,
            self._others,
            self._collate,
            self._cores,
            self._prefetch,
            self._storage,
            self._workers,
        ):
            found = cause()
            if found is not None:
                return found
        return self._dataset()

    def _say(
        self, bound_by: str, why: str, advice: str, saved_s: float | None, **options: Any
    ) -> Verdict:
        seen = self.seen
        gain = None
        if saved_s is not None:
            left_s = max(seen.seconds - max(0.0, saved_s), seen.seconds * 1e-3)
            gain = round(seen.seconds / left_s, 2)
        sentence = f"The loop waits {self.lost_s / seen.seconds:.0%} of its time: {why}."
        return Verdict(bound_by, sentence, advice, seen.wait_share, gain, options)

    def _saved_s(self, otherwise_s: float, **changed: Any) -> float:
        """Return what a change saves; without a replay, what is given."""
        if self.replay is None:
            return otherwise_s
        return self.base_s - self.replay.seconds(**changed)

    # -- what bounds everything ------------------------------------------------------------------

    def _memory(self) -> Verdict | None:
        seen = self.seen
        is_unknown, share = seen.memory_stall_s is None, (seen.memory_stall_s or 0.0) / seen.seconds
        reads_back = seen.memory_events > 0 and seen.major_faults > 100 * seen.seconds
        is_mostly_kernel = share > LITTLE and seen.user_share < 0.3
        if share < 0.2 and not (reads_back and (is_unknown or is_mostly_kernel)):
            return None
        stalls = "" if is_unknown else f"programs wait for memory in {share:.0%} of the time, "
        why = (
            f"memory is short: {stalls}{seen.major_faults} pages were read back, and a limit on"
            f" memory was reached {seen.memory_events} times"
        )
        fewer = "take a smaller WorkerPool" if seen.shares_workers else "lower num_workers"
        advice = f"Free memory or raise its limit; else {fewer} or prefetch_factor."
        saved_s = None
        if self.replay is not None:
            own = (self.computes + self.queues) * seen.user_share  # the rest is the kernel's
            left_s = self.replay.seconds_without_page_waits(own, seen.uses_threads)
            saved_s = seen.seconds * (1.0 - left_s / max(self.base_s, 1e-9))
        return self._say("memory", why, advice, saved_s)

    def _gil(self) -> Verdict | None:
        """Whether threads compute for as long as one core can, and are kept from more."""
        seen = self.seen
        if not seen.uses_threads or not seen.workers or seen.cpu_s is None or not seen.busy_s:
            return None
        wanted_s = seen.cpu_s + (seen.runnable_s or 0.0)  # with the GIL; or nearly so
        waits = 1.0 - wanted_s / seen.busy_s
        computed_s = wanted_s + (seen.own_cpu_s or 0.0) + (seen.own_runnable_s or 0.0)
        own_s = seen.own_cpu_s or 0.0
        own_waits_s = seen.step_s - own_s - (seen.own_runnable_s or 0.0)
        is_step_kept = own_s > 0.3 * self.span_s and own_waits_s > 0.15 * self.span_s
        is_used_up = self.use > 0.9 and self.lost_s < LITTLE * seen.seconds
        is_kept = waits > 0.3 or is_step_kept or is_used_up
        is_full = 0.75 * self.span_s < computed_s < 1.4 * self.span_s
        if not is_kept or not is_full or seen.cpu_s < 0.1 * self.span_s:
            return None
        are = "are threads" if seen.workers > 1 else "is a thread"
        holds = "the training step holds" if own_s > seen.cpu_s else "Python code takes"
        why = f"{self.who} {are}, and {holds} the GIL while others wait for it"
        return self._say(
            "gil",
            why,
            'Use processes: worker_type="process".',
            self._saved_by_processes(),
            worker_type="process",
        )

    def _saved_by_processes(self) -> float | None:
        """Return what is saved if nothing waits for the GIL, and cores are shared."""
        seen, replay = self.seen, self.replay
        if replay is None or seen.cpu_s is None:
            return None
        step = replay.step_s
        least = min(float(step.mean()), max(float(step.min()), 1e-9))
        own_s = (seen.own_cpu_s or 0.0) / len(step)
        step_s = min(float(step.mean()), max(least, own_s))
        wanted = min(seen.workers, seen.cpu_s / seen.batches / max(step_s, 1e-9))
        free = seen.cores
        if seen.idle_cores is not None:
            used_s = seen.cpu_s + (seen.own_cpu_s or 0.0)
            free = min(free, used_s / self.span_s + seen.idle_cores)
        crowd = max(1.0, (wanted + own_s / max(step_s, 1e-9)) / max(free, 1.0))
        made = replay.make_s * (self.computes * crowd)
        return self.base_s - replay.seconds(make_s=made, step_s=step * (step_s / step.mean()))

    # -- what comes before workers ---------------------------------------------------------------

    def _step(self) -> Verdict | None:
        seen = self.seen
        first_s = seen.first_wait_s
        is_only_start = first_s > MOST * self.lost_s and self.lost_s < 2 * LITTLE * seen.seconds
        if self.lost_s >= LITTLE * seen.seconds and not is_only_start:
            return None
        share = seen.wait_share
        text = f"The training step bounds the loop: it waits {share:.1%} of its time for batches."
        return Verdict("step", text, "", share, 1.0)

    def _sampler(self) -> Verdict | None:
        if self.draw_s <= MOST * self.lost_s:
            return None
        each = in_words(self.draw_s / self.seen.batches)
        step = None if self.replay is None else self.replay.step_s
        changed = {}
        if step is not None:
            changed["step_s"] = step * max(0.0, 1.0 - self.draw_s / max(float(step.sum()), 1e-9))
        return self._say(
            "sampler",
            f"the sampler takes {each} to draw a batch, in the trainer",
            "Make its order at once, as an array, or use a built-in sampler: those cost nothing.",
            self._saved_s(self.draw_s, **changed),
        )

    def _start(self) -> Verdict | None:
        seen = self.seen
        firsts_s = seen.first_wait_s + seen.epoch_wait_s
        usual_s = 0.0 if self.replay is None else median_high(self.replay.make_s.tolist())
        start_s = firsts_s - usual_s * max(1, seen.epochs)
        if start_s <= MOST * self.lost_s:
            return None
        of = "the first batch" if seen.epochs < 2 else f"the first batches of {seen.epochs} epochs"
        kept = (seen.epochs - 1) / seen.epochs if seen.epochs > 1 else 1.0
        advice = "Begin before the loop what the first sample waits for."
        options = {}
        if seen.workers:
            advice = "Open files when they are first used, not in __init__."
        if seen.workers and not seen.persists:
            advice = (
                "Keep the workers between epochs: persistent_workers=True; and open files when they"
                " are first used, not in __init__."
            )
            options = {"persistent_workers": True} if seen.epochs > 1 else {}
        return self._say(
            "start",
            f"{firsts_s:.2f} s of it for {of}",
            advice,
            start_s * kept,
            **options,
        )

    def _transfer(self) -> Verdict | None:
        if self.seen.transfer_wait_s <= MOST * (self.lost_s - self.seen.transfer_wait_s):
            return None
        return self._say(
            "transfer",
            "copies to the device are not done in time",
            "Move less: uint8 instead of float32, and normalize on the device.",
            self.seen.transfer_wait_s,
        )

    def _cores(self) -> Verdict | None:
        """Whether others take the cores: if the loop's own work fills them, that is dear."""
        seen = self.seen
        is_stopped = seen.stopped_s > 0.1 * seen.seconds
        if not is_stopped and (self.queues <= 0.25 or self._fills_cores):
            return None
        advice = f"The program may use {seen.cores:g} cores: give it more, or start fewer threads"
        if is_stopped:
            why = f"the quota of {seen.cores:g} cores is used up, and the program is stopped"
            return self._say("cores", why, f"{advice}.", None)
        why = f"{self.who} {self._have} no core in {self.queues:.0%} of the time that batches take"
        changed: dict[str, Any] = {}
        if self.replay is not None:
            # a thread that has the GIL and no core keeps the others waiting, too
            kept = self.computes if seen.uses_threads else 1.0 - self.queues
            changed["make_s"] = self.replay.make_s * kept
            changed["step_s"] = self._step_with_a_core(self.replay)
        saved_s = self._saved_s(seen.wait_s * self.queues, **changed)
        return self._say("cores", why, f"{advice}; other programs take them, too.", saved_s)

    @property
    def _fills_cores(self) -> bool:
        """Whether workers and consumer themselves use up the cores, as far as that is known."""
        seen = self.seen
        if seen.own_cpu_s is None:
            return False
        return self._own_cores(seen.own_cpu_s) > 0.7 * seen.cores

    def _own_cores(self, own_cpu_s: float) -> float:
        """Return how many cores workers and consumer took, whichever the loader."""
        seen = self.seen
        workers_s = (seen.cpu_s or 0.0) + seen.others_cpu_s
        return (workers_s + (own_cpu_s if seen.workers else 0.0)) / self.span_s

    def _step_with_a_core(self, replay: Replay) -> Any:
        """Return what steps take if the consumer always has a core."""
        seen = self.seen
        all_s = max(self.step_s * seen.batches, 1e-9)
        queue_s = min(seen.own_runnable_s or 0.0, 0.9 * all_s) if seen.workers else 0.0
        return replay.step_s * (1.0 - queue_s / all_s)

    @property
    def _have(self) -> str:
        return "have" if self.seen.workers > 1 else "has"

    # -- single samples and workers --------------------------------------------------------------

    def _sample(self) -> Verdict | None:
        seen = self.seen
        usual_s = seen.usual_sample_s
        if not usual_s:
            return None
        excess_s = sum(max(0.0, s.seconds - 10 * usual_s) for s in seen.slow_samples)
        saved_s = excess_s
        if self.replay is not None and excess_s:
            saved_s = self._saved_s(0.0, make_s=self.replay.without_slow_samples(usual_s))
        if saved_s <= MOST * self.lost_s:
            return None
        slow = seen.slow_samples[0]
        name = f"sample {slow.index}" if slow.index is not None else f"row {slow.row}"
        return self._say(
            "sample",
            f"{name} of batch {slow.batch} took {slow.seconds:.2f} s, and others"
            f" {in_words(usual_s)} at most",
            "Look at that sample, or make more batches ahead: prefetch_factor.",
            saved_s,
        )

    def _straggler(self) -> Verdict | None:
        times = [each for each in self.seen.worker_s if each > 0]
        if self.replay is None or len(times) < 2:
            return None
        slowest, usual = max(times), median_high(sorted(times)[:-1])
        if slowest < 2 * usual:
            return None
        saved_s = self._saved_s(0.0, make_s=self.replay.with_equal_workers())
        if saved_s <= MOST * self.lost_s:
            return None
        who = self.seen.worker_s.index(slowest)
        return self._say(
            "straggler",
            f"worker {who} takes {in_words(slowest)} for a batch, and others {in_words(usual)}",
            "Look at what that worker does alone: its shard, its files, its core. in_order=False"
            " has the others go on meanwhile.",
            saved_s,
        )

    def _prefetch(self) -> Verdict | None:
        """Whether workers have no task while the consumer waits."""
        seen, replay = self.seen, self.replay
        if not seen.workers or (replay is None and seen.shares_workers):
            return None  # without records nobody knows whether they were at other loaders' batches
        saved_s, factor = seen.wait_s * (1 - self.use), 0
        if replay is not None:
            factor = self._enough_ahead(replay)
            saved_s = self.base_s - replay.seconds(ahead=factor * seen.workers)
        if self.use >= 0.6 and (replay is None or saved_s <= MOST * self.lost_s):
            return None
        if replay is not None and saved_s < LITTLE * seen.seconds:
            return None  # they wait for something else
        named = f"prefetch_factor={factor}" if factor else "prefetch_factor"
        return self._say(
            "prefetch",
            f"{self.who} {self.are} busy {self.use:.0%} of the time, and {self._have} no task in"
            " the rest",
            f"Make more batches ahead than {seen.prefetch}: {named}.",
            saved_s,
            **({"prefetch_factor": factor} if factor else {}),
        )

    def _enough_ahead(self, replay: Replay) -> int:
        workers = max(1, self.seen.workers)
        now = max(1, self.seen.prefetch // workers)
        tries = [now << k for k in range(7) if now << k <= 256] or [now]
        times = [replay.seconds(ahead=each * workers) for each in tries]
        return min(t for t, s in zip(tries, times) if s <= _ENOUGH * min(times))

    # -- workers ---------------------------------------------------------------------------------

    def _named(self, workers: int) -> str:
        """Return how a program has so many workers."""
        return f"WorkerPool({workers})" if self.seen.shares_workers else f"num_workers={workers}"

    def _options(self, workers: int) -> dict[str, Any]:
        """Return the loader's own option for so many workers: with a WorkerPool it has none."""
        return {} if self.seen.shares_workers else {"num_workers": workers}

    def _others(self) -> Verdict | None:
        """Whether the workers are at batches of other loaders for most of their time."""
        seen, replay = self.seen, self.replay
        if replay is None or seen.others_s <= MOST * (seen.busy_s + seen.others_s):
            return None
        saved_s = self._saved_s(0.0, others_s=0.0 * replay.others_s)
        if saved_s <= MOST * self.lost_s:
            return None
        share = seen.others_s / (seen.workers * self.span_s)
        why = f"{self.who} {self.are} at batches of other {self.others} in {share:.0%} of the time"
        more = self._more_workers()
        if more <= seen.workers:
            advice = f"{self.no_more} more workers: look at those {self.others}."
            return self._say("workers", why, advice, saved_s)
        advice = f"{self._named(more)}, or look at those {self.others}."
        return self._say("workers", why, advice, self._saved_by_workers(more))

    def _collate(self) -> Verdict | None:
        seen = self.seen
        collate_s = seen.stages.get("collate", 0.0)
        if collate_s <= MOST * seen.busy_s:
            return None
        changed: dict[str, Any] = {}
        if self.replay is not None:
            changed["make_s"] = self.replay.fetch_s
            if self._fills_cores:
                changed["step_s"] = self._step_with_a_core(self.replay)
        return self._say(
            "collate",
            f"{collate_s / seen.busy_s:.0%} of making a batch is collating it",
            "Return arrays of one shape and drop collate_fn: they are then stacked in place.",
            self._saved_s(seen.wait_s * collate_s / seen.busy_s, **changed),
        )

    def _storage(self) -> Verdict | None:
        blocked = 1.0 - self.computes - self.queues
        if blocked <= MOST:
            return None
        more = self._more_workers(0.5 * self.seen.cores)  # what waits finds a core now and then
        return self._say(
            "storage",
            f"{self.who} {'wait' if self.seen.workers > 1 else 'waits'} in {blocked:.0%} of the"
            " time that samples are fetched: for storage",
            f"{self.waits_freely}: {self._named(more)}, or cache what is read: reader.cache.",
            self._saved_by_workers(more),
            **self._options(more),
        )

    def _workers(self) -> Verdict | None:
        seen = self.seen
        more = self._more_workers()
        if more <= seen.workers:
            return None
        return self._say(
            "workers",
            f"{self.who} {self.are} busy {self.use:.0%} of the time",
            f"{self._named(more)}{self._room}.",
            self._saved_by_workers(more),
            **self._options(more),
        )

    def _dataset(self) -> Verdict:
        seen = self.seen
        fetch_s = seen.stages.get("fetch", seen.busy_s)
        saved_s = seen.wait_s * min(1.0, fetch_s / max(seen.busy_s, 1e-9))
        if self.replay is not None:
            changed: dict[str, Any] = {"make_s": self.replay.make_s - self.replay.fetch_s}
            if self._fills_cores:
                changed["step_s"] = self._step_with_a_core(self.replay)
            saved_s = self._saved_s(0.0, **changed)
        busy = (
            f"{self.who} {self.are} busy {self.use:.0%} of the time, with"
            f" {in_words(self.make_s)} for a batch{self._other_programs}"
        )
        if seen.decoder:
            advice = (
                f"{self.no_more} more workers: decode smaller images, or parts of them"
                " (reader.images), or cache what is decoded: reader.cache."
            )
            why = f"{busy}, in which {seen.decoder} decodes images"
            return self._say("decoding", why, advice, saved_s)
        advice = (
            f"{self.no_more} more workers: make samples cheaper, or cache what does not change:"
            " reader.cache."
        )
        return self._say("dataset", busy, advice, saved_s)

    @property
    def _other_programs(self) -> str:
        """What is said of other programs that take cores; "": they take few, or it is unknown."""
        seen = self.seen
        if seen.idle_cores is None or seen.cpu_s is None or seen.own_cpu_s is None:
            return ""
        others = seen.cores - seen.idle_cores - self._own_cores(seen.own_cpu_s)
        said = f"; other programs take {others:.1f} of {seen.cores:g} cores"
        return said if others >= 0.25 * seen.cores else ""

    def _saved_by_workers(self, more: int) -> float:
        seen = self.seen
        after_s = max(self.step_s, self.make_s / max(more, 1))
        saved_s = max(0.0, seen.wait_s - max(0.0, after_s - self.step_s) * seen.batches)
        return self._saved_s(saved_s, workers=more, ahead=self._ahead(more))

    def _ahead(self, workers: int) -> int:
        """Return how many batches so many workers make ahead, as this loader is made."""
        return workers * max(1, self.seen.prefetch // max(1, self.seen.workers))

    @property
    def _room(self) -> str:
        """What is said of room for more workers."""
        idle = self.seen.idle_cores
        return "" if idle is None else f" ({idle:.1f} cores are idle)"

    def _more_workers(self, free: float = 0.0) -> int:
        """Return how many workers are worth having: as many as needed, and as there is room for.

        Args:
            free: cores that are counted as idle at least.
        """
        seen = self.seen
        most = self._most_workers(free)
        if most is None:
            return max(seen.workers, 1)
        wanted = math.ceil(self.make_s / self.step_s) if self.step_s > 1e-9 else most
        if self.replay is not None:
            least = max(1, seen.workers)
            wanted = self.replay.fewest_workers(least, max(least, most), self._ahead(1), _ENOUGH)
        return max(seen.workers, min(wanted, most), 1)

    def _most_workers(self, free: float) -> int | None:
        """Return how many workers have cores; None: unknown. `free`: see `_more_workers`."""
        seen = self.seen
        if seen.idle_cores is None:
            return None
        each = max(self.computes, 0.05)
        if seen.workers:
            most = seen.workers + int(max(seen.idle_cores, free) / each + 0.3)
        else:  # the core of this thread is theirs while it waits, and where its step computes less
            step_cpu_s = max(0.0, (seen.own_cpu_s or 0.0) - (seen.cpu_s or 0.0))
            is_step = step_cpu_s > MOST * self.step_s * seen.batches
            most = max(1, int((seen.cores - is_step) / each + 0.3))
        return min(most, _MANY)
