"""What a profile saw over time, for those who draw or write it.

Imports what was measured, the verdict and the watch, for their types. A record that never changes.
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
