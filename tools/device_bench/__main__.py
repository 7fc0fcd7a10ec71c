"""Measure how long steps on a device wait for their batches, beside PyTorch's and Paddle's loaders.

    python -m tools.device_bench [--accelerator simdev|cuda] [--rounds 3] [--json FILE]

Copies and steps have given lengths; on the simulated accelerator all loaders meet the same device.
Contestants take turns, each in a process of its own; medians of the rounds are shown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from tests.device.accelerator import ACCELERATOR
from tests.device.build import library
from tests.device.simdev import LIBRARY
from tools.device_bench.child import told_by
from tools.device_bench.works import CONTESTANTS, WORKS, Contestant, Work

Results = dict[str, dict[str, dict[str, float]]]  # figures by work and contestant


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tools.device_bench", description=__doc__)
    parser.add_argument("--accelerator", choices=("simdev", "cuda"), default="simdev")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batches", type=int, default=300)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    found = measure(chosen.accelerator, chosen.rounds, chosen.batches)
    print(table(found))
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1))
    return 0


def measure(accelerator: str, rounds: int, batches: int) -> Results:
    """Return the medians of all figures."""
    contestants = [c for c in CONTESTANTS if accelerator == "simdev" or c.framework == "torch"]
    all_of: dict[str, dict[str, list[dict[str, float]]]] = {}
    for _ in range(rounds):
        for work in WORKS:
            for contestant in contestants:
                figures = run(accelerator, contestant, work, batches)
                rows = all_of.setdefault(str(work), {})
                rows.setdefault(contestant.name, []).append(figures)
    return {
        work: {
            name: {key: statistics.median(each[key] for each in runs) for key in runs[0]}
            for name, runs in rows.items()
        }
        for work, rows in all_of.items()
    }


def run(accelerator: str, contestant: Contestant, work: Work, batches: int) -> dict[str, float]:
    """Return the figures of one contestant's process."""
    environment = {ACCELERATOR: accelerator, "GLOG_minloglevel": "2"}
    if accelerator == "simdev":
        environment[LIBRARY] = str(library(contestant.framework))
    numbers = [str(work.copy_ms), str(work.step_ms), str(batches)]
    figures: dict[str, float] = told_by(
        "tools.device_bench.contestant", contestant.name, *numbers, **environment
    )
    return figures


def table(found: Results) -> str:
    """Write the results as a table in Markdown."""
    lines = [
        "| work | loader | a step waits | of a step | trainer's CPU | copies on the host |",
        "|---|---|---|---|---|---|",
    ]
    for work, rows in found.items():
        for name, figures in rows.items():
            wait, step = figures["wait_us"], figures["step_us"]
            copies: Any = figures.get("host_copies", "-")
            copies = copies if isinstance(copies, str) else f"{copies:.0f}"
            lines.append(
                f"| {work} | {name} | {wait:.0f} us | {wait / step:.1%} |"
                f" {figures['cpu_us']:.0f} us | {copies} |"
            )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
