"""The measurements of a profile, from which a verdict is made.

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
        index: in the dataset; None: none, as in a stream.
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
        seconds: from the first to the last step, by the wall clock.
        batches: delivered.
        first_wait_s: from the beginning until the first batch.
        wait_s: seconds in which the consumer waited for batches, without the first.
        stages: seconds of batches in each stage, by name: see `TimesLog.sums`.
        workers: how many; 0: the consumer makes its batches.
        uses_threads: whether workers are threads.
        busy_s: seconds in which workers made batches, summed.
        cpu_s: CPU seconds of workers; None: unknown.
        runnable_s: seconds in which workers were ready and had no core; None: unknown.
        cores: how many the program may use.
        idle_cores: mean number of idle cores; None: unknown.
        prefetch: batches that are made ahead, in all.
        slow_samples: the slowest samples, the slowest first.
        usual_sample_s: median over batches of the mean time of the samples besides the slowest; 0:
            unknown.
        slow_batches: in how many batches a sample took at least ten times `usual_sample_s`, and at
            least a tenth of the slowest sample.
        slow_s: seconds of those samples.
        transfer_wait_s: seconds in which no copy to a device could be issued.
        epochs: that began.
        epoch_wait_s: for the first batch of each epoch but the first; a part of `wait_s`.
        own_cpu_s: CPU seconds of the consumer's thread; None: unknown.
        own_runnable_s: seconds in which it was ready and had no core; None: unknown.
        threads_s: CPU seconds of other threads of the trainer's process, such as torch's for a
            step, without workers.
        stopped_s: seconds in which a cgroup was throttled because its CPU quota was used up.
        memory_stall_s: seconds in which a task waited for memory; None: unknown.
        memory_events: how often a memory limit was reached.
        major_faults: pages that trainer and workers waited for, of swap or files.
        user_share: share of user time in the CPU time of processes that make batches; the rest is
            kernel time, such as reading pages back; 1: unknown.
        worker_s: each worker's median seconds of a batch; 0: it made none.
        decoder: the decoder of images in the dataset's code, as far as seen; "": none.
        persists: whether workers stay between epochs.
        shares_workers: whether they make batches of others too: in a WorkerPool, or in a pool on a
            cluster.
        others_s: seconds in which workers with a task made batches of another loader.
        others_cpu_s: CPU seconds of workers for other loaders.
        held_s: seconds from delivery of a batch until its last view was gone; of batches where both
            times are known.
        copy_s: seconds from the issue of a copy to a device until it was seen to be done; by place.
        is_remote: whether workers are on a cluster: then `cores` and `idle_cores` are not theirs.
        room: how many workers fit into the cluster; None: unknown.
        bounded_s: seconds of workers in which their tasks were held back, because as many bytes as
            allowed were in flight.
        clock_errors: how far times of workers may be off, in seconds, by machine.
        cached: the share of samples found in the dataset's cache; None: there is none.
        keeps_files: see `ObservedOptions`.
        has_collate_fn: whether the program has its own collate function.
        in_order: whether batches come in the sampler's order.
        network_s: seconds in which workers waited for bytes of stores; None: they read none.
        network_nbytes: bytes that came from stores, for all who use the cache.
        stored_nbytes: bytes of stores that this loader's samples were made of.
        transfers: how many transfers were under way, in the mean.
        evicted_nbytes: bytes that went from the cache for others.
        cache_limit: how many bytes the cache keeps.
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
    network_s: float | None = None
    network_nbytes: int = 0
    stored_nbytes: int = 0
    transfers: float = 0.0
    evicted_nbytes: int = 0
    cache_limit: int = 0

    @property
    def step_s(self) -> float:
        """Seconds in which the consumer did not wait."""
        sampled = self.stages.get("draw", 0.0)
        return max(0.0, self.seconds - self.first_wait_s - self.wait_s - sampled)

    @property
    def summary(self) -> str:
        """The length of the loop, in words."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        return f"{self.batches} batches in {self.seconds:.2f} s, {workers}"

    @property
    def wait_share(self) -> float:
        """The share of the loop in which the consumer waited, first batch included."""
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
        if self.network_s is not None:
            held = {"network": self.network_s, **held}
        return {**stages, **copies, **held, **own}

    @property
    def notes(self) -> list[str]:
        """Remarks on the numbers, a sentence each."""
        if not self.clock_errors:
            return []
        named = [f"{host} within {each * 1e3:.2g} ms" for host, each in self.clock_errors.items()]
        return [f"Clocks of other machines: {', '.join(named)}."]


def cached_share(now: dict[str, int] | None, before: dict[str, int] | None) -> float | None:
    """Return the share of samples found in a cache between two counts; None: there is no cache."""
    if now is None:
        return None
    hits, misses = (now[name] - (before or {}).get(name, 0) for name in ("hits", "misses"))
    return hits / (hits + misses) if hits + misses > 0 else 0.0


def with_store(stages: dict[str, float], stored_s: float) -> dict[str, float]:
    """Return the stages with the object store's share of `transfer` as a stage before it."""
    made: dict[str, float] = {}
    for name, seconds in stages.items():
        if name == "transfer":
            made["store"] = min(stored_s, seconds)
            seconds -= made["store"]
        made[name] = seconds
    return made
