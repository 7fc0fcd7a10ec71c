"""The README's chart: time for a batch, one group of bars for each work, on a log scale.

It shows what every run has, without the bare floors: `SHOWN`.

Drawn with matplotlib without a display. The file carries its own card and a style for dark
viewers, so it reads on any page; the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.bench.report import Ratio, Results, duration, median, times_as_long
from tools.bench.rows import DECODE, OURS, PADDLE, TABLES, TORCH

SHOWN = (OURS, DECODE.name, TORCH.name, PADDLE.name)

# Light colour of each part, and what it becomes for a dark viewer.
CARD, INK, FAINT = "#fdfdfc", "#24292e", "#6b7379"
OUR_BAR, FLOOR_BAR, PEER_BAR, GRID = "#0e7c86", "#9fb4b8", "#c9a77c", "#e1e4e6"
DARK = {
    CARD: "#161a1d",
    INK: "#e7eaec",
    FAINT: "#9aa4ab",
    OUR_BAR: "#2fb3bd",
    FLOOR_BAR: "#5b7378",
    PEER_BAR: "#a07d50",
    GRID: "#2b3237",
}


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
    middles = [us for bars in groups.values() for us in bars.values()]
    if not middles:
        raise ValueError("nothing to draw: no contestant of the engine's table was measured")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none"})
    matplotlib.rcParams["font.family"] = ["DejaVu Sans", "sans-serif"]
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    figure, axes = pyplot.subplots(figsize=(8.6, 0.25 * (len(middles) + 1.4 * len(groups)) + 1.1))
    figure.patch.set_facecolor(CARD)
    axes.set_facecolor("none")
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
    axes.tick_params(length=0, labelcolor=INK, labelsize=9)
    axes.tick_params(axis="x", labelcolor=FAINT)
    axes.set_xscale("log")
    axes.set_xlim(low, high)
    axes.set_ylim(at - 0.6, -0.8)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: _decade(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(axis="x", color=GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)
    axes.set_xlabel(
        "time for a batch, log scale (less is better); x: how many times as long as reader",
        color=FAINT,
        fontsize=9,
    )
    figure.tight_layout()
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, format="svg", facecolor=CARD, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)
    path.write_text(_with_dark_style(path.read_text(encoding="utf-8")), encoding="utf-8")


def _decade(us: float) -> str:
    return f"{us:g} us" if us < 1e3 else f"{us / 1e3:g} ms" if us < 1e6 else f"{us / 1e6:g} s"


def _with_dark_style(svg: str) -> str:
    """Add a style sheet that swaps the colours for a viewer who prefers dark."""
    rules = "".join(
        f'[style*="fill: {light}"]{{fill:{dark}!important}}'
        f'[style*="stroke: {light}"]{{stroke:{dark}!important}}'
        for light, dark in DARK.items()
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n"
    head, mark, tail = svg.partition("<defs>")
    lines = (head + style + mark + tail).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"
