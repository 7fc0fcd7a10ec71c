"""The README's chart: time for a batch, one group of bars for each work, on a log scale.

Drawn with matplotlib without a display. The file carries its own card and a style for dark
viewers, so it reads on any page; the same results give the same bytes.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tools.bench.loaders import DECODE
from tools.bench.summary import OURS, Results, Spread, measured, times
from tools.bench.table import duration, times_as_long, title_of
from tools.bench.works import WORKS

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


def _bars(results: Results) -> list[str]:
    """Name the contestants that get a bar: ours once, its bars, then the peers by their time."""
    bars = [name for name in ("floor", DECODE) if measured(results, name)]
    peers = [
        name
        for name in results
        if not name.startswith("reader-") and name not in bars and measured(results, name)
    ]
    peers.sort(key=lambda name: Spread.of(results[name]["us"]).middle)
    return [*([OURS] if measured(results, OURS) else []), *bars, *peers]


def _label(results: Results, name: str) -> str:
    text = duration(Spread.of(results[name]["us"]).middle)
    longer = None if name == OURS else times(results, name, OURS)
    return text if longer is None else f"{text}   {times_as_long(longer.middle)}"


def draw(report: Mapping[str, Any], path: Path) -> None:
    """Draw `report` and write the SVG to `path`, making its folder if need be."""
    works: Mapping[str, Results] = report["works"]
    groups = [(name, _bars(results)) for name, results in works.items()]
    middles = [Spread.of(works[work][n]["us"]).middle for work, bars in groups for n in bars]
    if not middles:
        raise ValueError("nothing to draw: no contestant was measured")
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "bench", "svg.fonttype": "none"})
    matplotlib.rcParams["font.family"] = ["DejaVu Sans", "sans-serif"]
    from matplotlib import pyplot
    from matplotlib.ticker import FuncFormatter, NullLocator

    rows = sum(len(bars) + 1.4 for _, bars in groups)
    figure, axes = pyplot.subplots(figsize=(8.6, 0.25 * rows + 1.1))
    figure.patch.set_facecolor(CARD)
    axes.set_facecolor("none")
    low, high = min(middles) / 2, max(middles) * 6
    at = 0.0
    places, names = [], []
    for work, bars in groups:
        text = f"{work}:  {WORKS[work].title}"
        axes.text(low, at, text, va="center", color=INK, fontsize=10, fontweight="bold")
        at += 1
        for name in bars:
            time = Spread.of(works[work][name]["us"])
            is_bar = name in ("floor", DECODE)
            color = OUR_BAR if name == OURS else FLOOR_BAR if is_bar else PEER_BAR
            axes.barh(at, time.middle - low, left=low, height=0.74, color=color)
            axes.text(
                time.middle * 1.08,
                at,
                _label(works[work], name),
                va="center",
                color=INK if name == OURS else FAINT,
                fontsize=9,
                fontweight="bold" if name == OURS else "normal",
            )
            places.append(at)
            names.append(name)
            at += 1
        at += 0.4
    axes.set_yticks(places, ["reader" if name == OURS else title_of(name) for name in names])
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
