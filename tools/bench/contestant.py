"""The process of one contestant of one row: opens its loader, then takes turns when told to.

Started by `child` as ``python -m tools.bench.contestant TABLE ROW NAME``, in the folder whose
`reader` is measured. It reads JSON commands from its input, one on a line, answers each with one
JSON line, and is blocked in between. It owns the loader it opened, and ends with its input.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

from tools.bench.floor import DecodeAlone
from tools.bench.loaders import Opened, Positions, Program, open_loader
from tools.bench.meter import descendants, run_epoch, time_first
from tools.bench.rows import OURS, TABLES, Contestant, Row
from tools.bench.works import MapDataset, resized

SHORT = 4  # batches of the epochs that are opened for their first batch
LATER_S = 0.05  # how long to repeat such an epoch
LONGEST = 50_000
TAKEN = 3  # batches of an epoch before it is left
ENDLESS = 100_000  # batches of an epoch that is never read to its end


def epoch_length(shortest: int, us: float, seconds: float) -> int:
    """Return how many batches of `us` microseconds fill `seconds`, within limits."""
    return min(max(int(seconds * 1e6 / us), shortest), LONGEST)


class Run(Protocol):
    """Something opened that is measured turn after turn."""

    def turn(self) -> dict[str, float]:
        """Measure once and return the figures of a batch."""

    def first(self) -> dict[str, float]:
        """Measure first batches once and return their figures, if there are any."""

    def close(self) -> None:
        """End what was opened."""


class EpochRun:
    """A turn is one epoch of a loader that persists; first batches are those of a new loader."""

    def __init__(self, row: Row, contestant: Contestant, seconds: float) -> None:
        work = row.work
        opener = Program(row).open if row.kind == "feed" else open_loader
        self.open: Callable[[MapDataset], Opened] = lambda data: opener(row, contestant, data)
        self.in_flight = row.in_flight
        dataset = work.dataset(work.shortest * work.batch_size)
        self.short = resized(dataset, SHORT * work.batch_size)
        opened = self.open(dataset)
        # The first epoch finds everything cold.
        us = min(run_epoch(opened.batches, work.shortest, self.in_flight)["us"] for _ in range(2))
        opened.close()
        self.batches = epoch_length(work.shortest, us, seconds)
        self.opened = self.open(resized(dataset, self.batches * work.batch_size))
        run_epoch(self.opened.batches, self.batches, self.in_flight)

    def turn(self) -> dict[str, float]:
        """Run one epoch."""
        return run_epoch(self.opened.batches, self.batches, self.in_flight)

    def first(self) -> dict[str, float]:
        """Open a new loader and run a few short epochs.

        Returns:
            In microseconds: ``fresh_us`` from before the loader is made to its first batch;
            ``first_us`` from ``iter()`` to the first batch of a later epoch.
        """
        start = time.perf_counter_ns()
        opened = self.open(self.short)
        opening_us = (time.perf_counter_ns() - start) / 1e3
        # Some start their workers when made, others when first iterated.
        fresh_us = opening_us + time_first(opened.batches)
        later: list[float] = []
        start = time.perf_counter_ns()
        while not later or time.perf_counter_ns() - start < LATER_S * 1e9:
            later.append(time_first(opened.batches))
        opened.close()
        return {"fresh_us": fresh_us, "first_us": statistics.median(later)}

    def close(self) -> None:
        """End the loader."""
        self.opened.close()


class OtherRun:
    """A run of another kind than epochs: it has no first batches besides."""

    def first(self) -> dict[str, float]:
        """Measure nothing."""
        return {}

    def close(self) -> None:
        """End nothing: what was measured has ended with its turn."""


class DecodeRun(OtherRun):
    """A turn is the decoding of one epoch: a wall time and nothing else."""

    def __init__(self, row: Row, seconds: float) -> None:
        work = row.work
        self.decode = DecodeAlone(work.dataset(1), work.batch_size, row.options["num_workers"])
        self.batches = work.shortest
        self.batches = epoch_length(work.shortest, self.turn()["us"], seconds) // 2 * 2

    def turn(self) -> dict[str, float]:
        """Decode one epoch."""
        start = time.perf_counter_ns()
        self.decode.run(self.batches)
        return {"us": (time.perf_counter_ns() - start) / self.batches / 1e3}

    def close(self) -> None:
        """End the two processes."""
        self.decode.close()


class BreakRun(OtherRun):
    """A turn leaves an epoch early and begins the next."""

    def __init__(self, row: Row, contestant: Contestant) -> None:
        self.opened = open_loader(row, contestant, row.work.dataset(ENDLESS * row.work.batch_size))
        self.iterator: Iterator[Any] | None = iter(self.opened.batches)
        self.batch = next(self.iterator)
        self.running = len(descendants(os.getpid()))

    def turn(self) -> dict[str, float]:
        """Take some batches, break, and wait for the first batch of another epoch.

        What the break of the turn before left running is counted first: it had a round to end.
        """
        running = len(descendants(os.getpid()))
        left, self.running = running - self.running, running
        if self.iterator is not None:
            for _ in range(TAKEN):
                self.batch = next(self.iterator)
        start = time.perf_counter_ns()
        self.iterator = None
        self.iterator = iter(self.opened.batches)
        self.batch = next(self.iterator)
        return {"us": (time.perf_counter_ns() - start) / 1e3, "left": left}

    def close(self) -> None:
        """Leave the last epoch too."""
        self.iterator = self.batch = None
        self.opened.close()


class SpawnRun(OtherRun):
    """A turn is a fresh program: its time from ``iter()`` to the first batch."""

    def __init__(self, row: Row, contestant: Contestant) -> None:
        count = str(row.options["num_workers"])
        self.command = [sys.executable, "-m", "tools.bench.spawned", contestant.face, count]

    def turn(self) -> dict[str, float]:
        """Run the program, in the folder of this one."""
        done = subprocess.run(self.command, check=True, stdout=subprocess.PIPE, text=True)
        return {"us": float(done.stdout)}


class ResumeRun(OtherRun):
    """A turn makes a loader, loads a state at 90 % of an epoch, and takes the next batch."""

    def __init__(self, row: Row, contestant: Contestant) -> None:
        self.row, self.contestant = row, contestant
        loader = self._loader()
        batches = iter(loader)
        next(batches)
        at = len(loader) * 9 // 10
        if row.is_public or contestant.name != OURS:
            for _ in range(at - 1):
                next(batches)
            self.state = loader.state_dict()
            return
        # What the loop would have saved there, in this version: reading so far would take minutes.
        self.state = loader.state_dict()
        engine = self.state["_snapshot"]["_main_snapshot"]["engine"]
        engine.update(batches=at, samples=at * row.work.batch_size)
        self.state["_snapshot"]["_snapshot_step"] = at

    def _loader(self) -> Any:
        same: dict[str, Any] = {"batch_size": self.row.work.batch_size, "shuffle": True}
        if self.contestant.name == OURS:
            same["seed"] = 1
        else:
            same["generator"] = import_module("torch").Generator().manual_seed(1)
        stateful = import_module(self.contestant.face).StatefulDataLoader
        return stateful(Positions(self.contestant.samples), **same)

    def turn(self) -> dict[str, float]:
        """Resume."""
        loader = self._loader()
        start = time.perf_counter_ns()
        loader.load_state_dict(self.state)
        next(iter(loader))
        return {"us": (time.perf_counter_ns() - start) / 1e3}


def open_run(row: Row, contestant: Contestant, seconds: float) -> Run:
    """Open what the row measures of the contestant, for turns of about `seconds`."""
    if contestant.name == "decode":
        return DecodeRun(row, seconds)
    if row.kind == "break":
        return BreakRun(row, contestant)
    if row.kind == "spawn":
        return SpawnRun(row, contestant)
    if row.kind == "resume":
        return ResumeRun(row, contestant)
    return EpochRun(row, contestant, seconds)


def main() -> None:
    """Answer commands until the input ends."""
    table, row_name, name = sys.argv[1:]
    row = TABLES[table][row_name]
    contestant = row.contestant(name)
    # The answers' channel is kept for them; all else that prints goes to stderr.
    replies = os.dup(1)
    os.dup2(2, 1)

    def answer(**reply: Any) -> None:
        os.write(replies, (json.dumps(reply) + "\n").encode())

    if contestant.face:
        measured = import_module(contestant.face.partition(".")[0])
        home = Path(measured.__file__ or "").resolve().parents[1]
        if name == OURS and home != Path.cwd().resolve():
            raise RuntimeError(f"{Path.cwd()} was to be measured, but reader came from {home}")
    answer(ready=True)
    run: Run | None = None
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "open":
                run = open_run(row, contestant, command["seconds"])
                answer(opened=True)
            elif command["do"] == "turn" and run is not None:
                answer(**run.turn())
            elif command["do"] == "first" and run is not None:
                answer(**run.first())
            else:
                raise ValueError(f"unknown command, or too early: {line!r}")
    finally:
        if run is not None:
            run.close()


if __name__ == "__main__":
    main()
