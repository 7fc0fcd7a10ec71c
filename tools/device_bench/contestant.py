"""The process of one contestant: runs its steps, and prints their times as JSON.

Started by the program as ``python -m tools.device_bench.contestant NAME COPY_MS STEP_MS BATCHES``,
with the simulated accelerator built.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from tools.device_bench.steps import PaddleSteps, TorchSteps, is_shared
from tools.device_bench.works import CONTESTANTS, Work

WARM = 20


def main() -> None:
    """Measure; see above."""
    name, *numbers = sys.argv[1:]
    copy_ms, step_ms, batches = map(int, numbers)
    contestant = next(each for each in CONTESTANTS if each.name == name)
    work = Work(copy_ms, step_ms)
    steps: Any = (TorchSteps if contestant.framework == "torch" else PaddleSteps)(work)
    resident = steps.resident()
    alone = run(steps, [resident] * (batches + WARM))
    sim = steps.sim
    loader = steps.open(contestant.is_ours, batches + WARM)
    staged, copies = sim.counts().get("staged"), sim.counts().get("copies")
    found = run(steps, loader)
    figures = {
        "wait_us": found["wait_us"] - alone["wait_us"],
        "step_us": alone["step_us"],
        "cpu_us": found["cpu_us"] - alone["cpu_us"],
    }
    if staged is not None and copies is not None:
        counts = sim.counts()
        figures["staged"] = (counts["staged"] - staged) / (batches + WARM)
        copied = not is_shared(counts["last_from"])
        figures["host_copies"] = figures["staged"] + copied
    if contestant.is_ours:
        figures["late"] = loader.stats()["devices"]["late_copies"]
    print(json.dumps(figures))


def run(steps: Any, batches: Any) -> dict[str, float]:
    """Return microseconds for each step: in all, beside its work, and of the trainer's CPU."""
    count, cpu_s, began, worked = 0, 0.0, 0.0, 0
    for number, batch in enumerate(batches):
        if number == WARM:
            steps.finish()
            count, worked = 0, steps.sim.counts().get("small_us", 0)
            cpu_s, began = time.thread_time(), time.perf_counter()
        steps.step(steps.take(batch))
        count += 1
    steps.finish()
    took, used = time.perf_counter() - began, time.thread_time() - cpu_s
    worked = steps.sim.counts().get("small_us", 0) - worked  # a real device keeps time itself
    return {
        "step_us": took / count * 1e6,
        "wait_us": (took * 1e6 - worked) / count,
        "cpu_us": used / count * 1e6,
    }


if __name__ == "__main__":
    main()
