"""The input of a simulation: the measured latencies, and the setting.

Imports the standard library. Plain values; `measured.json` beside this file has those of one
machine, and says which.
"""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

__all__ = ["MEASURED", "Measured", "Setting"]

MEASURED = Path(__file__).with_name("measured.json")
GBIT = 1e9 / 8


@dataclasses.dataclass(frozen=True)
class Measured:
    """The numbers that `python -m tools.cluster_sim --measure` found.

    Attributes:
        machine: which, and when.
        call_s: from a call of an actor to its small result, both ways.
        wake_s: of the lander for each time that it looks at its lines.
        line_s: of it for each line that it looks at then.
        send_s: of the lander for each call, its result included.
        batch_s: of the lander for each batch, without its bytes.
        landing_rate: bytes per second of the copy into the trainer's arena.
        node_rate: bytes per second between two stores, here over one machine's loopback.
        worker_s: of an actor for each call, without its batches.
        start_s: from the request for an actor till it runs, alone.
        node_start_s: of one machine for each actor, many at once.
        head_start_s: of the processor of Ray's head service for each actor.
        death_s: from the end of an actor till the lander knows.
    """

    machine: str
    call_s: float
    wake_s: float
    line_s: float
    send_s: float
    batch_s: float
    landing_rate: float
    node_rate: float
    worker_s: float
    start_s: float
    node_start_s: float
    head_start_s: float
    death_s: float

    @classmethod
    def load(cls, path: Path = MEASURED) -> Measured:
        """Return what a file says."""
        return cls(**json.loads(path.read_text()))

    def save(self, path: Path = MEASURED) -> None:
        """Write it to a file."""
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n")


@dataclasses.dataclass(frozen=True)
class Setting:
    """One simulation.

    Attributes:
        trainers, workers: how many, in all.
        seconds: that are simulated; the first third is left out of the figures.
        step_s: of a trainer between two batches.
        work_s: of a worker for one batch, the mean.
        nbytes: of a batch.
        spread: of the times of batches: half of it less or more, evenly.
        stragglers: the part of the workers that is `slower` times as slow.
        slower: see there.
        failure_s: seconds between two failures; 0: none.
        of_nodes: the part of the failures that takes a whole node.
        is_pool: all trainers share all workers; else each has as many of its own.
        is_warm: the first workers run at the beginning; else they start then.
        epoch_batches: of an epoch, at whose end a trainer waits; 0: more than come.
        prefetch_factor, in_order, worker_retries: of the loader.
        max_in_flight_bytes: of `reader.Ray`.
        trainers_per_node, workers_per_node: what a machine has.
        homes_work: workers are on the machines of trainers, too.
        network: bytes per second of a machine, each way.
        store_nbytes: of a machine; what does not fit waits.
        seed: of what is drawn.
    """

    trainers: int = 100
    workers: int = 2000
    seconds: float = 30.0
    step_s: float = 0.1
    work_s: float = 1.2
    nbytes: int = 4_800_000
    spread: float = 0.4
    stragglers: float = 0.01
    slower: float = 10.0
    failure_s: float = 1.0
    of_nodes: float = 0.05
    is_pool: bool = False
    is_warm: bool = True
    epoch_batches: int = 0
    prefetch_factor: int = 2
    in_order: bool = True
    worker_retries: int = 10
    max_in_flight_bytes: int = 256 << 20
    trainers_per_node: int = 8
    workers_per_node: int = 16
    homes_work: bool = False
    network: float = 10 * GBIT
    store_nbytes: int = 30 << 30
    seed: int = 0

    def changed(self, **values: Any) -> Setting:
        """Return it with other values."""
        return dataclasses.replace(self, **values)

    @property
    def warm_s(self) -> float:
        """Seconds at the beginning that are left out of the figures."""
        return self.seconds / 3
