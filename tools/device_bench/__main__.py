"""Measure how long steps on a device wait for their batches, beside PyTorch's and Paddle's loaders.

    python -m tools.device_bench [--accelerator simdev|cuda] [--rounds 3] [--json FILE]

Copies and steps have given lengths; on the simulated accelerator all loaders meet the same device.
Contestants take turns, each in a process of its own.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial

from tests.device.accelerator import ACCELERATOR
from tests.device.build import library
from tests.device.simdev import LIBRARY
from tools.device_bench.works import CONTESTANTS, WORKS, Contestant, Work
from tools.turns import Report, command_line, in_turns, markdown, medians, told_by

Results = dict[str, dict[str, dict[str, float]]]  # figures by work and contestant


def main() -> int:
    """Measure and print a table; write JSON where that is asked for."""
    parser = command_line("device_bench", __doc__, rounds=3)
    parser.add_argument("--accelerator", choices=("simdev", "cuda"), default="simdev")
    parser.add_argument("--batches", type=int, default=300)
    chosen = parser.parse_args()
    report = Report(chosen)
    found = measure(chosen.accelerator, chosen.rounds, chosen.batches)
    report.show(table(found), found)
    return 0


def measure(accelerator: str, rounds: int, batches: int) -> Results:
    """Return the medians of all figures."""
    contestants = [c for c in CONTESTANTS if accelerator == "simdev" or c.framework == "torch"]

    def turns_of(work: Work) -> dict[str, Callable[[], dict[str, float]]]:
        return {c.name: partial(run, accelerator, c, work, batches) for c in contestants}

    return {str(work): medians(in_turns(turns_of(work), rounds)) for work in WORKS}


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
    rows = []
    for work, contestants in found.items():
        for name, figures in contestants.items():
            wait, step = figures["wait_us"], figures["step_us"]
            copies = f"{figures['host_copies']:.0f}" if "host_copies" in figures else "-"
            cells = [f"{wait:.0f} us", f"{wait / step:.1%}", f"{figures['cpu_us']:.0f} us", copies]
            rows.append([work, name, *cells])
    head = ["work", "loader", "a step waits", "of a step", "trainer's CPU", "copies on the host"]
    return markdown(head, rows)


if __name__ == "__main__":
    sys.exit(main())
