"""The views of the Paddle rows: text for the terminal, and Markdown for a page.

Pure: it returns text and prints nothing. Imports the rows and the table of the five works.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tools.bench.paddle.rows import PADDLE, ROWS, Entry, Row, above, goals, times
from tools.bench.summary import Results, Spread, above_making, measured
from tools.bench.table import duration, goal_lines, grid, head_lines, times_as_long, with_spread


def _middle(facts: Mapping[str, Any], figure: str) -> str:
    return duration(Spread.of(facts[figure]).middle)


def row_lines(row: Row, results: Results) -> list[str]:
    """Compare each contestant of a row with ours; ratios, taken within a round, stand first."""
    last = {
        "feed": ["above it", "stacking alone"],
        "epochs": ["first batch", "above making"],
        "breaks": ["processes left"],
    }[row.kind]
    head = ["", "times as long", "as", "time", "p10", "p90", *last]
    rows = [head]
    for entry in row.entries:
        facts = measured(results, entry.name)
        if facts is None:
            continue
        time = Spread.of(facts[row.figure])
        rows.append(
            [
                entry.title,
                with_spread(times(row, results, entry.name), times_as_long) if entry.beside else "",
                row.entry(entry.beside).title if entry.beside else "",
                duration(time.middle),
                duration(time.low),
                duration(time.high),
                *_last_cells(row, results, entry, facts),
            ]
        )
    return grid(rows) if len(rows) > 1 else []


def _last_cells(row: Row, results: Results, entry: Entry, facts: Mapping[str, Any]) -> list[str]:
    """Write what only rows of this kind have."""
    if row.kind == "feed":
        more = above(row, results, entry.name)
        is_bare = more is None or entry.name == row.bar
        making = _middle(facts, "making_us") if entry.face else ""
        return ["" if is_bare or more is None else duration(more.middle), making]
    if row.kind == "epochs":
        return [_middle(facts, "first_us"), duration(above_making(facts).middle)]
    return [f"{max(facts['left'])} after {len(facts['left']) - 1} breaks"]


def error_lines(row: Row, results: Results) -> list[str]:
    """Tell who failed, and its last words."""
    lines = []
    for entry in row.entries:
        words = results.get(entry.name, {}).get("error", "").splitlines()
        if words:
            last = f" ({words[-1].strip()})" if len(words) > 1 else ""
            lines.append(f"  {entry.title}: {words[0]}{last}")
    return lines


def render(report: Mapping[str, Any]) -> str:
    """Return the whole report as text."""
    lines = head_lines(report)
    rows: Mapping[str, Results] = report["rows"]
    for name, results in rows.items():
        row = ROWS[name]
        lines += ["", f"{name}: {row.title}", *row_lines(row, results), *error_lines(row, results)]
    if found := list(goals(rows)):
        lines += ["", "goals", *goal_lines(found)]
    return "\n".join(lines)


def markdown(report: Mapping[str, Any]) -> str:
    """Return a Markdown table with one line for each loader of Paddle's beside one of ours."""
    lines = ["| what | reader | Paddle takes | for scale |", "|---|---|---|---|"]
    rows: Mapping[str, Results] = report["rows"]
    for name, results in rows.items():
        row = ROWS[name]
        lines += [_markdown_line(row, results, e) for e in row.entries if e.face == PADDLE]
    return "\n".join(lines)


def _markdown_line(row: Row, results: Results, entry: Entry) -> str:
    ours, theirs = measured(results, entry.beside), measured(results, entry.name)
    longer = times(row, results, entry.name)
    what = row.title + entry.title.removeprefix("Paddle")
    scale = [
        f"{other.title} {_middle(facts, row.figure)}"
        for other in row.entries
        if other.beside == entry.beside and other.face != PADDLE
        if (facts := measured(results, other.name)) is not None
    ]
    if row.kind == "breaks":
        scale += [
            f"processes left by {who}: {max(facts['left'])}"
            for who, facts in (("reader", ours), ("Paddle", theirs))
            if facts is not None
        ]
    told = "fails"
    if theirs is not None:
        told = _middle(theirs, row.figure)
        if longer is not None:
            told = f"{times_as_long(longer.middle)} ({told})"
    mine = "fails" if ours is None else _middle(ours, row.figure)
    return f"| {what} | {mine} | {told} | {'; '.join(scale)} |"
