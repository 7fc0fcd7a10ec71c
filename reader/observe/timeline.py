"""A profile over time, for the chart, the trace and the table.

Imports measurements, verdict and watch for their types. Immutable.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy.typing as npt

from reader.observe.measured import Measured
from reader.observe.verdict import Verdict
from reader.observe.watch import MemorySample

__all__ = ["Timeline"]


@dataclass(frozen=True)
class Timeline:
    """A loop from its beginning to its end.

    Attributes:
        measured: its numbers.
        verdict: what bounds it.
        records: of its batches, see `Profile.records`.
        memory: samples of it.
        begun_ns: when it began, by `time.monotonic_ns`.
        ended_ns: when it ended.
    """

    measured: Measured
    verdict: Verdict
    records: npt.NDArray[Any]
    memory: list[MemorySample]
    begun_ns: int
    ended_ns: int
