"""The README's chart: time for a batch, one group of bars for each work, on a log scale.

It shows what every run has, without the bare floors: `SHOWN`.

Drawn with matplotlib without a display; the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bench.report import Ratio, Results, duration, median, times_as_long
from tools.bench.rows import DECODE, OURS, PADDLE, TABLES, TORCH
from tools.pictures.theme import (
    CARD,
    FAINT,
    FLOOR_BAR,
    INK,
    OUR_BAR,
    PEER_BAR,
    drawn,
    plain,
    save,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

SHOWN = (OURS, DECODE.name, TORCH.name, PADDLE.name)


def _bars(results: Results) -> dict[str, float]:
    """Return the time of each that ran and is shown: ours, decoding, the peers by time."""
    bars = {name: us for name in SHOWN if (us := median(results, name)) is not None}
    ranks = {OURS: 0, DECODE.name: 1}
    return dict(sorted(bars.items(), key=lambda bar: (ranks.get(bar[0], 2), bar[1])))


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the engine's table of `report` and write the SVG to `path`.

    Raises:
        ValueError: Nothing of it was measured.
    """
    works: Mapping[str, Results] = report["tables"].get("engine", {})
    groups = {work: _bars(results) for work, results in works.items()}
    if not any(groups.values()):
        raise ValueError("nothing to draw: no contestant of the engine's table was measured")
    with drawn():
        save(_figure(works, groups), path)


def _figure(works: Mapping[str, Results], groups: Mapping[str, dict[str, float]]) -> Figure:
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter, NullLocator

    middles = [us for bars in groups.values() for us in bars.values()]
    height = 0.25 * (len(middles) + 1.4 * len(groups)) + 1.1
    figure = Figure(figsize=(8.6, height), facecolor=CARD)
    axes = figure.subplots()
    low, high = min(middles) / 2, max(middles) * 6
    at = 0.0
    ticks: dict[float, str] = {}
    for work, bars in groups.items():
        row = TABLES["engine"][work]
        axes.text(low, at, row.work.plain, va="center", color=INK, fontsize=10, fontweight="bold")
        at += 1
        for name, us in bars.items():
            is_ours = name == OURS
            color = OUR_BAR if is_ours else PEER_BAR if row.contestant(name).face else FLOOR_BAR
            axes.barh(at, us - low, left=low, height=0.74, color=color)
            longer = None if is_ours else Ratio.of(works[work], name, OURS)
            axes.text(
                us * 1.08,
                at,
                duration(us) + (f"   {times_as_long(longer.middle)}" if longer else ""),
                va="center",
                color=INK if is_ours else FAINT,
                fontsize=9,
                fontweight="bold" if is_ours else "normal",
            )
            ticks[at] = row.contestant(name).title
            at += 1
        at += 0.4
    axes.set_yticks(list(ticks), list(ticks.values()))
    plain(axes)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(at - 0.6, -0.8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _decade(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(
        "time for a batch, log scale (less is better); x: how many times as long as reader",
        color=FAINT,
        fontsize=9,
    )
    figure.tight_layout()
    return figure


def _decade(us: float) -> str:
    return f"{us:g} us" if us < 1e3 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"
