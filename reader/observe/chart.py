"""A profile as a picture: workers and steps, waits, and memory, over time.

Imports the timeline, and matplotlib when a picture is drawn. The caller owns the figure.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from reader.observe.timeline import Timeline

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["NEEDED", "draw", "plot_refusal"]

NEEDED = 'plot needs matplotlib, which cannot be imported ({}): pip install "lodreader[profile]"'

_MOST = 4000  # batches
_PRINT_ENDINGS = (
    "from matplotlib.backend_bases import FigureCanvasBase;"
    " print(*sorted(FigureCanvasBase.get_supported_filetypes()))"
)
_COLORS = {"fetch": "#4477aa", "collate": "#66ccee", "step": "#228833", "wait": "#ee6677"}


def plot_refusal(path: str) -> str:
    """Return why a picture cannot be written to a file of this name; "": it can.

    Another process imports matplotlib: the program may still choose its backend.
    """
    command = [sys.executable, "-c", _PRINT_ENDINGS]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return NEEDED.format(done.stderr.strip().rpartition("\n")[2])
    ending, endings = Path(path).suffix[1:].lower(), done.stdout.split()
    if not ending or ending in endings:
        return ""  # without an ending matplotlib chooses one
    return f"matplotlib writes no {'.' + ending!r}: its endings are {', '.join(endings)}"


def draw(seen: Timeline) -> Figure:
    """Return the picture of a profile."""
    from matplotlib.figure import Figure

    lanes = 1 + max(1, seen.measured.workers)
    figure = Figure(figsize=(10, 4.5 + 0.25 * min(lanes, 32)), layout="constrained")
    tracks, waits, memory = figure.subplots(
        3, 1, sharex=True, height_ratios=[1 + 0.3 * min(lanes, 32), 1, 1]
    )
    records = seen.records[-_MOST:]
    _draw_tracks(tracks, seen, records)
    _draw_waits(waits, seen, records)
    _draw_memory(memory, seen)
    memory.set_xlabel("seconds")
    figure.suptitle(seen.verdict.sentence, fontsize=9, wrap=True)
    return figure


def _spans(seen: Timeline, begin: Any, end: Any) -> list[tuple[float, float]]:
    begin_s, width_s = (begin - seen.begun_ns) * 1e-9, np.maximum(end - begin, 0) * 1e-9
    return [(float(x), float(width)) for x, width in zip(begin_s, width_s)]


def _draw_tracks(axes: Axes, seen: Timeline, records: Any) -> None:
    asked, delivered = records["asked_ns"], records["delivered_ns"]
    after = np.append(asked[1:], seen.ended_ns) if len(records) else asked
    _draw_bars(axes, _spans(seen, delivered, after), -0.4, "step")
    _draw_bars(axes, _spans(seen, asked, delivered), -0.4, "wait")
    names = ["trainer"]
    for worker_id in range(max(1, seen.measured.workers)):
        is_own = (records["begun_ns"] > 0) & (records["worker"].clip(min=0) == worker_id)
        own = records[is_own]
        fetched = own["begun_ns"] + own["fetch_ns"]
        for name, begin, end in (
            ("fetch", own["begun_ns"], fetched),
            ("collate", fetched, own["sent_ns"]),
        ):
            _draw_bars(axes, _spans(seen, begin, end), worker_id + 0.6, name, worker_id == 0)
        names.append(f"worker {worker_id}" if seen.measured.workers else "making")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.legend(loc="lower right", bbox_to_anchor=(1, 1), ncols=4, fontsize=8, frameon=False)


def _draw_bars(
    axes: Axes, spans: list[tuple[float, float]], at: float, name: str, is_named: bool = True
) -> None:
    """Draw spans of time without edges, which would show empty spans as lines."""
    label = name if is_named else f"_{name}"
    axes.broken_barh(spans, (at, 0.8), color=_COLORS[name], label=label, linewidth=0)


def _draw_waits(axes: Axes, seen: Timeline, records: Any) -> None:
    at = (records["delivered_ns"] - seen.begun_ns) * 1e-9
    waits_ms = (records["delivered_ns"] - records["asked_ns"]) * 1e-6
    axes.vlines(at, 0.0, waits_ms, color=_COLORS["wait"], linewidth=1)
    axes.set_ylabel("wait (ms)")
    axes.set_ylim(bottom=0)


def _draw_memory(axes: Axes, seen: Timeline) -> None:
    at = [(sample.at_ns - seen.begun_ns) * 1e-9 for sample in seen.memory]
    for name in ("trainer", "workers", "batches"):
        axes.plot(at, [getattr(sample, name) / (1 << 20) for sample in seen.memory], label=name)
    axes.set_ylabel("MiB")
    axes.set_ylim(bottom=0)
    axes.legend(loc="lower right", bbox_to_anchor=(1, 0.95), ncols=3, fontsize=8, frameon=False)
