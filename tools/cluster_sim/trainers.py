"""Trainers on the virtual clock, and the result of a simulation.

Imports the product's loader, which takes its pools from the table of backends, and the pool that
stands in there.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import logging
import threading
from collections.abc import Iterator
from typing import Any

from reader import DataLoader
from reader.engine.backends import pool_cache
from tools.cluster_sim.clock import Clock, Program
from tools.cluster_sim.cluster import Cluster, Node
from tools.cluster_sim.model import Measured, Setting
from tools.cluster_sim.pool import SimulatedPool

__all__ = ["Found", "simulate"]

_MOST = 30_000  # batches of an epoch
_BATCH = 2  # samples of a batch: they are numbers here, the setting says what one weighs


class _Numbers:
    """Samples that are their own indices."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> int:
        return index


@dataclasses.dataclass
class Found:
    """The result of a simulation; seconds and shares are of the time after the beginning.

    Attributes:
        waiting: for each trainer, the part of its time in which it waited.
        batches: for each trainer, how many came, in all the time.
        busy: for each worker, the part of the time in which it made batches.
        lander: for each trainer, the part of a core that the thread of its lander took.
        landed_nbytes: for each trainer, the most bytes that were landed and not handed over.
        home_store, host_store: most bytes in the store of a machine of trainers, and of workers.
        home_link, host_link: the part of the time in which the busiest such link carried.
        made, made_twice, delivered: batches; those made twice were so since a worker ended.
        failures, nodes_lost, starts: how many.
        head_s: of the processor of Ray's head service for starts.
        longest_start_s: that an actor took to start.
        order: for each trainer, a number that stands for what came, in its order.
        events: that were simulated.
    """

    waiting: list[float]
    batches: list[int]
    busy: list[float]
    lander: list[float]
    landed_nbytes: list[int]
    home_store: int
    host_store: int
    home_link: float
    host_link: float
    made: int
    made_twice: int
    delivered: int
    failures: int
    nodes_lost: int
    starts: int
    head_s: float
    longest_start_s: float
    order: list[int]
    events: int


class _Trainer:
    """A loop over epochs of a loader, which checks each batch against a loader without workers."""

    def __init__(self, number: int, setting: Setting, workers: int) -> None:
        self.number, self._setting, self._workers = number, setting, workers
        self.wait_s, self.batches, self.order = 0.0, 0, 0
        self.pool: SimulatedPool | None = None
        self.asked: float | None = None  # when, for the batch that it waits for

    def waited(self, now: float) -> float:
        """Return how long it has waited, in the time that counts; the wait under way included."""
        if self.asked is None:
            return self.wait_s
        return self.wait_s + max(0.0, now - max(self.asked, self._setting.warm_s))

    def run(self, program: Program) -> None:
        setting, clock = self._setting, program.clock
        count = setting.epoch_batches
        if not count:
            count = min(_MOST, int(1.1 * setting.seconds / max(setting.step_s, 1e-3)) + 100)
        options: dict[str, Any] = {
            "batch_size": _BATCH,
            "shuffle": True,
            "seed": setting.seed + self.number,
        }
        dataset = _Numbers(_BATCH * count)
        loader = DataLoader(
            dataset,
            num_workers=self._workers,
            prefetch_factor=setting.prefetch_factor,
            in_order=setting.in_order,
            worker_retries=setting.worker_retries,
            persistent_workers=True,
            **options,
        )
        expected = DataLoader(dataset, **options)
        while True:
            left = [list(map(int, batch)) for batch in expected]
            self.asked = clock.now
            for batch in loader:
                self.wait_s, self.asked = self.waited(clock.now), None
                self._check(batch, left)
                self.batches += 1
                self.order = hash((self.order, *batch))
                program.sleep(setting.step_s)
                self.asked = clock.now
            if left:
                raise AssertionError(f"trainer {self.number}: {len(left)} batches did not come")

    def _check(self, batch: list[int], left: list[list[int]]) -> None:
        """Take a batch from those that are to come; in order, it is the first of them."""
        if not left or (left[0] != batch and (self._setting.in_order or batch not in left)):
            raise AssertionError(
                f"trainer {self.number}: {batch} came where {left[:1]} was to come"
            )
        left.remove(batch)


def simulate(measured: Measured, setting: Setting) -> Found:
    """Simulate trainers for some seconds.

    Raises:
        AssertionError: a batch came twice, or out of its place.
    """
    clock = Clock()
    cluster = Cluster(clock, measured, setting)
    share = setting.workers if setting.is_pool else setting.workers // setting.trainers
    trainers = [_Trainer(number, setting, share) for number in range(setting.trainers)]
    here = threading.local()

    def begin(trainer: _Trainer, program: Program) -> None:
        first = 0 if setting.is_pool else trainer.number * share
        # each has the workers in another order: else all would ask the same one first
        numbers = [
            (first + n + trainer.number * setting.workers // setting.trainers) % setting.workers
            if setting.is_pool
            else first + n
            for n in range(share)
        ]
        here.found = program, cluster, cluster.home_of(trainer.number), numbers
        here.trainer = trainer
        trainer.run(program)

    class Pool(SimulatedPool):
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            here.trainer.pool = self

        @staticmethod
        def here() -> tuple[Program, Cluster, Node, list[int]]:
            found: tuple[Program, Cluster, Node, list[int]] = here.found
            return found

    with _in_place_of_processes(Pool):
        for trainer in trainers:
            clock.start(functools.partial(begin, trainer))
        clock.run(setting.seconds)
    return _found(clock, cluster, setting, trainers)


@contextlib.contextmanager
def _in_place_of_processes(pool: Any) -> Iterator[None]:
    """Let loaders take their pools from another class, and silence reports of deaths."""
    kept, log = pool_cache.backend_of, logging.getLogger("reader")
    level = log.level
    pool_cache.backend_of = lambda worker_type: pool  # noqa: ARG005
    log.setLevel(logging.ERROR)
    try:
        yield
    finally:
        pool_cache.backend_of = kept
        log.setLevel(level)


def _found(clock: Clock, cluster: Cluster, setting: Setting, trainers: list[_Trainer]) -> Found:
    seconds = setting.seconds - setting.warm_s
    pools = [trainer.pool for trainer in trainers if trainer.pool is not None]
    homes, hosts = cluster.homes, cluster.hosts
    return Found(
        waiting=[trainer.waited(clock.now) / seconds for trainer in trainers],
        batches=[trainer.batches for trainer in trainers],
        busy=[busy / seconds for busy in cluster.busy],
        lander=[pool.lander.used_s / seconds for pool in pools],
        landed_nbytes=[pool.feeder.most_nbytes for pool in pools],
        home_store=max(node.most_stored for node in homes),
        host_store=max(node.most_stored for node in hosts),
        home_link=max(node.got_s for node in homes) / seconds,
        host_link=max(node.sent_s for node in hosts) / seconds,
        made=cluster.made,
        made_twice=sum(pool.lander.dropped for pool in pools),
        delivered=sum(trainer.batches for trainer in trainers),
        failures=cluster.failures,
        nodes_lost=cluster.nodes_lost,
        starts=cluster.starts,
        head_s=cluster.head_s,
        longest_start_s=cluster.longest_start_s,
        order=[trainer.order for trainer in trainers],
        events=clock.events,
    )
