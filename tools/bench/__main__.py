"""Command line of the benchmark: which rows, beside whom, how long, and where results go.

Run as ``python -m tools.bench``. It imports every other module here and owns the files it writes.
"""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tools.bench import chart, limits, readme, report
from tools.bench.rows import TABLES
from tools.bench.runner import measure, unpack
from tools.turns import ROOT

FOLDER = ROOT / "build" / "bench"
README, SPEED = ROOT / "README.md", ROOT / "docs" / "speed.md"
CHART = ROOT / "docs" / "bench.svg"

# Rounds, seconds of a turn, launches: many short ones show small differences best.
USUAL, QUICK = (7, 0.6, 1), (3, 0.15, 1)
AGAINST, QUICK_AGAINST = (20, 0.04, 3), (8, 0.04, 1)


def rows_of(
    tables: Sequence[str] | None = None,
    chosen: Sequence[str] | None = None,
    is_against: bool = False,
) -> dict[str, list[str]]:
    """Name the rows by table: those chosen that can be compared with peers, or with a wheel."""
    named = {
        table: [
            name
            for name, row in rows.items()
            if (chosen is None or name in chosen)
            and (row.is_public if is_against else row.has_peer)
        ]
        for table, rows in TABLES.items()
        if tables is None or table in tables
    }
    return {table: names for table, names in named.items() if names}


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the command line; `rows` of what it returns holds the names of the rows by table."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.bench",
        description="Measure reader beside its peers and bare floors, or beside an old wheel.",
    )
    add = parser.add_argument
    every_row = list(dict.fromkeys(name for rows in TABLES.values() for name in rows))
    add("--table", nargs="+", choices=list(TABLES), help="all unless said")
    add("--rows", nargs="+", choices=every_row, metavar="ROW", help=f"of {', '.join(every_row)}")
    add("--against", type=Path, metavar="WHEEL", help="compare with this wheel, not with the peers")
    add("--code", type=Path, metavar="WHEEL", help="measure this wheel, not the checkout")
    add("--quick", action="store_true", help="a first impression")
    add("--rounds", type=int, help="turns of each contestant (7; against a wheel 20)")
    add("--seconds", type=float, help="length of a turn to aim at (0.6; against a wheel 0.04)")
    add("--launches", type=int, help="how often processes start anew (1; against a wheel 3)")
    add("--json", type=Path, metavar="FILE", help="where the figures go (below build/bench)")
    add("--from-json", type=Path, metavar="FILE", help="measure nothing: show this file")
    add("--chart", type=Path, metavar="FILE", help="draw the chart of the engine's table there")
    add("--profile", action="store_true", help="say what limits ours on each row, and why")
    add("--readme", action="store_true", help="replace the tables and the chart of the pages")
    options = parser.parse_args(arguments)
    options.rows = rows_of(options.table, options.rows, bool(options.against or options.profile))
    defaults = (USUAL, QUICK, AGAINST, QUICK_AGAINST)[options.quick + 2 * bool(options.against)]
    for name, value in zip(("rounds", "seconds", "launches"), defaults):
        if getattr(options, name) is None:
            setattr(options, name, value)
        if getattr(options, name) <= 0:
            parser.error(f"--{name} must be positive")
    if not options.rows:
        parser.error("none of these rows is measured so: some have no peer, and some no old wheel")
    if options.against and (options.readme or options.chart):
        parser.error("--readme and --chart show the peers: leave out --against")
    is_partial = options.quick or options.rows != rows_of()
    if options.readme and not options.from_json and is_partial:
        parser.error("--readme shows every row: leave out --table, --rows and --quick")
    if options.json is None:
        options.json = FOLDER / ("against.json" if options.against else "results.json")
    return options


def run(options: argparse.Namespace) -> dict[str, Any]:
    """Measure the rows that the options name, and write the results."""
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        code = unpack(options.code, Path(folder, "code")) if options.code else ROOT
        old = unpack(options.against, Path(folder, "old")) if options.against else None
        measured = measure(
            options.rows, code, old, options.rounds, options.seconds, options.launches
        )
    measured["command"] = shlex.join(["python", "-m", "tools.bench", *sys.argv[1:]])
    if options.against:
        measured["against"] = options.against.name
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps(measured, indent=1) + "\n", encoding="utf-8")
    return measured


def profiles(options: argparse.Namespace) -> dict[str, limits.Profile]:
    """Profile each row that the options name and that is read by epochs."""
    named = [TABLES[table][name] for table, names in options.rows.items() for name in names]
    return {row.name: limits.profile(row, options.seconds) for row in named if row.kind == "epochs"}


def main() -> int:
    """Measure, or read earlier results; show, write and draw them."""
    options = parse(sys.argv[1:])
    try:
        if options.profile:
            print(limits.render(profiles(options)))
            return 0
        if options.from_json:
            measured = json.loads(options.from_json.read_text(encoding="utf-8"))
        else:
            measured = run(options)
        is_against = "against" in measured
        print(report.render_against(measured) if is_against else report.render(measured))
        if not options.from_json:
            print(f"\nfigures: {options.json}")
        if options.readme:
            readme.write(measured, README, SPEED)
            options.chart = options.chart or CHART
        if options.chart:
            chart.draw(measured, options.chart)
            print(f"chart: {options.chart}")
    except (OSError, ValueError) as error:
        print(f"python -m tools.bench: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
