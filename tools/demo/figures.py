"""The figures of an epoch: losses, and how long each step waited for its batch.

Imports the standard library alone. `timed` stands between a loader and a training loop and serves
any loader alike; the figures belong to whoever made them.
"""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

__all__ = ["EpochFigures", "Show", "is_in_arena", "note_copies", "timed"]

T = TypeVar("T")


@dataclasses.dataclass
class EpochFigures:
    """One epoch of training. Waits are in seconds, one for each step; the first has the start."""

    losses: list[float] = dataclasses.field(default_factory=list)
    waits_s: list[float] = dataclasses.field(default_factory=list)
    copy_waits_s: list[float] = dataclasses.field(default_factory=list)  # on devices alone
    total_s: float = 0.0  # training, waiting included; without testing
    accuracy: float | None = None  # on the test images, in [0, 1]
    # whether the network, or the device that copied them, read batches where they were written
    is_shared: bool | None = None

    @property
    def loss(self) -> float:
        """The mean over the steps."""
        return statistics.fmean(self.losses)

    @property
    def start_s(self) -> float:
        """From asking for an epoch to having its first batch."""
        return self.waits_s[0]

    @property
    def mean_wait_s(self) -> float:
        """How long a step waited on average."""
        return statistics.fmean(self.waits_s)

    @property
    def median_wait_s(self) -> float:
        """How long half of the steps waited at most."""
        return statistics.median(self.waits_s)

    @property
    def longest_wait_s(self) -> float:
        """How long the unluckiest step waited."""
        return max(self.waits_s)

    @property
    def mean_copy_wait_s(self) -> float | None:
        """How long a step waited on average for the copy of its batch; None: there was none."""
        return statistics.fmean(self.copy_waits_s) if self.copy_waits_s else None

    @property
    def wait_share(self) -> float:
        """Which part of all steps' time was waiting, in [0, 1]."""
        return sum(self.waits_s) / self.total_s if self.total_s else 0.0


Show: TypeAlias = Callable[[EpochFigures], None]  # called as an epoch goes on


def timed(
    loader: Iterable[T], figures: EpochFigures, settle: Callable[[], None] | None = None
) -> Iterator[T]:
    """Yield what `loader` yields, and note how long each batch was waited for.

    `settle`, where given, waits until a batch has been copied; that is noted apart.
    """
    began = asked = time.perf_counter()
    batches = iter(loader)
    while True:
        try:
            batch = next(batches)
        except StopIteration:
            figures.total_s = time.perf_counter() - began
            return
        got = time.perf_counter()
        figures.waits_s.append(got - asked)
        if settle is not None:
            settle()
            figures.copy_waits_s.append(time.perf_counter() - got)
        yield batch
        del batch  # its memory goes back before the next one is asked for
        asked = time.perf_counter()


def note_copies(epochs: Iterable[EpochFigures], loader: Any) -> None:
    """Note whether devices read all batches where the workers wrote them."""
    devices = loader.stats()["devices"]
    if devices is not None:
        for figures in epochs:
            figures.is_shared = devices["locked_slots"] > 0 == devices["unlocked_copies"]


def is_in_arena(address: Any) -> bool:
    """Whether an address lies in the memory that the workers write batches to."""
    for line in Path("/proc/self/maps").read_text(errors="replace").split("\n"):
        if "memfd:reader-arena" in line:
            low, high = (int(number, 16) for number in line.split()[0].split("-"))
            if low <= int(address) < high:
                return True
    return False
