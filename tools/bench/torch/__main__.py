"""Command line of the PyTorch rows: which rows, how long, and where results go.

Run as ``python -m tools.bench.torch``. It owns the file it writes.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import Any

from tools.bench.child import ROOT, Child
from tools.bench.lineup import Lineup, say
from tools.bench.machine import begin_report, end_report, write_report
from tools.bench.options import add_turns, names_of, parse_turns
from tools.bench.torch.rows import ROWS, Row, goals
from tools.bench.torch.table import markdown, render

JSON = ROOT / "build" / "bench" / "torch.json"
CONTESTANT = "tools.bench.torch.contestant"
TIMEOUT_S = 120.0


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench.torch",
        description="Measure reader.compat.torch beside torch.utils.data, as programs see it.",
    )
    parser.add_argument(
        "--rows",
        type=names_of(list(ROWS)),
        default=list(ROWS),
        metavar="A,B",
        help="of " + ", ".join(ROWS),
    )
    add_turns(parser, JSON)
    parser.add_argument("--markdown", action="store_true", help="print a Markdown table alone")
    return parse_turns(parser, arguments)


def measure_row(row: Row, rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
    """Measure every contestant of a row in turn, and return the facts of each."""
    with closing(Lineup()) as lineup:
        for entry in row.entries:
            lineup.enter(entry.name, Child(entry.name, row.name, CONTESTANT, TIMEOUT_S))
        lineup.open(seconds, 1)
        for number in range(rounds):
            for name in lineup.order(number):
                turn = lineup.ask(name, do="turn", touch=True)
                if turn is not None:
                    lineup.results[name]["rounds"].append(turn)
            lineup.say_round(number, "us")
        results = lineup.folded()
    return {entry.name: results[entry.name] for entry in row.entries}


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measure what the options name."""
    report = begin_report("tools.bench.torch", options.rounds, options.seconds)
    report["rows"] = {}
    for name in options.rows:
        say(f"{name}: {ROWS[name].title}")
        report["rows"][name] = measure_row(ROWS[name], options.rounds, options.seconds)
    end_report(report)
    report["goals"] = [{**asdict(goal), "is_met": goal.is_met} for goal in goals(report["rows"])]
    return report


def main() -> int:
    """Measure, or read what was measured; show it and write it."""
    options = parse(sys.argv[1:])
    if options.from_json is not None:
        report = json.loads(options.from_json.read_text(encoding="utf-8"))
    else:
        report = measure(options)
        write_report(report, options.json)
    print(markdown(report) if options.markdown else render(report))
    if options.from_json is None and not options.markdown:
        print(f"\nfigures: {options.json}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
