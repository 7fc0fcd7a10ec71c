"""The numbers that a judge uses, and their words in a verdict.

Imports the measurements and the replay; pure arithmetic.
"""

from __future__ import annotations

import math
from typing import Any

from reader.observe.measured import Measured
from reader.observe.replay import Replay
from reader.observe.verdict import Verdict

__all__ = ["LITTLE", "MOST", "LoopNumbers"]

LITTLE = 0.05  # a negligible share of the loop
MOST = 0.5  # a dominant share
_MANY = 64  # most workers that are advised
_ENOUGH = 1.05  # good enough, as a multiple of the best time


class LoopNumbers:
    """The numbers of one loop.

    Attributes:
        lost_s: seconds that a loader that costs nothing would save.
        use: share of the workers' time in which they make batches, of any loader.
        computes, queues: shares of the time of making batches in which workers compute, and in
            which they are ready and have no core.
        no_more, others, waits_freely: words that differ if workers are on a cluster.
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

    def _say(
        self, bound_by: str, why: str, advice: str, saved_s: float | None, **options: Any
    ) -> Verdict:
        seen = self.seen
        gain = None
        if saved_s is not None:
            left_s = max(seen.seconds - max(0.0, saved_s), seen.seconds * 1e-3)
            gain = round(seen.seconds / left_s, 2)
        lost = min(1.0, self.lost_s / seen.seconds)  # rounding of clocks in short loops
        sentence = f"The loop waits {lost:.0%} of its time: {why}."
        return Verdict(bound_by, sentence, advice, seen.wait_share, gain, options)

    def _saved_s(self, otherwise_s: float, **changed: Any) -> float:
        """Return the seconds that a change saves; without a replay, `otherwise_s`."""
        if self.replay is None:
            return otherwise_s
        return self.base_s - self.replay.seconds(**changed)

    @property
    def _fills_cores(self) -> bool:
        """Whether workers and consumer are known to use up the cores."""
        seen = self.seen
        if seen.own_cpu_s is None:
            return False
        return self._own_cores(seen.own_cpu_s) > 0.7 * seen.cores

    def _own_cores(self, own_cpu_s: float) -> float:
        """Return how many cores the program took for all loaders."""
        seen = self.seen
        workers_s = (seen.cpu_s or 0.0) + seen.others_cpu_s + seen.threads_s
        return (workers_s + (own_cpu_s if seen.workers else 0.0)) / self.span_s

    @property
    def _threads(self) -> str:
        """The text on other threads of the trainer, such as torch's; "": they matter little."""
        seen, used = self.seen, self.seen.threads_s / self.span_s
        is_full = seen.idle_cores is not None and seen.idle_cores < 0.25 * seen.cores
        if seen.is_remote or not seen.workers or not is_full or used < 0.1 * seen.cores:
            return ""
        return (
            f" Other threads of the trainer, such as torch's, take {used:.1f} of {seen.cores:g}"
            " cores: compare OMP_NUM_THREADS=1, or torch.set_num_threads(1)."
        )

    def _step_with_a_core(self, replay: Replay) -> Any:
        """Return the times of steps if the consumer always has a core."""
        seen = self.seen
        all_s = max(self.step_s * seen.batches, 1e-9)
        queue_s = min(seen.own_runnable_s or 0.0, 0.9 * all_s) if seen.workers else 0.0
        return replay.step_s * (1.0 - queue_s / all_s)

    @property
    def _have(self) -> str:
        return "have" if self.seen.workers > 1 else "has"

    def _enough_ahead(self, replay: Replay) -> int:
        workers = max(1, self.seen.workers)
        now = max(1, self.seen.prefetch // workers)
        tries = [now << k for k in range(7) if now << k <= 256] or [now]
        times = [replay.seconds(ahead=each * workers) for each in tries]
        return min(t for t, s in zip(tries, times) if s <= _ENOUGH * min(times))

    def _named(self, workers: int) -> str:
        """Return the advice to have this many workers."""
        return f"WorkerPool({workers})" if self.seen.shares_workers else f"num_workers={workers}"

    def _options(self, workers: int) -> dict[str, Any]:
        """Return the loader's option for this many workers; a WorkerPool has none."""
        return {} if self.seen.shares_workers else {"num_workers": workers}

    @property
    def _other_programs(self) -> str:
        """The text on other programs that take cores; "": they take few, or it is unknown."""
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
        """Return how many batches this many workers make ahead with the loader's options."""
        return workers * max(1, self.seen.prefetch // max(1, self.seen.workers))

    @property
    def _room(self) -> str:
        """The text on cores for more workers."""
        idle = self.seen.idle_cores
        return "" if idle is None else f" ({idle:.1f} cores are idle)"

    def _more_workers(self, free: float = 0.0) -> int:
        """Return how many workers are worth having: as many as are needed and have cores.

        Args:
            free: count at least this many cores as idle.
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
        else:  # workers get this thread's core while it waits or computes less
            step_cpu_s = max(0.0, (seen.own_cpu_s or 0.0) - (seen.cpu_s or 0.0))
            is_step = step_cpu_s > MOST * self.step_s * seen.batches
            most = max(1, int((seen.cores - is_step) / each + 0.3))
        return min(most, _MANY)
