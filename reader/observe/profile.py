"""A profile of a loop over a loader: what bounds it, and when its batches were at each stage.

Imports the measurement, the verdict and, when used, the chart and the trace. It reads existing
counters; while it runs one thread reads clocks and memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy.typing as npt

from reader.checks import refuse_url
from reader.errors import ConfigTypeError, ReaderError, got, printable
from reader.files import open_to_write
from reader.observe.judge import judge
from reader.observe.measured import Measured
from reader.observe.measurement import Measurement
from reader.observe.observed import Observed, observed
from reader.observe.timeline import Timeline
from reader.observe.verdict import Verdict
from reader.observe.watch import MemorySample

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Profile", "profile"]

_SLOW = 3  # show samples that took this many times as long as usual


def profile(loader: Any) -> Profile:
    """Return a profile of a loader, for a `with` statement around a loop over it.

    Args:
        loader: a loader of this package, of whichever face.

    Raises:
        ConfigTypeError: it is no loader of this package.

    >>> import reader
    >>> loader = reader.DataLoader([1, 2, 3])
    >>> with reader.profile(loader) as seen:
    ...     total = sum(int(batch[0]) for batch in loader)
    >>> seen.batches
    3
    """
    return Profile(observed(loader))


class Profile:
    """The profile of a loop. `print` shows it once the loop has ended.

    Attributes:
        measured: numbers, see `Measured`.
        verdict: what bounds the loop, see `Verdict`.
        records: of the batches, an array with the fields of
            `reader.observe.watch.RECORD_FIELDS`; times in ns of `time.monotonic_ns`, 0: unknown.
            Of more than 65536, or of more than 512 within a tenth of a second, the last ones.
        memory: samples of the memory during the loop, see `MemorySample`.
    """

    measured: Measured
    verdict: Verdict
    records: npt.NDArray[Any]
    memory: list[MemorySample]

    def __init__(self, loader: Observed) -> None:
        self._loader = loader
        self._measurement: Measurement | None = None
        self._is_over = False

    def __enter__(self) -> Profile:
        if self._measurement is not None:
            raise ReaderError("a profile is of one loop: make another one, reader.profile(loader)")
        self._measurement = Measurement(self._loader)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._measurement is not None and not self._is_over:
            self._stop(self._measurement)

    def _stop(
        self, measurement: Measurement, opened_ns: Sequence[int] = (), is_other: bool = False
    ) -> None:
        self._is_over = True
        self.measured, replay = measurement.stop(opened_ns, is_other)
        self.records, self.memory = measurement.records, measurement.memory
        self.verdict = judge(self.measured, replay)

    @classmethod
    def of(
        cls, measurement: Measurement, opened_ns: Sequence[int], is_other: bool = False
    ) -> Profile:
        """End a measurement and return its profile: see `Measurement.stop`."""
        made = cls(measurement.loader)
        made._measurement = measurement
        made._stop(measurement, opened_ns, is_other)
        return made

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            """Refuse attributes that are known only at the end."""
            if name in ("measured", "verdict", "records", "memory"):
                raise ReaderError("nothing was measured yet: leave the with statement first")
            raise AttributeError(f"a profile has no attribute {name!r}")

    @property
    def bound_by(self) -> str:
        """What bounds the loop, in a word; see `Verdict`."""
        return self.verdict.bound_by

    @property
    def batches(self) -> int:
        """How many batches were delivered."""
        return self.measured.batches

    def _timeline(self) -> Timeline:
        if self._measurement is None or not self._is_over:
            raise ReaderError("nothing was measured yet: leave the with statement first")
        begun_ns, ended_ns = self._measurement.begun_ns, self._measurement.ended_ns
        return Timeline(self.measured, self.verdict, self.records, self.memory, begun_ns, ended_ns)

    def to_json(self) -> str:
        """Return verdict and numbers as JSON."""
        return json.dumps({"verdict": asdict(self.verdict), "measured": asdict(self.measured)})

    def to_trace(self, path: str | os.PathLike[str]) -> None:
        """Write the stages of each batch as a trace for ui.perfetto.dev or chrome://tracing.

        The trainer has a track with its steps and waits. Each worker has one with its fetching and
        collating, and another with its waiting tasks. Far slower samples are marked. Memory is
        drawn too.

        Args:
            path: of the JSON file, which is overwritten.

        Raises:
            ConfigTypeError: `path` is no path.
            OSError: the file cannot be written.
        """
        from reader.observe.trace import trace_of

        trace = trace_of(self._timeline())
        checked = _path("to_trace", path)
        with open(checked, "w", encoding="utf-8", opener=open_to_write) as file:
            json.dump(trace, file)

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw the loop over time: workers and steps, waits, and memory.

        Needs matplotlib: pip install "lodreader[profile]". Draws the last 4000 batches. Opens no
        window and does not change matplotlib's state: the figure is the caller's.

        Args:
            path: of a file to write, whose ending names its format, such as "loop.png"; None: only
                return the figure.

        Raises:
            ConfigTypeError: `path` is no path.
            ReaderError: matplotlib is not installed.
        """
        from reader.observe.chart import NEEDED, draw

        timeline = self._timeline()
        checked = None if path is None else _path("plot", path)
        try:
            figure = draw(timeline)
        except ImportError as error:
            raise ReaderError(NEEDED.format(error)) from error
        if checked is not None:
            if Path(checked).is_fifo():  # matplotlib would wait for a reader
                os.close(open_to_write(checked, os.O_WRONLY))
            figure.savefig(checked)
        return figure

    def show(self) -> None:
        """Print the profile, in colors if the output is a terminal and rich is installed."""
        if sys.stdout.isatty():
            try:
                from rich.console import Console
            except ImportError:
                pass
            else:
                Console().print(self)
                return
        sys.stdout.write(f"{self}\n")

    def __rich__(self) -> Any:
        """Return the renderable for `rich.print`."""
        from reader.observe.table import renderable

        return renderable(self._timeline())

    def __str__(self) -> str:
        seen, verdict = self.measured, self.verdict
        lines = [verdict.sentence]
        if verdict.advice:
            lines.append(f"{verdict.advice}{verdict.gain_in_words}")
        lines += ["", f"{'stage':10s} {'seconds':>9s} {'per batch':>11s}"]
        for name, seconds in seen.rows.items():
            each_ms = seconds / max(1, seen.batches) * 1e3
            lines.append(f"{name:10s} {seconds:9.3f} {each_ms:8.3f} ms")
        lines += ["", seen.summary]
        lines += seen.notes
        lines += [
            f"slow: sample {'-' if s.index is None else s.index}, row {s.row} of batch {s.batch},"
            f" {s.seconds * 1e3:.1f} ms"
            for s in seen.slow_samples[:5]
            if s.seconds > _SLOW * seen.usual_sample_s
        ]
        return "\n".join(map(printable, lines))

    def __repr__(self) -> str:
        return f"<reader profile, {self.batches} batches, bound by {self.bound_by}>"


def _path(method: str, path: Any) -> str | os.PathLike[str]:
    if not isinstance(path, (str, os.PathLike)):
        raise ConfigTypeError(f"{method} takes the path of a file, got {got(path)}")
    refuse_url(method, path)
    return path
