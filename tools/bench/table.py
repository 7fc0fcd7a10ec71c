"""The terminal's view of the results: ratios first, then times, then costs, then the goals.

Pure: it returns text and prints nothing. Imports the summary and the contestants' titles.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tools.bench.loaders import CONTESTANTS, DECODE
from tools.bench.summary import OURS, Goal, Results, Spread, above_making, goals, measured, times
from tools.bench.works import WORKS

Facts = Mapping[str, Any]


def title_of(name: str) -> str:
    """Return what a contestant is called in tables and charts."""
    return "decode alone" if name == DECODE else CONTESTANTS[name].title


def duration(us: float) -> str:
    """Write microseconds with the unit that reads best."""
    if us < 0:
        return f"-{duration(-us)}"
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    if us >= 1e4:
        return f"{us / 1e3:.1f} ms"
    if us >= 1e3:
        return f"{us / 1e3:.2f} ms"
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"


def times_as_long(value: float) -> str:
    """Write a ratio."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def grid(rows: Sequence[Sequence[str]]) -> list[str]:
    """Align columns: the first to the left, the others to the right."""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return [
        "  "
        + "  ".join(
            cell.rjust(width) if column else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths))
        ).rstrip()
        for row in rows
    ]


def with_spread(spread: Spread | None, write: Callable[[float], str]) -> str:
    """Write a median and between what most rounds lie."""
    if spread is None:
        return "-"
    return f"{write(spread.middle)} ({write(spread.low)} to {write(spread.high)})"


def ratio_lines(results: Results) -> list[str]:
    """Compare ours, and the floor, with everyone else; each ratio is taken within a round."""
    others = [n for n in results if not n.startswith("reader-") and measured(results, n)]
    ours = [n for n in results if n.startswith("reader-") and measured(results, n)]
    if not others:
        return []
    rows = [["how many times as long it takes", *(title_of(name) for name in others)]]
    for name in [*ours, *(n for n in ("floor",) if n in others)]:
        cells = [
            "-" if other == name else with_spread(times(results, other, name), times_as_long)
            for other in others
        ]
        rows.append([f"as {title_of(name)}", *cells])
    return grid(rows) if len(rows) > 1 else []


def _number(value: Any, digits: int = 1) -> str:
    return "-" if value is None else f"{value:.{digits}f}"


def cost_lines(results: Results) -> list[str]:
    """Show what a batch costs each contestant."""
    rows = [
        [
            "for each batch",
            "time",
            "p10",
            "p90",
            "CPU us",
            "-touching",
            "untouched",
            "faults",
            "switches",
            "calls",
        ]
    ]
    for name, facts in results.items():
        if "error" in facts:
            continue
        time = Spread.of(facts["us"])
        row = [title_of(name), duration(time.middle), duration(time.low), duration(time.high)]
        if name == DECODE:
            rows.append([*row, *["-"] * 6])
            continue
        cpu = Spread.of(facts["cpu_us"]).middle
        calls = facts["calls"]
        rows.append(
            [
                *row,
                _number(cpu),
                _number(cpu - facts["touch_cpu_us"]),
                _number(facts.get("untouched_cpu_us")),
                _number(Spread.of(facts["minor_faults"]).middle, 2),
                _number(Spread.of(facts["voluntary_switches"]).middle, 2),
                _number(calls and calls["calls"], 2),
            ]
        )
    return grid(rows)


def start_lines(results: Results) -> list[str]:
    """Show how soon the first batch is there, and what the tree of processes weighs."""
    rows = [
        [
            "first batch and memory",
            "fresh loader",
            "later epoch",
            "above making",
            "peak MB",
            "of it loading",
        ]
    ]
    for name, facts in results.items():
        if "error" in facts or name == DECODE:
            continue
        later = Spread.of(facts["first_us"]).middle
        peak = max(facts["pss_mb"])
        rows.append(
            [
                title_of(name),
                duration(facts["first_fresh_us"]),
                duration(later),
                duration(above_making(facts).middle),
                f"{peak:.0f}",
                f"{peak - facts['base_mb']:.0f}",
            ]
        )
    return grid(rows) if len(rows) > 1 else []


def goal_line(goal: Goal) -> list[str]:
    """Write one goal as cells."""
    word = {True: "met", False: f"MISSED by {goal.missed_by}", None: "not measured"}[goal.is_met]
    unit = "x" if goal.unit == "x" else f" {goal.unit}"
    sign = ">=" if goal.is_floor else "<="
    found = "" if goal.measured is None else f"{goal.measured.middle:.2f}{unit}"
    return [
        f"{goal.work}: {goal.text}",
        found,
        f"{sign} {goal.limit:g}{unit}",
        word,
    ]


def notes_of(goal: Goal) -> tuple[str, str]:
    """Write a goal's spread over the rounds, if it has one, and its note."""
    spread = goal.measured
    if spread is None or spread.low == spread.high:
        return "", goal.note
    return f"{spread.low:.2f} to {spread.high:.2f}", goal.note


def head_lines(report: Mapping[str, Any]) -> list[str]:
    """Tell what was measured on, and how often."""
    machine = report["machine"]
    return [
        (
            f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}, "
            f"Python {machine['python']}, load {machine['load_before']:.1f} before and "
            f"{machine['load_after']:.1f} after"
        ),
        ", ".join(f"{name} {version}" for name, version in report["versions"].items()),
        (
            f"{report['rounds']} rounds of about {report['seconds']:g} s; median (p10 to p90) over "
            "rounds; CPU, faults, switches and calls are the trainer's process's"
        ),
    ]


def goal_lines(found: Sequence[Goal]) -> list[str]:
    """Align goals, each with its notes."""
    notes = ["; ".join(note for note in notes_of(goal) if note) for goal in found]
    cells = grid([goal_line(goal) for goal in found])
    return [f"{line}  {note}".rstrip() for line, note in zip(cells, notes)]


def render(report: Mapping[str, Any]) -> str:
    """Return the whole report as text."""
    lines = head_lines(report)
    works: Mapping[str, Results] = report["works"]
    for name, results in works.items():
        lines += ["", f"{name}: {WORKS[name].title}"]
        for block in (ratio_lines(results), cost_lines(results), start_lines(results)):
            lines += block
        lines += [
            f"  {title_of(who)}: {facts['error'].splitlines()[0]}"
            for who, facts in results.items()
            if "error" in facts
        ]
    if any(OURS in results for results in works.values()):
        lines += ["", "goals", *goal_lines(list(goals(works)))]
    return "\n".join(lines)
