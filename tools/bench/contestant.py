"""The process of one contestant on one work: opens its loader, then waits for commands.

Started by `child` as ``python -m tools.bench.contestant NAME WORK``, it reads JSON commands from
its input, one on a line, answers each with one JSON line, and is blocked in between. It owns the
loader it opened, and ends with its input.
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from tools.bench.decode import DecodeAlone
from tools.bench.floor import Layout, make_batch
from tools.bench.loaders import CONTESTANTS, DECODE, PREFETCH, WORKERS, Contestant
from tools.bench.meter import run_epoch, tree_pss_mb
from tools.bench.touch import touching_cost
from tools.bench.works import WORKS, MapDataset, Work

IN_FLIGHT = WORKERS * PREFETCH
MAKINGS = 3
LONGEST = 50_000


def epoch_length(work: Work, us: float, seconds: float) -> int:
    """Return how many batches of `us` microseconds fill `seconds`, within the work's limits."""
    return min(max(int(seconds * 1e6 / us), work.shortest), LONGEST)


def making_cost(dataset: MapDataset, batch_size: int) -> float:
    """Return the microseconds this process alone takes to make one batch, in warm memory."""
    layout = Layout(dataset[0], batch_size)
    rows = layout.rows([np.zeros(shape, dtype) for shape, dtype, _ in layout.fields])
    times: list[float] = []
    for number in range(MAKINGS + 1):
        start = time.perf_counter_ns()
        make_batch(dataset, layout, number * batch_size, rows)
        times.append((time.perf_counter_ns() - start) / 1e3)
    # The first found the memory cold.
    return statistics.median(times[1:])


class Run(Protocol):
    """Something opened that is measured turn after turn."""

    facts: Mapping[str, Any]

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Measure once and return the figures."""

    def close(self) -> None:
        """End what was opened."""


class LoaderRun:
    """A loader on a work: what opening it cost, then one epoch for each turn."""

    def __init__(self, contestant: Contestant, work: Work, seconds: float, fresh: int) -> None:
        self.contestant = contestant
        view = contestant.view
        dataset = work.dataset(work.calibration * work.batch_size)
        base_mb = tree_pss_mb()
        first, speeds = [], []
        for _ in range(fresh):
            start = time.perf_counter_ns()
            opened = contestant.open(dataset, work)
            opening_us = (time.perf_counter_ns() - start) / 1e3
            epoch = run_epoch(opened.batches, work.calibration, IN_FLIGHT, view, True)
            opened.close()
            # Some start their workers when made, others when first iterated.
            first.append(opening_us + epoch.first_us)
            speeds.append(epoch.us)
        self.batches = epoch_length(work, min(speeds), seconds)
        self.batch_size = work.batch_size
        self.dataset = work.dataset(self.batches * work.batch_size)
        self.opened = contestant.open(self.dataset, work)
        run_epoch(self.opened.batches, self.batches, IN_FLIGHT, view, True)
        iterator = iter(self.opened.batches)
        batch = next(iterator)
        touch_us, touch_cpu_us = touching_cost(batch, view, contestant.clone, seconds / 4)
        for batch in iterator:  # noqa: B007 - a loader is left at the end of an epoch
            pass
        self.facts: Mapping[str, Any] = {
            "first_fresh_us": statistics.median(first),
            "base_mb": base_mb,
            "touch_us": touch_us,
            "touch_cpu_us": touch_cpu_us,
            "batches": self.batches,
        }

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Run one epoch, and make a few batches here to compare its first batch with."""
        view = self.contestant.view
        epoch = run_epoch(self.opened.batches, self.batches, IN_FLIGHT, view, is_touching)
        making_us = making_cost(self.dataset, self.batch_size) if is_touching else 0.0
        return {**epoch.as_json(), "making_us": making_us}

    def close(self) -> None:
        """End the loader."""
        self.opened.close()


class DecodeRun:
    """Decoding alone on a work: the same commands, with a wall time and nothing else."""

    def __init__(self, work: Work, seconds: float) -> None:
        dataset = work.dataset(work.calibration * work.batch_size)
        self.decode = DecodeAlone(dataset, work.batch_size, WORKERS)
        us = min(self.decode.run(work.calibration) for _ in range(2))
        # An even number, so that both processes have the same to do.
        self.batches = epoch_length(work, us, seconds) // WORKERS * WORKERS
        self.facts: Mapping[str, Any] = {"batches": self.batches}

    def turn(self, is_touching: bool) -> dict[str, float]:
        """Decode one epoch; there is nothing to touch."""
        del is_touching
        return {"us": self.decode.run(self.batches), "batches": self.batches}

    def close(self) -> None:
        """End the two processes."""
        self.decode.close()


def take_replies() -> int:
    """Keep the replies' channel to ourselves, and let all else that prints go to stderr."""
    replies = os.dup(1)
    os.dup2(2, 1)
    return replies


def serve(open_run: Callable[[float, int], Run], replies: int) -> None:
    """Answer commands until the input ends.

    Args:
        open_run: Opens what is measured, given the length of a turn in seconds and the number of
            fresh loaders to time.
        replies: Descriptor the answers go to.
    """

    def answer(**reply: Any) -> None:
        os.write(replies, (json.dumps(reply) + "\n").encode())

    answer(pid=os.getpid())
    run: Run | None = None
    try:
        for line in sys.stdin:
            command = json.loads(line)
            if command["do"] == "open":
                run = open_run(command["seconds"], command["fresh"])
                answer(**run.facts)
            elif command["do"] == "turn" and run is not None:
                answer(**run.turn(command["touch"]))
            else:
                raise ValueError(f"unknown command, or too early: {line!r}")
    finally:
        if run is not None:
            run.close()


def main() -> None:
    """Serve the contestant and the work that the command line names."""
    name, work = sys.argv[1], WORKS[sys.argv[2]]
    replies = take_replies()
    if name == DECODE:
        serve(lambda seconds, _: DecodeRun(work, seconds), replies)
        return
    contestant = CONTESTANTS[name]
    # So that the memory before opening holds what an import brings.
    for module in contestant.needs:
        import_module(module)
    serve(lambda seconds, fresh: LoaderRun(contestant, work, seconds, fresh), replies)


if __name__ == "__main__":
    main()
