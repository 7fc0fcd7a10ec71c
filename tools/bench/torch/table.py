"""The views of the PyTorch rows: text for the terminal, and Markdown for a page.

Pure: it returns text and prints nothing. Imports the rows and the table of the five works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.bench.summary import Results, Spread, measured
from tools.bench.table import duration, goal_lines, grid, head_lines, times_as_long, with_spread
from tools.bench.torch.rows import ROWS, Row, goals, times


def row_lines(row: Row, results: Results) -> list[str]:
    """Compare each contestant of a row with ours, and tell who failed and its last words."""
    rows = [["", "times as long", "time", "p10", "p90"]]
    lines = []
    for number, entry in enumerate(row.entries):
        facts = measured(results, entry.name)
        if facts is None:
            words = results.get(entry.name, {}).get("error", "").splitlines()
            lines += [f"  {entry.title}: {words[0]} ({words[-1].strip()})"] if words else []
            continue
        time = Spread.of(facts["us"])
        longer = with_spread(times(row, results, entry.name), times_as_long) if number else ""
        cells = [duration(value) for value in (time.middle, time.low, time.high)]
        rows.append([entry.title, longer, *cells])
    return (grid(rows) if len(rows) > 1 else []) + lines


def render(report: Mapping[str, Any]) -> str:
    """Return the whole report as text."""
    lines = head_lines(report)
    rows: Mapping[str, Results] = report["rows"]
    for name, results in rows.items():
        lines += ["", ROWS[name].title, *row_lines(ROWS[name], results)]
    if found := list(goals(rows)):
        lines += ["", "goals", *goal_lines(found)]
    return "\n".join(lines)


def markdown(report: Mapping[str, Any]) -> str:
    """Return a Markdown table with one line for each row."""
    lines = ["| what | reader | the peer takes |", "|---|---|---|"]
    rows: Mapping[str, Results] = report["rows"]
    for name, results in rows.items():
        row = ROWS[name]
        told = []
        for entry in row.entries:
            facts = measured(results, entry.name)
            told.append("fails" if facts is None else duration(Spread.of(facts["us"]).middle))
        longer = times(row, results, row.entries[1].name)
        peer = told[1] if longer is None else f"{times_as_long(longer.middle)} ({told[1]})"
        lines.append(f"| {row.title} | {told[0]} | {row.entries[1].title}: {peer} |")
    return "\n".join(lines)
