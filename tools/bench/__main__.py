"""Command line of the benchmark: which works, which loaders, how long, and where results go.

Run as ``python -m tools.bench``. It imports every other module here and owns the files it writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.bench.chart import draw
from tools.bench.lineup import say
from tools.bench.loaders import CONTESTANTS, DECODE
from tools.bench.machine import begin_report, end_report, write_report
from tools.bench.measure import measure_work
from tools.bench.options import add_turns, names_of, parse_turns
from tools.bench.summary import goals
from tools.bench.table import render
from tools.bench.works import WORKS

ROOT = Path(__file__).resolve().parents[2]
JSON = ROOT / "build" / "bench" / "results.json"
CHART = ROOT / "docs" / "bench.svg"
USUAL = [name for name, contestant in CONTESTANTS.items() if not contestant.is_peer]
PEERS = [name for name, contestant in CONTESTANTS.items() if contestant.is_peer]


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure reader beside PyTorch, Paddle and a bare floor, in one run.",
    )
    add = parser.add_argument
    add(
        "--works",
        type=names_of(list(WORKS)),
        default=list(WORKS),
        metavar="A,B",
        help="of " + ", ".join(WORKS),
    )
    add(
        "--contestants",
        type=names_of([*CONTESTANTS, DECODE]),
        default=[*USUAL, DECODE],
        metavar="A,B",
        help=f"of {', '.join([*CONTESTANTS, DECODE])}; all but the peers unless said",
    )
    add(
        "--peers",
        type=names_of(PEERS),
        nargs="?",
        const=PEERS,
        default=[],
        metavar="A,B",
        help=f"take these along: {', '.join(PEERS)}; all of them when none is named",
    )
    add_turns(parser, JSON)
    add("--chart", type=Path, metavar="FILE", help=f"where the chart goes ({CHART.name} in docs)")
    add("--no-chart", action="store_true", help="draw none")
    options = parse_turns(parser, arguments)
    # A partial or hasty run must not replace the README's chart unless it is told where to draw.
    is_whole = options.works == list(WORKS) and set(USUAL) <= set(options.contestants)
    if options.chart is None and is_whole and not options.quick:
        options.chart = CHART
    if options.no_chart:
        options.chart = None
    return options


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the options name."""
    report = begin_report("tools.bench", options.rounds, options.seconds)
    report["works"] = {}
    names = [*options.contestants, *(n for n in options.peers if n not in options.contestants)]
    for work in options.works:
        say(f"{work}: {WORKS[work].title}")
        of_work = [name for name in names if name != DECODE or work == "jpeg"]
        report["works"][work] = measure_work(
            work, of_work, options.rounds, options.seconds, 1 if options.quick else 3
        )
    end_report(report)
    report["goals"] = [{**asdict(goal), "is_met": goal.is_met} for goal in goals(report["works"])]
    return report


def main() -> int:
    """Measure, or read what was measured; show it, write it, draw it."""
    options = parse(sys.argv[1:])
    if options.from_json is not None:
        report = json.loads(options.from_json.read_text(encoding="utf-8"))
    else:
        report = measure(options)
        write_report(report, options.json)
    print(render(report))
    if options.from_json is None:
        print(f"\nfigures: {options.json}")
    if options.chart is not None:
        draw(report, options.chart)
        print(f"chart: {options.chart}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
