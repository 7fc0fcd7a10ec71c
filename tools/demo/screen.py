"""The output of the demo: a table of epochs, with a progress bar while one is running.

Imports the figures. On a terminal the bar is drawn over itself; elsewhere each epoch is one line.
A Screen owns the line it draws on.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

from tools.demo.figures import EpochFigures

__all__ = ["Screen", "duration", "percent"]

_REDRAW_S = 0.05
_COLUMNS = ("loss", "accuracy", "time", "start", "wait: mean", "p50", "max", "share", "copy")
_WIDTHS = (8, 9, 8, 8, 11, 8, 8, 7, 8)


def duration(seconds: float) -> str:
    """Write a time with the unit that reads best."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    if seconds >= 0.1:
        return f"{seconds * 1e3:.0f} ms"
    if seconds >= 1e-3:
        return f"{seconds * 1e3:.1f} ms"
    return f"{seconds * 1e6:.0f} us"


def percent(part: float) -> str:
    """Write a fraction of 1."""
    return f"{part * 100:.1f} %"


class Screen:
    """Writes to one stream; knows whether that is a terminal."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._is_terminal = self._stream.isatty()
        self._drawn_s = 0.0
        self._is_drawn = False

    def line(self, text: str = "") -> None:
        """Write a line, over the bar if there is one."""
        self._clear()
        self._stream.write(f"{text.rstrip()}\n")
        self._stream.flush()

    def header(self, first: str) -> None:
        """Write the head of a table of epochs whose first column is called `first`."""
        cells = [text.rjust(width) for text, width in zip(_COLUMNS, _WIDTHS, strict=True)]
        self.line(f"  {first:<22}" + "".join(cells))

    def row(self, first: str, figures: EpochFigures) -> None:
        """Write an epoch as a row of the table."""
        accuracy = "" if figures.accuracy is None else percent(figures.accuracy)
        texts = (
            f"{figures.loss:.4f}",
            accuracy,
            duration(figures.total_s),
            duration(figures.start_s),
            duration(figures.mean_wait_s),
            duration(figures.median_wait_s),
            duration(figures.longest_wait_s),
            percent(figures.wait_share),
            "-" if figures.mean_copy_wait_s is None else duration(figures.mean_copy_wait_s),
        )
        cells = [text.rjust(width) for text, width in zip(texts, _WIDTHS, strict=True)]
        self.line(f"  {first:<22}" + "".join(cells))

    def bar(self, first: str, figures: EpochFigures, steps: int) -> None:
        """Draw how far the running epoch is, at most twenty times a second."""
        now = time.monotonic()
        if not self._is_terminal or now - self._drawn_s < _REDRAW_S:
            return
        done = len(figures.losses)
        numbers = f" {done:{len(str(steps))}}/{steps}  loss {figures.losses[-1]:.4f}"
        numbers += f"  waited {duration(figures.waits_s[-1])}"
        columns = shutil.get_terminal_size().columns
        width = max(10, min(40, columns - 27 - len(numbers)))
        full = done * width // steps
        text = f"  {first:<22}[{'#' * full}{'.' * (width - full)}]{numbers}"
        self._clear()
        self._stream.write(text[: columns - 1])
        self._stream.flush()
        self._drawn_s, self._is_drawn = now, True

    def _clear(self) -> None:
        if self._is_drawn:
            self._stream.write("\r\x1b[2K")
            self._is_drawn = False
