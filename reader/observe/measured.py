"""What a profile measured, as numbers that a verdict is made of.

Imports the standard library alone. A record that never changes; JSON can hold it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

__all__ = ["Measured", "SlowSample", "cached_share", "with_store"]


@dataclass(frozen=True)
class SlowSample:
    """The slowest sample of a batch.

    Attributes:
        index: in the dataset; None: it has none, as in a stream.
        row: in its batch.
        batch: its number in the epoch.
        epoch: from 0.
        seconds: it took.
    """

    index: int | None
    row: int
    batch: int
    epoch: int
    seconds: float

    @classmethod
    def of(cls, record: Any) -> SlowSample:
        """Return the slowest sample of a batch's record; see TimesLog."""
        key = int(record["slowest_key"])
        return cls(
            None if key < 0 else key,
            int(record["slowest_row"]),
            int(record["seq"]),
            int(record["epoch"]),
            int(record["slowest_ns"]) * 1e-9,
        )


@dataclass(frozen=True)
class Measured:
    """Seconds and counts of a loop over a loader.

    Attributes:
        seconds: from the first to the last step, as the clock on the wall has them.
        batches: delivered.
        first_wait_s: from the beginning until the first batch.
        wait_s: in which the consumer waited for batches, without the first.
        stages: seconds of batches in each stage, by name: see `TimesLog.sums`.
        workers: how many; 0: the consumer makes its batches.
        uses_threads: whether workers are threads.
        busy_s: in which workers made batches, all together.
        cpu_s: in which workers computed; None: unknown.
        runnable_s: in which workers could compute and had no core; None: unknown.
        cores: how many the program may use.
        idle_cores: how many were idle in the mean; None: unknown.
        prefetch: batches that are made ahead, in all.
        slow_samples: the slowest ones, the slowest first.
        usual_sample_s: the median of what the other samples of a batch take in the mean, beside its
            slowest; 0: unknown.
        slow_batches: in how many batches a sample took ten times as long as that, and a tenth of
            what the slowest of all took, or longer.
        slow_s: seconds of those samples.
        transfer_wait_s: in which no copy to a device could be issued.
        epochs: that began.
        epoch_wait_s: for the first batch of each epoch but the first; a part of `wait_s`.
        own_cpu_s: in which the consumer's thread computed; None: unknown.
        own_runnable_s: in which it could compute and had no core; None: unknown.
        threads_s: in which other threads of the trainer's process computed, such as those that
            torch starts for a step; those of workers left out.
        stopped_s: in which a cgroup was stopped because its quota of cores was used up.
        memory_stall_s: in which something waited for memory; None: the system does not tell.
        memory_events: how often a limit on memory was reached.
        major_faults: pages that trainer and workers had to wait for; swap, or files.
        user_share: of what processes that make batches computed, the part that is no work of the
            kernel, such as reading pages back; 1: unknown.
        worker_s: median of the seconds that each worker takes for a batch; 0: it made none.
        decoder: what decodes images in the dataset's code, as far as that is seen; "": nothing.
        persists: whether workers stay between epochs.
        shares_workers: whether they make batches of others, too: those of a WorkerPool, or of a
            pool on a cluster.
        others_s: in which workers that had a batch to make were at one of another loader.
        others_cpu_s: in which workers computed for other loaders.
        held_s: of batches, from when the program had them until their last view was gone; of those
            of which both is known.
        copy_s: of copies to each device, from when they were issued until they were seen to be
            done; by place.
        is_remote: whether workers are on a cluster: `cores` and `idle_cores` are not theirs then.
        room: how many of them it has room for; None: unknown.
        bounded_s: of workers, in which tasks for them were held back, since as many bytes were
            under way as may be.
        clock_errors: how far times of workers may be off, in seconds, by machine.
        cached: the share of samples that the dataset's cache had; None: it has none.
        keeps_files: see `ObservedOptions`.
        has_collate_fn: whether the program collates by a function of its own.
        in_order: whether batches come in the sampler's order.
    """

    seconds: float
    batches: int
    first_wait_s: float
    wait_s: float
    stages: dict[str, float]
    workers: int
    uses_threads: bool
    busy_s: float
    cpu_s: float | None
    runnable_s: float | None
    cores: float
    idle_cores: float | None
    prefetch: int
    slow_samples: list[SlowSample] = field(default_factory=list)
    usual_sample_s: float = 0.0
    transfer_wait_s: float = 0.0
    epochs: int = 1
    epoch_wait_s: float = 0.0
    own_cpu_s: float | None = None
    own_runnable_s: float | None = None
    threads_s: float = 0.0
    stopped_s: float = 0.0
    memory_stall_s: float | None = None
    memory_events: int = 0
    major_faults: int = 0
    user_share: float = 1.0
    worker_s: list[float] = field(default_factory=list)
    decoder: str = ""
    persists: bool = False
    shares_workers: bool = False
    others_s: float = 0.0
    others_cpu_s: float = 0.0
    held_s: float = 0.0
    copy_s: list[float] = field(default_factory=list)
    is_remote: bool = False
    room: int | None = None
    bounded_s: float = 0.0
    clock_errors: dict[str, float] = field(default_factory=dict)
    slow_batches: int = 0
    slow_s: float = 0.0
    cached: float | None = None
    keeps_files: bool = False
    has_collate_fn: bool = True
    in_order: bool = True

    @property
    def step_s(self) -> float:
        """Seconds in which the consumer did something else than waiting."""
        sampled = self.stages.get("draw", 0.0)
        return max(0.0, self.seconds - self.first_wait_s - self.wait_s - sampled)

    @property
    def summary(self) -> str:
        """How long the loop was, in words."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.batches} batches in {self.seconds:.2f} s, {workers}"

    @property
    def wait_share(self) -> float:
        """What share of the loop the consumer waited, the first batch included."""
        return (self.first_wait_s + self.wait_s) / self.seconds if self.seconds > 0 else 0.0

    @property
    def rows(self) -> dict[str, float]:
        """Seconds of each stage, and those of the loop's own steps and waits, by name."""
        several = len(self.copy_s) > 1
        copies = {f"copy {k}" if several else "copy": s for k, s in enumerate(self.copy_s)}
        held = {"held": self.held_s} if self.held_s else {}
        own = {"step": self.step_s, "wait": self.first_wait_s + self.wait_s}
        elsewhere = () if self.is_remote else ("store", "transfer", "landing")
        stages = {name: s for name, s in self.stages.items() if name not in elsewhere}
        return {**stages, **copies, **held, **own}

    @property
    def notes(self) -> list[str]:
        """What is to be known of the numbers, a sentence each."""
        if not self.clock_errors:
            return []
        named = [f"{host} within {each * 1e3:.2g} ms" for host, each in self.clock_errors.items()]
        return [f"Clocks of other machines: {', '.join(named)}."]


def cached_share(now: dict[str, int] | None, before: dict[str, int] | None) -> float | None:
    """Return the share of samples that a cache had between two counts; None: there is none."""
    if now is None:
        return None
    hits, misses = (now[name] - (before or {}).get(name, 0) for name in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses > 0 else 0.0


def with_store(stages: dict[str, float], stored_s: float) -> dict[str, float]:
    """Return the stages with that of the object store before `transfer`, of which it is a part."""
    made: dict[str, float] = {}
    for name, seconds in stages.items():
        if name == "transfer":
            made["store"] = min(stored_s, seconds)
            seconds -= made["store"]
        made[name] = seconds
    return made
