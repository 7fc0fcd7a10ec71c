"""What bounds a loop over a loader, in a word and in a sentence, and what to change.

Imports what was measured. A pure function of that: nothing is looked up here.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from reader.observe.measured import Measured

__all__ = ["Verdict", "judge"]

_LITTLE = 0.05  # a share of the loop that nobody would notice
_MOST = 0.5  # a share that explains the rest


@dataclass(frozen=True)
class Verdict:
    """What bounds a loop.

    Attributes:
        bound_by: one of "step", "start", "sampler", "transfer", "sample", "prefetch", "storage",
            "collate", "gil", "cores", "workers", "dataset".
        sentence: the same in words.
        advice: what to change; "": nothing.
        share: of the loop that the consumer waited, from 0 to 1.
        gain: by how much faster the loop is expected to be after that, such as 1.8; None: unknown.
    """

    bound_by: str
    sentence: str
    advice: str
    share: float
    gain: float | None = None


def judge(seen: Measured) -> Verdict:
    """Return what bounds the loop that was measured."""
    share = seen.wait_share
    draw_s = seen.stages.get("draw", 0.0)
    lost_s = seen.first_wait_s + seen.wait_s + draw_s
    if seen.batches == 0:
        return Verdict("start", "No batch was delivered while the profile ran.", "", share)
    if _is_at_gil(seen):
        return Verdict(
            "gil",
            f"{seen.workers} workers are threads that wait for each other's Python code, and so"
            " does the training step: the GIL is taken all the time.",
            'Use processes: worker_type="process".',
            share,
        )
    is_only_start = seen.first_wait_s > _MOST * lost_s and lost_s < 2 * _LITTLE * seen.seconds
    if lost_s < _LITTLE * seen.seconds or is_only_start:
        text = f"The training step bounds the loop: it waits {share:.1%} of its time for batches."
        return Verdict("step", text, "", share, 1.0)

    def told(bound_by: str, why: str, advice: str, saved_s: float) -> Verdict:
        sentence = f"The loop waits {lost_s / seen.seconds:.0%} of its time: {why}."
        left_s = max(seen.seconds - saved_s, seen.seconds * 1e-3)
        return Verdict(bound_by, sentence, advice, share, round(seen.seconds / left_s, 2))

    if draw_s > _MOST * lost_s:
        return told(
            "sampler",
            f"the sampler takes {_in_words(draw_s / seen.batches)} to draw a batch, in the trainer",
            "Make its order at once, as an array, or use a built-in sampler: those cost nothing.",
            draw_s,
        )
    if seen.first_wait_s > _MOST * lost_s:
        return told(
            "start",
            f"{seen.first_wait_s:.2f} s of it before the first batch",
            "Keep the workers between epochs: persistent_workers=True; and open files when they"
            " are first used, not in __init__.",
            seen.first_wait_s,
        )
    if seen.transfer_wait_s > _MOST * lost_s:
        return told(
            "transfer",
            "copies to the device are not done in time",
            "Move less: uint8 instead of float32, and normalize on the device.",
            seen.transfer_wait_s,
        )
    excess_s = _excess_of_slow_samples(seen)
    if excess_s > _MOST * lost_s:
        slow = seen.slow_samples[0]
        name = f"sample {slow.index}" if slow.index is not None else f"row {slow.row}"
        return told(
            "sample",
            f"{name} of batch {slow.batch} took {slow.seconds:.2f} s, and others"
            f" {_in_words(seen.usual_sample_s)} at most",
            "Look at that sample, or make more batches ahead: prefetch_factor.",
            excess_s,
        )
    return _judge_workers(seen, told)


def _judge_workers(seen: Measured, say: Callable[[str, str, str, float], Verdict]) -> Verdict:
    """Return what bounds workers, or the consumer where it makes its batches."""
    step_s = seen.step_s / seen.batches
    make_s = seen.busy_s / seen.batches
    capacity_s = max(1, seen.workers) * (seen.seconds - seen.first_wait_s)
    use = seen.busy_s / capacity_s if capacity_s > 0 else 0.0
    who = f"{seen.workers} workers" if seen.workers else "the trainer itself"
    if seen.workers and use < 0.6:
        return say(
            "prefetch",
            f"{who} are busy {use:.0%} of the time, and have no task in the rest",
            f"Make more batches ahead than {seen.prefetch}: prefetch_factor.",
            seen.wait_s * (1 - use),
        )
    cpu_s, runnable_s = seen.cpu_s, seen.runnable_s
    computes = 1.0 if cpu_s is None else min(1.0, cpu_s / max(seen.busy_s, 1e-9))
    queues = 0.0 if runnable_s is None else min(1.0, runnable_s / max(seen.busy_s, 1e-9))
    blocked = max(0.0, 1.0 - computes - queues)
    wanted = math.ceil(make_s / max(step_s, 1e-9)) if step_s > 0 else 10**6
    if queues > 0.25:
        why = f"{who} have no core in {queues:.0%} of the time that they make batches"
        advice = f"The program may use {seen.cores:g} cores: give it more, or start fewer threads."
        return say("cores", why, advice, seen.wait_s * queues)
    collate_s = seen.stages.get("collate", 0.0)
    if collate_s > _MOST * seen.busy_s:
        why = f"{collate_s / seen.busy_s:.0%} of making a batch is collating it"
        advice = "Return arrays of one shape and drop collate_fn: they are then stacked in place."
        return say("collate", why, advice, seen.wait_s * collate_s / seen.busy_s)
    more = _more_workers(seen, wanted, computes)
    after_s = max(step_s, make_s / max(more, 1))
    saved_s = max(0.0, seen.wait_s - max(0.0, after_s - step_s) * seen.batches)
    if blocked > _MOST:
        why = f"{who} wait in {blocked:.0%} of the time that samples are fetched: for storage"
        advice = f"Waiting needs no core: num_workers={more}, or cache what is read: reader.cache."
        return say("storage", why, advice, saved_s)
    if more > seen.workers:
        why = f"{who} {'is' if not seen.workers else 'are'} busy {use:.0%} of the time"
        idle = "" if seen.idle_cores is None else f" ({seen.idle_cores:.1f} cores are idle)"
        return say("workers", why, f"num_workers={more}{idle}.", saved_s)
    why = f"{who} are busy {use:.0%} of the time, with {make_s * 1e3:.3g} ms for a batch"
    advice = "No core is left: make samples cheaper, or cache what does not change: reader.cache."
    return say("dataset", why, advice, seen.wait_s)


def _is_at_gil(seen: Measured) -> bool:
    """Whether threads compute for as long as one core can, and are kept from more."""
    if not seen.uses_threads or seen.workers < 2 or seen.cpu_s is None or not seen.busy_s:
        return False
    waits = 1.0 - (seen.cpu_s + (seen.runnable_s or 0.0)) / seen.busy_s
    return waits > 0.3 and seen.cpu_s > 0.8 * (seen.seconds - seen.first_wait_s)


def _more_workers(seen: Measured, wanted: int, computes: float) -> int:
    """Return how many workers are worth having: as many as needed, and no more than have cores."""
    if seen.idle_cores is None:
        return max(seen.workers, 1)
    free = seen.idle_cores / max(computes, 0.05)
    most = seen.workers + int(free + 0.3) if seen.workers else max(1, int(seen.cores))
    return max(seen.workers, min(wanted, most, 64))


def _excess_of_slow_samples(seen: Measured) -> float:
    """Return how much longer than usual the slowest samples took, all together."""
    usual_s = seen.usual_sample_s
    return sum(max(0.0, s.seconds - 10 * usual_s) for s in seen.slow_samples) if usual_s else 0.0


def _in_words(seconds: float) -> str:
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e6:.3g} us"
