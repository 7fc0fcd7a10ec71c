"""The command line of a package of rows: which rows, how long, and where results go.

Imports the lineup and the machine's report. A RowCommand owns the file it writes; what the rows are
and how they are shown comes from the package that makes it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from tools.bench.child import ROOT, Child
from tools.bench.lineup import Lineup, say
from tools.bench.machine import begin_report, end_report, write_report
from tools.bench.options import add_turns, names_of, parse_turns
from tools.bench.summary import Goal

__all__ = ["RowCommand"]


@dataclass(frozen=True)
class RowCommand:
    """Measures rows, beside the five works.

    Attributes:
        package: Such as "tools.bench.paddle": what is run, and has the contestants.
        description: One line for --help.
        rows: By name; each has a title, entries, the figure that is told of a turn, and is_short.
        goals: Makes the goals of what was measured, by row.
        render: Shows a report.
        markdown: Shows it as a Markdown table alone.
        timeout_s: Longest that a contestant may take for an answer.
    """

    package: str
    description: str
    rows: Mapping[str, Any]
    goals: Callable[[dict[str, Any]], Iterator[Goal]]
    render: Callable[[dict[str, Any]], str]
    markdown: Callable[[dict[str, Any]], str]
    timeout_s: float

    @property
    def json(self) -> Path:
        """Where the figures go unless told otherwise."""
        return ROOT / "build" / "bench" / f"{self.package.rpartition('.')[2]}.json"

    @property
    def contestant(self) -> str:
        """The module that a contestant's process runs."""
        return f"{self.package}.contestant"

    def parse(self, arguments: Sequence[str]) -> argparse.Namespace:
        """Read the command line."""
        parser = argparse.ArgumentParser(
            prog=f"python -m {self.package}", description=self.description
        )
        parser.add_argument(
            "--rows",
            type=names_of(list(self.rows)),
            default=list(self.rows),
            metavar="A,B",
            help="of " + ", ".join(self.rows),
        )
        add_turns(parser, self.json)
        parser.add_argument("--markdown", action="store_true", help="print a Markdown table alone")
        return parse_turns(parser, arguments)

    def measure_row(self, row: Any, rounds: int, seconds: float) -> dict[str, dict[str, Any]]:
        """Measure every contestant of a row in turn, and return the facts of each.

        Args:
            row: The row.
            rounds: How often each takes its turn.
            seconds: Length of an epoch to aim at, unless the row's are short.
        """
        with closing(Lineup()) as lineup:
            for entry in row.entries:
                child = Child(entry.name, row.name, self.contestant, self.timeout_s)
                lineup.enter(entry.name, child)
            lineup.open(0.0 if row.is_short else seconds, 1)
            for number in range(rounds):
                for name in lineup.order(number):
                    turn = lineup.ask(name, do="turn", touch=True)
                    if turn is not None:
                        lineup.results[name]["rounds"].append(turn)
                lineup.say_round(number, row.figure)
            results = lineup.folded()
        return {entry.name: results[entry.name] for entry in row.entries}

    def measure(self, options: argparse.Namespace) -> dict[str, Any]:
        """Measure what the options name."""
        report = begin_report(self.package, options.rounds, options.seconds)
        report["rows"] = {}
        for name in options.rows:
            say(f"{name}: {self.rows[name].title}")
            report["rows"][name] = self.measure_row(
                self.rows[name], options.rounds, options.seconds
            )
        end_report(report)
        goals = self.goals(report["rows"])
        report["goals"] = [{**asdict(goal), "is_met": goal.is_met} for goal in goals]
        return report

    def main(self) -> int:
        """Measure, or read what was measured; show it and write it."""
        options = self.parse(sys.argv[1:])
        if options.from_json is not None:
            report = json.loads(options.from_json.read_text(encoding="utf-8"))
        else:
            report = self.measure(options)
            write_report(report, options.json)
        print(self.markdown(report) if options.markdown else self.render(report))
        if options.from_json is None and not options.markdown:
            print(f"\nfigures: {options.json}")
        return 0
