"""A soak on the simulated accelerator: random sizes, keeps, breaks and late copies; kills if asked.

    python -m tests.device.soak --batches 100000 [--kill] [--seed 0]

Imports torch in the program it starts. Prints one JSON: batches, wrong ones, waits of the host,
staged copies, faults, allocations and frees, kills, memory at the middle and the end.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import signal
import subprocess
import sys
import time
from typing import Any

import numpy as np

SIZE = 4
EPOCH = 400  # batches


class Samples:
    """Images of a size that each batch draws, full of their index."""

    def __len__(self) -> int:
        return EPOCH * SIZE

    def __getitem__(self, index: int) -> Any:
        nbytes = 500 + (index // SIZE * 7919) % 30000
        return np.full(nbytes, index % 251, np.uint8), index


def soak(batches: int, kills: bool, seed: int) -> dict[str, Any]:
    """Run it in this process."""
    from tests.device.accelerator import accelerator

    sim = accelerator()
    places = [sim.name(number) for number in range(4)]
    sim.set(delay_us=100, jitter_us=600)
    from reader import DataLoader

    chosen = random.Random(seed)
    found: dict[str, Any] = dict.fromkeys(
        "batches wrong waits most_held epochs breaks killed".split(), 0
    )
    memory: list[int] = []
    kept: list[tuple[int, Any]] = []
    next_kill = time.monotonic() + 0.5

    def check(upto: int) -> None:
        chosen.shuffle(kept)
        while len(kept) > upto:
            first, (image, label) = kept.pop()
            wanted = np.arange(first, first + SIZE)
            right = (label.cpu().numpy() == wanted).all()
            found["wrong"] += not (right and (wanted % 251 == image.cpu().numpy().T).all())

    options: dict[str, Any] = {"num_workers": 2, "persistent_workers": True, "framework": "torch"}
    with DataLoader(
        Samples(), batch_size=SIZE, places=places, worker_retries=100, **options
    ) as loader:
        while found["batches"] < batches:
            found["epochs"] += 1
            first, stop = 0, chosen.choice([EPOCH, EPOCH, EPOCH, chosen.randrange(EPOCH)])
            steps = iter(loader)
            while first < stop * SIZE:
                before = sim.counts()["host_waits"]
                group = next(steps)
                found["waits"] += sim.counts()["host_waits"] - before
                for batch in group:
                    kept.append((first, batch))
                    first += SIZE
                    found["batches"] += 1
                group = batch = None
                if chosen.random() < 0.1:
                    check(chosen.choice([0, 0, 5, 40]))
                arena: dict[str, int] = loader.stats()["arena"] or {}
                found["most_held"] = max(found["most_held"], arena.get("held_slots", 0))
                if kills and time.monotonic() > next_kill:
                    next_kill = time.monotonic() + chosen.uniform(0.1, 0.8)
                    os.kill(chosen.choice(loader.workers()).pid, signal.SIGKILL)
                    found["killed"] += 1
            found["breaks"] += stop < EPOCH
            check(0)
            memory.append(arena.get("owned_bytes", 0))
        found["devices"] = loader.stats()["devices"]
    steps = None
    gc.collect()
    sim.synchronize()
    found["memory"] = [memory[len(memory) // 2], memory[-1], max(memory)]
    return {**found, **sim.counts(), "fault texts": sim.faults()[:5]}


def main() -> int:
    """Start the program with the simulation built, or be it."""
    parser = argparse.ArgumentParser(prog="python -m tests.device.soak", description=__doc__)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--kill", action="store_true", help="kill workers at random")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    from tests.device.accelerator import ACCELERATOR
    from tests.device.build import library
    from tests.device.simdev import LIBRARY

    is_simulated = os.environ.get(ACCELERATOR, "simdev") == "simdev"
    if is_simulated and LIBRARY not in os.environ:
        command = [sys.executable, "-W", "ignore", "-m", "tests.device.soak", *sys.argv[1:]]
        environment = {**os.environ, LIBRARY: str(library("torch"))}
        return subprocess.run(command, check=False, env=environment).returncode
    found = soak(chosen.batches, chosen.kill, chosen.seed)
    print(json.dumps(found))
    is_right = not (found["wrong"] or found["waits"] or found.get("faults"))
    is_even = found["used"] == 0 and found.get("allocs") == found.get("frees")
    return 0 if is_right and is_even else 1


if __name__ == "__main__":
    sys.exit(main())
