"""The meaning of figures: medians, ratios by round, their noise, goals, and texts of these.

Pure functions over a report as it is written to JSON; no clock, no process, no printing. Imports
the rows.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from tools.bench.rows import OURS, TABLES, Row
from tools.turns import grid, machine_lines

Results = Mapping[str, Mapping[str, Any]]  # of one row: what `take_turns` returns
DRAWS = 1000
TELLING = 0.03  # a smaller difference is not marked

FIGURES = {
    "us": "a batch",
    "cpu_us": "the trainer's CPU for a batch",
    "all_cpu_us": "the CPU of all processes for a batch",
    "fresh_us": "the first batch of a new loader",
    "first_us": "the first batch of a later epoch",
}


def median(results: Results, name: str, figure: str = "us") -> float | None:
    """Return the median over all turns; None for a contestant that failed or has no such figure."""
    values = [turn[figure] for turns in _launches(results, name, figure) for turn in turns]
    return statistics.median(values) if values else None


def _launches(results: Results, name: str, figure: str) -> list[list[dict[str, float]]]:
    launches = results.get(name, {}).get("launches", [])
    return [turns for turns in launches if turns and figure in turns[0]]


def quotient(results: Results, over: str, under: str, figure: str = "us") -> float | None:
    """Divide one median by another, as a reader of both does; None unless both have the figure."""
    above, below = median(results, over, figure), median(results, under, figure)
    return None if above is None or below is None else above / below


@dataclass(frozen=True)
class Ratio:
    """How many times as long one takes as another: each ratio is taken within one round.

    Attributes:
        launches: Ratios of the rounds of each launch.
    """

    launches: tuple[tuple[float, ...], ...]

    @classmethod
    def of(cls, results: Results, over: str, under: str, figure: str = "us") -> Ratio | None:
        """Compare two contestants of a row; None unless both have the figure."""
        pairs = zip(_launches(results, over, figure), _launches(results, under, figure))
        ratios = tuple(tuple(a[figure] / b[figure] for a, b in zip(*launch)) for launch in pairs)
        return cls(ratios) if ratios else None

    @property
    def middle(self) -> float:
        """Median of the rounds of all launches."""
        return statistics.median(value for launch in self.launches for value in launch)

    @cached_property
    def draws(self) -> np.ndarray[Any, Any]:
        """Medians of as many launches and rounds, drawn anew from these: a bootstrap."""
        rng = np.random.default_rng(0)
        lengths = np.array([len(launch) for launch in self.launches])
        count, most = len(lengths), int(lengths.max())
        ratios = np.full((count, most), np.nan)
        for number, launch in enumerate(self.launches):
            ratios[number, : len(launch)] = launch
        picked = rng.integers(0, count, (DRAWS, count, 1))
        has = lengths[picked]
        drawn = ratios[picked, (rng.random((DRAWS, count, most)) * has).astype(np.intp)]
        drawn[np.arange(most) >= has] = np.nan  # a launch gives as many as it has
        drawn = drawn.reshape(DRAWS, -1)
        middle = np.median if (lengths == most).all() else np.nanmedian
        return np.asarray(middle(drawn, axis=1))

    @property
    def interval(self) -> tuple[float, float]:
        """The bounds of 95 of 100 such medians."""
        low, high = np.percentile(self.draws, [2.5, 97.5])
        return float(low), float(high)


def total_of(ratios: Sequence[Ratio]) -> tuple[float, float, float]:
    """Return the geometric mean of `ratios`, one at least, and the bounds of 95 of 100."""
    mean = math.exp(statistics.fmean(math.log(ratio.middle) for ratio in ratios))
    draws = np.exp(np.mean([np.log(ratio.draws) for ratio in ratios], axis=0))
    low, high = np.percentile(draws, [2.5, 97.5])
    return mean, float(low), float(high)


def duration(us: float) -> str:
    """Write microseconds with the unit that reads best."""
    if us >= 1e6:
        return f"{us / 1e6:.2f} s"
    if us >= 1e3:
        return f"{us / 1e3:.1f} ms" if us >= 1e4 else f"{us / 1e3:.2f} ms"
    return f"{us:.1f} us" if us < 100 else f"{us:.0f} us"


def times_as_long(value: float) -> str:
    """Write a ratio."""
    return f"{value:.0f}x" if value >= 100 else f"{value:.1f}x" if value >= 10 else f"{value:.2f}x"


def divided(value: float) -> str:
    """Write a quotient with no more digits than two times of three digits give when divided."""
    return f"{value:.0f}" if value >= 10 else f"{value:.1f}" if value >= 2 else f"{value:.2f}"


def head_lines(report: Mapping[str, Any]) -> list[str]:
    """Describe the machine, and the number of measurements."""
    missing = report.get("not_installed", ())
    rounds = f"{report['rounds']} rounds of about {report['seconds']:g} s"
    if report["launches"] > 1:
        rounds += f" in each of {report['launches']} launches"
    return [
        *machine_lines(report["machine"]),
        *([f"left out, for they are not installed: {'; '.join(missing)}"] if missing else []),
        f"{rounds}; medians; a ratio is the median of those taken within each round,",
        "with a 95 % interval of that median by bootstrap",
    ]


def error_lines(results: Results) -> list[str]:
    """Name the failed contestants, with the first and the last line of their last output."""
    lines = []
    for name, facts in results.items():
        if words := facts.get("error", "").splitlines():
            last = f" ({words[-1].strip()})" if len(words) > 1 else ""
            lines.append(f"  {name} fails: {words[0]}{last}")
    return lines


def goals(row: Row, results: Results) -> Iterator[tuple[str, bool]]:
    """Yield each goal that was measured: its text with the figure, and whether it is met."""
    for peer, least in row.at_least.items():
        ratio = Ratio.of(results, peer, OURS, row.figure)
        if ratio is not None:
            title = row.contestant(peer).title
            text = f"{title} takes {times_as_long(ratio.middle)}, at least {times_as_long(least)}"
            yield text, ratio.middle >= least
    for figure, most in row.at_most.items():
        value = median(results, OURS, figure)
        if value is not None:
            yield f"{FIGURES[figure]}: {duration(value)}, at most {duration(most)}", value <= most


def row_lines(row: Row, results: Results) -> list[str]:
    """Compare each contestant of a row with ours; name failed ones, and goals met or missed."""
    times = ["batch", "CPU", "CPU of all", "new loader", "later epoch"]
    rows = [["", "times as long", "interval", *times]]
    for contestant in row.contestants:
        ratio = Ratio.of(results, contestant.name, OURS, row.figure)
        if ratio is None:
            continue
        cells = [median(results, contestant.name, figure) for figure in FIGURES]
        low, high = ratio.interval
        compared = [times_as_long(ratio.middle), f"{times_as_long(low)} to {times_as_long(high)}"]
        rows.append(
            [
                contestant.title,
                *(["", ""] if contestant.name == OURS else compared),
                *("-" if cell is None else duration(cell) for cell in cells),
            ]
        )
        left = median(results, contestant.name, "left")
        if left is not None:
            rows[-1][0] += f", leaves {left:.0f} processes"
    lines = grid(rows) if len(rows) > 1 else []
    verdicts = [
        f"  goal {'met' if is_met else 'MISSED'}: {text}" for text, is_met in goals(row, results)
    ]
    return [*lines, *error_lines(results), *verdicts]


def short_lines(rows: Mapping[str, Results]) -> list[str]:
    """Compare ours with the one peer of rows of short epochs, a line each."""
    cells = [["", "reader", "peer", "times as long", "interval", "goal"]]
    errors: list[str] = []
    for name, results in rows.items():
        row = TABLES["opening"][name]
        peer = row.contestants[1].name
        errors += error_lines(results)
        if ratio := Ratio.of(results, peer, OURS):
            medians = [duration(median(results, who) or 0.0) for who in (OURS, peer)]
            spread = " to ".join(map(times_as_long, ratio.interval))
            goal = ", ".join("met" if is_met else "MISSED" for _, is_met in goals(row, results))
            cells.append([name, *medians, times_as_long(ratio.middle), spread, goal])
    return [*grid(cells), *errors]


def render(report: Mapping[str, Any]) -> str:
    """Return a comparison with the peers as text."""
    lines = head_lines(report)
    for table, rows in report["tables"].items():
        if table == "opening":
            lines += ["", "opening: an epoch of 8 x (8 float32, 1 index), or to its first batch"]
            lines += short_lines(rows)
            continue
        for name, results in rows.items():
            row = TABLES[table][name]
            lines += ["", f"{table} {name}: {row.title}", *row_lines(row, results)]
    return "\n".join(lines)


def render_against(report: Mapping[str, Any]) -> str:
    """Return a comparison with an older wheel as text: a block for each figure, then the total."""
    lines = [f"new/old, beside {report['against']}", *head_lines(report)]
    tables: Mapping[str, Mapping[str, Results]] = report["tables"]
    found: list[Ratio] = []
    for figure, title in FIGURES.items():
        cells = [["row", "old", "new", "new/old", "interval", ""]]
        ratios: list[Ratio] = []
        for table, rows in tables.items():
            for name, results in rows.items():
                ratio = Ratio.of(results, "new", "old", figure)
                if ratio is not None:
                    ratios.append(ratio)
                    medians = [median(results, which, figure) or 0.0 for which in ("old", "new")]
                    spread = _against_cells(ratio.middle, *ratio.interval)
                    cells.append([f"{table} {name}", *map(duration, medians), *spread])
        if ratios:
            cells.append(["geometric mean", "", "", *_against_cells(*total_of(ratios))])
            lines += ["", title, *grid(cells)]
            found += ratios
    for table, rows in tables.items():
        for name, results in rows.items():
            if errors := error_lines(results):
                lines += ["", f"{table} {name}", *errors]
    if found:
        mean, low, high = total_of(found)
        lines += ["", f"total of {len(found)}: {mean:.3f} ({low:.3f} to {high:.3f})"]
    return "\n".join(lines)


def _against_cells(middle: float, low: float, high: float) -> list[str]:
    """Write a ratio of versions, and mark a difference that is large and beyond its noise."""
    word = ""
    if abs(middle - 1) >= TELLING and not low <= 1 <= high:
        word = "slower" if middle > 1 else "faster"
    return [f"{middle:.3f}", f"{low:.3f} to {high:.3f}", word]
