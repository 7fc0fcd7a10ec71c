"""Contestants in turns: the loop, the medians, the machine, the table and the file of every bench.

Noise of the machine falls on all contestants alike, since each takes a turn in each round. Imports
the standard library; what a turn does is its bench's. Owns the files it is asked to write.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[1]
VERSIONS = ("numpy", "paddlepaddle", "torch", "torchdata", "pillow", "spdl_core", "grain")

Figures = TypeVar("Figures")  # what a turn returns: a number, or numbers by name


def order(names: Sequence[str], number: int) -> list[str]:
    """Return the names in the order of turn `number`: each begins once."""
    shift = number % max(len(names), 1)
    return [*names[shift:], *names[:shift]]


def in_turns(
    contestants: Mapping[str, Callable[[], Figures]], rounds: int, warm_ups: int = 0
) -> dict[str, list[Figures]]:
    """Return each contestant's results of each round, without the `warm_ups` before them."""
    found: dict[str, list[Figures]] = {name: [] for name in contestants}
    for number in range(-warm_ups, rounds):
        for name in order(list(contestants), number + warm_ups):
            figures = contestants[name]()
            if number >= 0:
                found[name].append(figures)
    return found


def median_of(turns: Sequence[Any]) -> Any:
    """Return the median of numbers, or by name of those that each turn has by name."""
    if isinstance(turns[0], Mapping):
        return {name: statistics.median(turn[name] for turn in turns) for name in turns[0]}
    return statistics.median(turns)


def medians(found: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Return the medians of each contestant."""
    return {name: median_of(turns) for name, turns in found.items()}


def describe_machine() -> dict[str, Any]:
    """Return the processor, its usable cores, Python, the load, and what else is installed."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    found = {one.name: one.version for one in metadata.distributions() if one.name in VERSIONS}
    return {
        "cpu": models[0] if models else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
        "versions": [f"{name} {found[name]}" for name in VERSIONS if name in found],
    }


def machine_lines(machine: Mapping[str, Any]) -> list[str]:
    """Describe the machine."""
    load = f"load {machine['load_before']:.1f} before"
    if "load_after" in machine:
        load += f" and {machine['load_after']:.1f} after"
    return [
        ", ".join([machine["cpu"], f"{machine['cores']} cores", load]),
        f"Linux {machine['kernel']}, Python {machine['python']}",
        ", ".join(machine["versions"]),
    ]


def grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [cell.rjust(width) for cell, width in zip(row, widths)]
        lines.append("  ".join(["", row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    return lines


def markdown(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table for a page."""
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines).replace("| --- |", "|---|")


def command_line(name: str, text: str | None, rounds: int = 5) -> argparse.ArgumentParser:
    """Return the parser of a bench, with what all have: `--rounds` and `--json`."""
    parser = argparse.ArgumentParser(prog=f"python -m tools.{name}", description=text)
    parser.add_argument("--rounds", type=int, default=rounds, help=f"turns of each ({rounds})")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where the figures go")
    return parser


class Report:
    """The output of a bench: the machine that it found at its start, and figures.

    Args:
        options: those of `command_line`.
    """

    def __init__(self, options: argparse.Namespace) -> None:
        self.machine = describe_machine()
        self.path: Path | None = options.json
        self.rounds: int = options.rounds

    def show(self, text: str, figures: Any) -> None:
        """Print the table and the machine, and write the figures where that is asked for."""
        self.machine["load_after"] = os.getloadavg()[0]
        about = [f"Medians of {self.rounds} rounds.", *machine_lines(self.machine)]
        print("\n".join([text, "", *about]), flush=True)
        if self.path is not None:
            made = {"machine": self.machine, "rounds": self.rounds, "figures": figures}
            self.path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


def told_by(module: str, *arguments: str, **environment: str) -> Any:
    """Return the JSON that a module prints last, run in a process of its own.

    Raises:
        RuntimeError: it ended with an error.
    """
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-m", module, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr[-3000:]
        raise RuntimeError(f"{module} {' '.join(arguments)} ended with {done.returncode}: {said}")
    return json.loads(done.stdout.splitlines()[-1])
