"""The README's chart: how many times as long as ours, one group of bars for each work.

The scale is linear, and a bar is the quotient of the two times that stand beside it. It shows what
every run has, without the bare floors: `SHOWN`.

Drawn with matplotlib without a display; the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.bench.report import Results, divided, duration, median
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
    """Return the time of each shown contestant that ran: ours, decoding, the peers by time."""
    bars = {name: us for name in SHOWN if (us := median(results, name)) is not None}
    ranks = {OURS: 0, DECODE.name: 1}
    return dict(sorted(bars.items(), key=lambda bar: (ranks.get(bar[0], 2), bar[1])))


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw the engine's table of `report` and write the SVG to `path`.

    Raises:
        ValueError: No row of the table was measured.
    """
    works: Mapping[str, Results] = report["tables"].get("engine", {})
    bars = {work: _bars(results) for work, results in works.items()}
    groups = {work: found for work, found in bars.items() if OURS in found}
    if not groups:
        raise ValueError("nothing to draw: no contestant of the engine's table was measured")
    with drawn():
        save(_figure(groups), path)


def _figure(groups: Mapping[str, dict[str, float]]) -> Figure:
    from matplotlib.figure import Figure

    height = 0.25 * (sum(map(len, groups.values())) + 1.4 * len(groups)) + 1.1
    figure = Figure(figsize=(8.6, height), facecolor=CARD)
    axes = figure.subplots()
    at, most = 0.0, 1.0
    ticks: dict[float, str] = {}
    for work, bars in groups.items():
        row = TABLES["engine"][work]
        axes.text(0, at, row.work.plain, va="center", color=INK, fontsize=10, fontweight="bold")
        at += 1
        for name, us in bars.items():
            is_ours = name == OURS
            color = OUR_BAR if is_ours else PEER_BAR if row.contestant(name).face else FLOOR_BAR
            longer = us / bars[OURS]
            most = max(most, longer)
            axes.barh(at, longer, height=0.74, color=color)
            axes.annotate(
                duration(us) + ("" if is_ours else f", {divided(longer)}x"),
                (longer, at),
                xytext=(4, 0),
                textcoords="offset points",
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
    axes.set_xlim(0, most * 1.2)
    axes.set_ylim(at - 0.6, -0.8)
    axes.set_xlabel(
        "time for a batch as a multiple of reader's (less is better); beside it: the time itself",
        color=FAINT,
        fontsize=9,
    )
    figure.tight_layout()
    return figure
