"""The colors of drawn pictures, and how they are saved.

A file carries its own card and a style for dark viewers, so it reads on any page; the same figure
gives the same bytes. Imports matplotlib where a figure is saved, and keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["CARD", "FAINT", "FLOOR_BAR", "INK", "OUR_BAR", "PEER_BAR", "drawn", "plain", "save"]

# Light color of each part, and its color for a dark viewer.
CARD, INK, FAINT, _GRID = "#fdfdfc", "#24292e", "#6b7379", "#e1e4e6"
OUR_BAR, FLOOR_BAR, PEER_BAR = "#0e7c86", "#9fb4b8", "#c9a77c"
_DARK = {
    CARD: "#161a1d",
    INK: "#e7eaec",
    FAINT: "#9aa4ab",
    OUR_BAR: "#2fb3bd",
    FLOOR_BAR: "#5b7378",
    PEER_BAR: "#a07d50",
    _GRID: "#2b3237",
}


@contextmanager
def drawn() -> Iterator[None]:
    """Draw as SVG with text that stays text, whatever matplotlib was told elsewhere."""
    import matplotlib

    style: Any = {
        "svg.fonttype": "none",
        "svg.hashsalt": "reader",
        "font.size": 8,
        "font.family": ["DejaVu Sans", "sans-serif"],
    }
    with matplotlib.rc_context(style):
        yield


def plain(axes: Axes) -> None:
    """Take frame and tick marks off, and lay a faint grid behind for the horizontal axis."""
    axes.set_facecolor("none")
    axes.tick_params(length=0, labelcolor=INK, labelsize=9)
    axes.tick_params(axis="x", labelcolor=FAINT)
    axes.grid(axis="x", color=_GRID, linewidth=0.8)
    axes.set_axisbelow(True)
    for spine in axes.spines.values():
        spine.set_visible(False)


def save(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, with colors for light and dark viewers."""
    path.parent.mkdir(parents=True, exist_ok=True)
    empty = {"Date": None, "Creator": None}
    figure.savefig(path, format="svg", facecolor=CARD, metadata=empty)
    path.write_text(_with_dark_style(path.read_text(encoding="utf-8")), encoding="utf-8")


def _with_dark_style(svg: str) -> str:
    """Add a style sheet that swaps the colors for a viewer who prefers dark."""
    rules = "".join(
        f'[style*="fill: {light}"]{{fill:{dark}!important}}'
        f'[style*="stroke: {light}"]{{stroke:{dark}!important}}'
        for light, dark in _DARK.items()
    )
    style = f"<style>@media (prefers-color-scheme: dark){{{rules}}}</style>\n"
    head, mark, tail = svg.partition("<defs>")
    lines = (head + style + mark + tail).splitlines()
    return "\n".join(line.rstrip() for line in lines) + "\n"
