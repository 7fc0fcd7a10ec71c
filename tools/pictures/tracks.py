"""Tracks over time: the work of a worker, the states of a slot; a bar for each stretch.

Imports the theme, and matplotlib where something is drawn. Keeps no state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from tools.pictures.theme import CARD, FAINT, INK, drawn, plain, save

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["COLORS", "Bar", "Panel", "Track", "draw"]

# Distinguishable without seeing red or green (Paul Tol's bright scheme).
COLORS = {
    "fetch": "#4477aa",
    "collate": "#66ccee",
    "step": "#228833",
    "wait": "#ee6677",
    "written by a worker": "#4477aa",
    "ready": "#ccbb44",
    "with your program": "#228833",
}
_BAR, _TRACK_IN = 0.62, 0.34  # height of a bar, in tracks; of a track, in inches
_WIDTH_IN = 10
_CHARACTER = 0.0075  # width of one, of the width of the axes


@dataclass(frozen=True)
class Bar:
    """A stretch of time.

    Attributes:
        kind: what is done in it, a key of `COLORS`.
        begin_ms: when it begins.
        end_ms: when it ends.
        label: written into it where it has room.
    """

    kind: str
    begin_ms: float
    end_ms: float
    label: str = ""


@dataclass(frozen=True)
class Track:
    """A line of bars.

    Attributes:
        name: stands before it.
        bars: do not overlap.
        marks: what is said at a moment, by the moment in ms.
    """

    name: str
    bars: Sequence[Bar]
    marks: Mapping[float, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Panel:
    """Tracks below a title.

    Attributes:
        title: "" without one.
        tracks: from the top.
    """

    title: str
    tracks: Sequence[Track]


def draw(panels: Sequence[Panel], path: Path, begin_ms: float = 0) -> None:
    """Draw panels one below the other, on one axis of time, and write the SVG.

    Args:
        panels: at least one.
        path: of the file.
        begin_ms: where the axis begins; its 0 is when the loop began.
    """
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch

    rows = [len(panel.tracks) + (0.9 if panel.title else 0.2) for panel in panels]
    end_ms = max(bar.end_ms for p in panels for track in p.tracks for bar in track.bars)
    with drawn():
        figure = Figure(
            figsize=(_WIDTH_IN, _TRACK_IN * sum(rows) + 1.0),
            layout="constrained",
            facecolor=CARD,
        )
        all_axes = figure.subplots(
            len(panels), sharex=True, height_ratios=rows, squeeze=False
        ).ravel()
        for panel, axes in zip(panels, all_axes):
            _draw_panel(panel, axes, begin_ms, end_ms)
        all_axes[-1].set_xlabel("ms since the loop began", color=FAINT, fontsize=9)
        all_axes[-1].tick_params(axis="x", labelbottom=True)
        used = {bar.kind for p in panels for track in p.tracks for bar in track.bars}
        figure.legend(
            handles=[
                Patch(color=color, label=kind) for kind, color in COLORS.items() if kind in used
            ],
            loc="outside upper left",
            ncols=len(used),
            frameon=False,
            fontsize=9,
            labelcolor=INK,
        )
        save(figure, path)


def _draw_panel(panel: Panel, axes: Axes, begin_ms: float, end_ms: float) -> None:
    plain(axes)
    per_character_ms = _CHARACTER * (end_ms - begin_ms)
    if panel.title:
        axes.set_title(panel.title, loc="left", color=INK, fontsize=10, fontweight="bold")
    for row, track in enumerate(panel.tracks):
        for bar in track.bars:
            axes.barh(
                row,
                bar.end_ms - bar.begin_ms,
                _BAR,
                bar.begin_ms,
                color=COLORS[bar.kind],
                edgecolor=CARD,
                linewidth=0.4,
            )
            if bar.end_ms - bar.begin_ms > per_character_ms * (len(bar.label) + 1):
                middle_ms = (bar.begin_ms + bar.end_ms) / 2
                axes.text(middle_ms, row, bar.label, va="center", ha="center", color="#ffffff")
        for at_ms, said in track.marks.items():
            axes.plot([at_ms], [row - 0.45], "v", color=INK, markersize=5)
            axes.text(at_ms + per_character_ms, row - 0.45, said, va="center", color=INK)
    axes.set_yticks(range(len(panel.tracks)), [track.name for track in panel.tracks])
    axes.set_ylim(len(panel.tracks) - 0.5, -0.6)
    axes.set_xlim(begin_ms, end_ms)
