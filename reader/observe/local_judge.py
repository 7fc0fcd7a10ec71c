"""The judge of a loop with workers on this machine: finds what bounds it, and what a change saves.

Imports the numbers of a loop. It looks nothing up.
"""

from __future__ import annotations

from statistics import median_high
from typing import Any

from reader.observe.loop_numbers import LITTLE, MOST, LoopNumbers
from reader.observe.machine import in_bytes
from reader.observe.replay import SLOW
from reader.observe.verdict import Verdict, in_words

__all__ = ["LocalJudge"]

_FEW = 4  # transfers: the most that are too few to fill a network


class LocalJudge(LoopNumbers):
    """Names the first cause that explains a loop; causes of other causes come first."""

    def verdict(self) -> Verdict:
        """Return the first cause that explains the loop."""
        for cause in (
            self._memory,
            self._gil,
            self._step,
            self._sampler,
            self._start,
            self._transfer,
            self._network,
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
        advice = "Free memory or raise its limit"
        advice += f"; else {fewer} or prefetch_factor." if seen.workers else "."
        saved_s = None
        if self.replay is not None:
            own = (self.computes + self.queues) * seen.user_share  # the rest is kernel time
            left_s = self.replay.seconds_without_page_waits(own, seen.uses_threads)
            saved_s = seen.seconds * (1.0 - left_s / max(self.base_s, 1e-9))
        return self._say("memory", why, advice, saved_s)

    def _gil(self) -> Verdict | None:
        """Return the verdict if threads together compute as much as one core, by the GIL."""
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
        """Return the time saved if no thread waits for the GIL, and cores are shared."""
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
        advice = self._threads.strip()
        return Verdict("step", text, advice, share, None if advice else 1.0)

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
        # waits of only a worker's first sample belong to its start
        first = [s for s in seen.slow_samples if s.row > 0 and s.batch < max(1, seen.workers)]
        start_s -= sum(s.seconds for s in first if s.seconds > SLOW * seen.usual_sample_s)
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

    def _network(self) -> Verdict | None:
        """Return the verdict if workers mostly wait for bytes of a store."""
        seen = self.seen
        share = min(1.0, (seen.network_s or 0.0) / max(seen.busy_s, 1e-9))
        if share <= MOST:
            return None
        changed = {} if self.replay is None else {"make_s": self.replay.make_s * (1.0 - share)}
        gives = seen.network_nbytes / seen.seconds
        why = (
            f"{self.who} {'wait' if seen.workers > 1 else 'waits'} in {share:.0%} of the time that"
            f" batches take for bytes of the store. The network gives {_rate(gives)}"
        )
        if self.step_s > 0:
            why += f", and the step needs {_rate(seen.stored_nbytes / seen.batches / self.step_s)}"
        saved_s = self._saved_s(seen.wait_s * share, **changed)
        if seen.transfers < _FEW and not seen.evicted_nbytes:
            advice = (
                f"{seen.transfers:.1f} transfers are under way at a time: have it know what comes,"
                " by shuffle=True or ShardOrder, and raise ahead= of ShardCache if it is set; or"
                " have more batches under way: num_workers, prefetch_factor."
            )
            return self._say("network", why, advice, saved_s)
        advice = (
            "More workers do not help. Come nearer to the store or have a faster link, copy the"
            " shards to a disk before, or have fewer bytes in a sample, such as smaller pictures."
        )
        if seen.evicted_nbytes:
            advice += (
                f" What a cache keeps comes once: raise limit= of ShardCache, which is"
                f" {in_bytes(seen.cache_limit)}, and {in_bytes(seen.evicted_nbytes)} went from it."
            )
        else:
            advice += " A ShardCache that holds the set has it from the second epoch on."
        return self._say("network", why, advice, saved_s)

    def _cores(self) -> Verdict | None:
        """Return the verdict if other work takes the cores."""
        seen = self.seen
        is_stopped = seen.stopped_s > 0.1 * seen.seconds
        if not is_stopped and (self.queues <= 0.25 or self._fills_cores):
            return None
        advice = f"The program may use {seen.cores:g} cores: give it more, or start fewer threads"
        if is_stopped:
            why = f"the quota of {seen.cores:g} cores is used up, and the program is stopped"
            return self._say("cores", why, f"{advice}.{self._threads}", None)
        why = f"{self.who} {self._have} no core in {self.queues:.0%} of the time that batches take"
        changed: dict[str, Any] = {}
        if self.replay is not None:
            # a thread with the GIL and without a core delays the others too
            kept = self.computes if seen.uses_threads else 1.0 - self.queues
            changed["make_s"] = self.replay.make_s * kept
            changed["step_s"] = self._step_with_a_core(self.replay)
        saved_s = self._saved_s(seen.wait_s * self.queues, **changed)
        advice = f"{advice}; other programs take them, too.{self._threads}"
        return self._say("cores", why, advice, saved_s)

    # -- single samples and workers --------------------------------------------------------------

    def _sample(self) -> Verdict | None:
        seen = self.seen
        usual_s = seen.usual_sample_s
        if not usual_s:
            return None
        excess_s = sum(max(0.0, s.seconds - SLOW * usual_s) for s in seen.slow_samples)
        saved_s = excess_s
        if self.replay is not None and excess_s:
            saved_s = self._saved_s(0.0, make_s=self.replay.without_slow_samples(usual_s))
        if saved_s <= MOST * self.lost_s:
            return None
        slow = seen.slow_samples[0]
        name = f"sample {slow.index}" if slow.index is not None else f"row {slow.row}"
        took = f"{slow.seconds:.2f} s of {seen.seconds:.2f}"
        others = f"others {in_words(usual_s)} in the mean"
        why = f"{name} of batch {slow.batch} took {took}, and {others}"
        if seen.slow_batches > 1:
            share = seen.slow_s / max(seen.busy_s, 1e-9)
            why = (
                f"in {seen.slow_batches} of {seen.batches} batches one sample takes most of the"
                f" time, {min(1.0, share):.0%} of making batches in all: {name} of batch"
                f" {slow.batch} took {took}, and {others}"
            )
        which = "that sample" if seen.slow_batches <= 1 else "those samples (slow_samples)"
        ahead = "make more batches ahead: prefetch_factor"
        if not seen.workers:
            ahead = "have a worker make batches ahead: num_workers=1"
        return self._say("sample", why, f"Look at {which}, or {ahead}.", saved_s)

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
            "Look at what that worker does alone: its shard, its files, its core."
            + (" in_order=False has the others go on meanwhile." if self.seen.in_order else ""),
            saved_s,
        )

    def _prefetch(self) -> Verdict | None:
        """Return the verdict if workers have no task while the consumer waits."""
        seen, replay = self.seen, self.replay
        if not seen.workers or (replay is None and seen.shares_workers):
            return None  # without records it is unknown whether they made other loaders' batches
        saved_s, factor = seen.wait_s * (1 - self.use), 0
        if replay is not None:
            factor = self._enough_ahead(replay)
            saved_s = self.base_s - replay.seconds(ahead=factor * seen.workers)
        if self.use >= 0.6 and (replay is None or saved_s <= MOST * self.lost_s):
            return None
        if replay is not None and saved_s < LITTLE * seen.seconds:
            return None  # they wait for another reason
        named = f"prefetch_factor={factor}" if factor else "prefetch_factor"
        return self._say(
            "prefetch",
            f"{self.who} {self.are} busy {self.use:.0%} of the time, and {self._have} no task in"
            " the rest",
            f"Make more batches ahead than {seen.prefetch}: {named}.",
            saved_s,
            **({"prefetch_factor": factor} if factor else {}),
        )

    # -- workers ---------------------------------------------------------------------------------

    def _others(self) -> Verdict | None:
        """Return the verdict if workers mostly make batches of other loaders."""
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
            "Return arrays of one shape and drop collate_fn: they are then stacked in place."
            if seen.has_collate_fn
            else "Have fewer and smaller fields in a sample, such as arrays of uint8.",
            self._saved_s(seen.wait_s * collate_s / seen.busy_s, **changed),
        )

    def _storage(self) -> Verdict | None:
        blocked = 1.0 - self.computes - self.queues
        if blocked <= MOST:
            return None
        more = self._more_workers(0.5 * self.seen.cores)  # waiting workers find a core now and then
        ways = [] if more <= self.seen.workers else [f"{self.waits_freely}: {self._named(more)}"]
        cache = self._cache_of("what is read")
        advice = f"{ways[0]}. {cache}" if ways else cache.removeprefix("Or ").capitalize()
        return self._say(
            "storage",
            f"{self.who} {'wait' if self.seen.workers > 1 else 'waits'} in {blocked:.0%} of the"
            " time that samples are fetched: for storage",
            advice.rstrip(),
            self._saved_by_workers(more),
            **(self._options(more) if ways else {}),
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
        no_more = f"{self.no_more} more workers"
        if seen.decoder and not self._has_pixels:
            why = f"{busy}, in which {seen.decoder} decodes images"
            decoded = "decode smaller images, or parts of them"
            if seen.decoder != "reader.images":
                decoded += " (reader.images)"
            advice = f"{no_more}: {decoded}. {self._cache_of('what is decoded')}{self._threads}"
            return self._say("decoding", why, advice, saved_s)
        cheaper = "make samples cheaper"
        if self._has_pixels:
            busy += f"; {seen.cached:.0%} of its samples come from a cache"
            cheaper = "make cheaper what is done after the cache, such as transforms"
        advice = f"{no_more}: {cheaper}. {self._cache_of('what does not change')}"
        return self._say("dataset", busy, f"{advice.rstrip()}{self._threads}", saved_s)

    # -- caches ----------------------------------------------------------------------------------

    @property
    def _has_pixels(self) -> bool:
        """Whether most samples come decoded from a cache."""
        return (self.seen.cached or 0.0) > MOST and not self.seen.keeps_files

    def _cache_of(self, what: str) -> str:
        """Return the sentence that advises a cache; "": most samples come from one."""
        seen = self.seen
        if seen.cached is None:
            return f"Or cache {what}, for later epochs: reader.cache."
        if seen.keeps_files:
            return f'Or cache {what}, and not files alone: reader.cache(..., what="pixels").'
        if self._has_pixels:
            return ""
        return (
            f"Its cache had {seen.cached:.0%} of the samples: later epochs find more, as far as"
            " memory= and disk= have room."
        )


def _rate(bytes_per_s: float) -> str:
    return f"{bytes_per_s / 1e6:.3g} MB/s"
