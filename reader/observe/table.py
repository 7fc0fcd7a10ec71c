"""A profile as a table for terminals.

Imports rich when a table is made: only rich itself asks for one.
"""

from __future__ import annotations

from typing import Any

from reader.errors import printable
from reader.observe.timeline import Timeline

__all__ = ["renderable"]

_SLOW = 3  # show samples that took this many times as long as usual


def renderable(seen: Timeline) -> Any:
    """Return rich's renderable of a profile."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    verdict, measured = seen.verdict, seen.measured
    color = "green" if verdict.bound_by == "step" else "red"
    lines: list[Any] = [Text(printable(verdict.sentence), style=f"bold {color}")]
    if verdict.advice:
        lines.append(Text(printable(f"{verdict.advice}{verdict.gain_in_words}"), style="bold"))
    table = Table("stage", box=None)
    table.add_column("seconds", justify="right")
    table.add_column("per batch", justify="right")
    table.add_column("share of the loop")
    for name, seconds in measured.rows.items():
        share = seconds / max(measured.seconds, 1e-9)
        each_ms = seconds / max(1, measured.batches) * 1e3
        bar = "#" * min(60, round(20 * share))
        table.add_row(name, f"{seconds:.3f}", f"{each_ms:.3f} ms", f"{share:5.0%} {bar}")
    lines.append(table)
    lines.append(Text(measured.summary))
    lines += [Text(printable(note)) for note in measured.notes]
    for slow in measured.slow_samples[:5]:
        if slow.seconds <= _SLOW * measured.usual_sample_s:
            break
        index = "-" if slow.index is None else slow.index
        lines.append(
            Text(
                f"slow: sample {printable(str(index))}, row {slow.row} of batch {slow.batch},"
                f" {slow.seconds * 1e3:.1f} ms"
            )
        )
    return Group(*lines)
