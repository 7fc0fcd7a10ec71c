"""Kill nodes and actors at random times, and see that no batch is lost, doubled, moved or changed.

Run as ``python -m tools.cluster_kills --nodes 20 --actors 50`` in the environment of
`make cluster`. Each run has three nodes on this machine and real processes; what the loader gives
is compared with what workers of this process give, and after `close` nothing may be left: no actor,
object or process. It prints a table, and exits 1 where anything differs.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import faulthandler
import hashlib
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from reader import DataLoader, Ray, sample_rng
from tools.local_cluster import LocalCluster, wait_until

__all__ = ["Drawn", "Due", "Kills", "Run", "digests", "main"]

_BATCH = 4
_WORKERS = 6
_LEFT_S = 20.0  # within which the leftovers must be gone
_LATE_S = 120.0  # a batch that takes longer hangs
_EARLY = 60  # the kill comes before the first batch as often as this many batches would suggest


class Drawn:
    """Samples that are drawn at random, each of its index alone, and take a while.

    Args:
        count: of samples.
        seconds: that each takes.
        size: of the array of each.
    """

    def __init__(self, count: int, seconds: float = 0.005, size: int = 300) -> None:
        self.count, self.seconds, self.size = count, seconds, size

    def __len__(self) -> int:
        """The number of samples."""
        return self.count

    def __getitem__(self, index: int) -> tuple[int, np.ndarray]:
        """Return an index, and its random draws."""
        threading.Event().wait(self.seconds)
        return index, sample_rng(index).normal(size=self.size)


@dataclasses.dataclass
class Run:
    """The result of one run.

    Attributes:
        kills: processes of workers that were ended, by their node or by themselves.
        seconds: that the epoch took.
        wrong: the faults found; none: all was right.
    """

    kills: int = 0
    seconds: float = 0.0
    wrong: list[str] = dataclasses.field(default_factory=list)


class Due(NamedTuple):
    """When a kill is due: a while after a batch has come."""

    batch: int
    event: threading.Event


def digests(batches: Any, due: Due | None = None) -> tuple[list[int], list[str]]:
    """Return the indices that batches have, in their order, and a digest of each batch."""
    indices: list[int] = []
    found: list[str] = []
    for index, values in batches:
        if due is not None and len(found) == due.batch:
            due.event.set()
        indices += index.tolist()
        found.append(hashlib.sha256(index.tobytes() + values.tobytes()).hexdigest())
    return indices, found


class Kills:
    """Runs of one loader under kills.

    Args:
        cluster: where its workers are.
        samples: of the dataset.
    """

    def __init__(self, cluster: LocalCluster, samples: int = 1200) -> None:
        self._cluster = cluster
        self._dataset = Drawn(samples)
        self._options: dict[str, Any] = {
            "batch_size": _BATCH,
            "shuffle": True,
            "seed": 11,
            "worker_retries": 10,
            "timeout": _LATE_S,
        }
        self.want = digests(DataLoader(self._dataset, num_workers=4, **self._options))

    def run_actor(self, chance: random.Random) -> Run:
        """Kill one actor at a random time."""
        return self._run(chance, lambda: self._kill_actor(chance))

    def run_node(self, chance: random.Random) -> Run:
        """Add a node, and kill it at a random time."""
        node = self._cluster.add_node()
        killed: list[int] = []

        def kill() -> int:
            killed[:] = self._cluster.actors_of(node)
            self._cluster.kill_node(node)
            return len(killed)

        try:
            return self._run(chance, kill)
        finally:
            if node in self._cluster.others:
                self._cluster.kill_node(node)

    def _kill_actor(self, chance: random.Random) -> int:
        actors = self._cluster.actors()
        if not actors:
            return 0
        self._cluster.kill_actor(chance.choice(actors))
        return 1

    def _run(self, chance: random.Random, kill: Callable[[], int]) -> Run:
        run = Run()
        backend = Ray(address=self._cluster.address, resources={"CPU": 0.5})
        due = Due(chance.randrange(-_EARLY, len(self.want[1])), threading.Event())
        after_s = chance.uniform(0.0, 0.05)

        def act() -> None:
            if due.batch < 0:  # while the workers start
                wait_until(lambda: bool(self._cluster.actors()), _LATE_S)
            else:
                due.event.wait(_LATE_S)
            threading.Event().wait(after_s)
            run.kills = kill()

        begun = time.monotonic()
        killer = threading.Thread(target=act)
        loader = DataLoader(self._dataset, num_workers=_WORKERS, backend=backend, **self._options)
        lander: list[int] = []
        try:
            killer.start()
            batches = iter(loader)
            lander = [each.pid for each in loader.workers() if each.pid is not None][:1]
            indices, found = digests(batches, due)
        except Exception as error:
            run.wrong.append(f"{type(error).__name__}: {error}")
        else:
            self._compare(run, indices, found)
        finally:
            run.seconds = time.monotonic() - begun
            due.event.set()
            killer.join()
            loader.close()
        self._look_for_rest(run, lander)
        return run

    def _compare(self, run: Run, indices: list[int], found: list[str]) -> None:
        want_indices, want = self.want
        if sorted(indices) != sorted(want_indices):
            run.wrong.append(f"the union is another: {len(indices)} samples came")
        elif indices != want_indices:
            run.wrong.append("the order is another")
        elif found != want:
            n = next(n for n, (one, other) in enumerate(zip(found, want)) if one != other)
            run.wrong.append(f"batch {n} has other bytes")

    def _look_for_rest(self, run: Run, lander: list[int]) -> None:
        """Note actors, objects and processes that are left after the loader was closed."""
        if not wait_until(lambda: not self._cluster.actors(), _LEFT_S):
            run.wrong.append(f"processes of workers are left: {self._cluster.actors()}")
        if any(_is_there(pid) for pid in lander):
            run.wrong.append(f"the lander is left: {lander}")
        if not wait_until(lambda: not _alive(), _LEFT_S):
            run.wrong.append(f"actors are left: {_alive()}")
        if not wait_until(lambda: _stored(self._cluster) <= 0, _LEFT_S):
            run.wrong.append(f"{_stored(self._cluster):.0f} bytes of objects are left")


def _is_there(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, 0)
        return True
    return False


def _alive() -> list[str]:
    """Return the actors that the cluster has and that did not end."""
    from ray._private import state

    actors = state.actors().values()
    return [str(each["ActorID"]) for each in actors if each["State"] != "DEAD"]


def _stored(cluster: LocalCluster) -> float:
    """Return how many bytes of objects the stores of the living nodes have."""
    import ray

    nodes = [node for node in ray.nodes() if node["Alive"]]
    free: float = ray.available_resources().get("object_store_memory", 0.0)
    return len(nodes) * cluster.store_nbytes - free


def _row(name: str, runs: list[Run]) -> str:
    times = sorted(run.seconds for run in runs)
    hit = sum(run.kills > 0 for run in runs)
    ended = sum(run.kills for run in runs)
    wrong = sum(bool(run.wrong) for run in runs)
    return (
        f"| {name} | {len(runs)} | {hit} | {ended} | {times[len(times) // 2]:.1f} s"
        f" | {times[-1]:.1f} s | {wrong} |"
    )


def main(arguments: list[str] | None = None) -> int:
    """Run the kills; see above. Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=20, help="runs in which a node is killed")
    parser.add_argument("--actors", type=int, default=50, help="runs in which an actor is killed")
    parser.add_argument("--samples", type=int, default=1200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    faulthandler.enable()
    logging.getLogger("reader").setLevel(logging.ERROR)  # each death is told
    import ray

    found: dict[str, list[Run]] = {}
    with LocalCluster() as cluster:
        kills = Kills(cluster, options.samples)  # before Ray has threads: its workers are forked
        ray.init(address=cluster.address, log_to_driver=False, logging_level="ERROR")
        try:
            for name, count, run_one in (
                ("an actor", options.actors, kills.run_actor),
                ("a node", options.nodes, kills.run_node),
            ):
                for number in range(count):
                    run = run_one(random.Random(f"{options.seed} {name} {number}"))
                    found.setdefault(name, []).append(run)
                    for text in run.wrong:
                        print(f"{name}, run {number} of seed {options.seed}: {text}", flush=True)
        finally:
            ray.shutdown()
    print("| killed | runs | with workers on it | workers ended | median | longest | wrong |")
    print("|---|---|---|---|---|---|---|")
    for name, runs in found.items():
        print(_row(name, runs))
    return int(any(run.wrong for runs in found.values() for run in runs))


if __name__ == "__main__":
    sys.exit(main())
