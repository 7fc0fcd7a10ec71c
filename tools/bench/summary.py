"""What the figures mean: medians, ratios round by round, and the goals they are held to.

Pure functions over the results as they are written to JSON; no clock, no process, no printing.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Results = Mapping[str, Mapping[str, Any]]  # of one work: facts by contestant

OURS = "reader-numpy"
OUTPUTS = ("reader-torch", "reader-paddle")

# At least so many times faster than PyTorch and than Paddle.
FASTER = {
    "tiny": {"torch": 30.0, "paddle": 9.0},
    "image": {"torch": 10.0, "paddle": 20.0},
    "uint8": {"torch": 10.0, "paddle": 20.0},
    "text": {"torch": 45.0, "paddle": 15.0},
}
# At most so many times the bar's time.
WITHIN = {
    "tiny": {"floor": 1.4},
    "image": {"floor": 1.15},
    "uint8": {"floor": 1.15},
    "text": {"floor": 1.4},
    "jpeg": {"decode": 1.06},
}
# Where ten microseconds show in the time of a batch; elsewhere the trainer's CPU tells.
SHORT = ("tiny", "text")
OUTPUT_US = 10.0
CPU_US = 15.0
FIRST_US = 1000.0


@dataclass(frozen=True)
class Spread:
    """A figure over the rounds: its median, and between what most rounds lie.

    Attributes:
        middle: Median.
        low: 10th percentile.
        high: 90th percentile.
    """

    middle: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Summarise `values`, of which there is at least one."""
        return cls(statistics.median(values), percentile(values, 10), percentile(values, 90))


@dataclass(frozen=True)
class Goal:
    """One promise and what became of it.

    Attributes:
        work: Name of the work.
        text: What is promised.
        measured: The figure, or None where it was not measured.
        limit: The figure promised.
        is_floor: Whether the measured figure must be at least the limit, not at most.
        unit: Unit of both: "x" for ratios, "us".
        note: The spread over the rounds, or what else explains the figure.
    """

    work: str
    text: str
    measured: Spread | None
    limit: float
    is_floor: bool
    unit: str
    note: str = ""

    @property
    def is_met(self) -> bool | None:
        """Whether the promise is kept; None where it was not measured."""
        if self.measured is None:
            return None
        if self.is_floor:
            return self.measured.middle >= self.limit
        return self.measured.middle <= self.limit

    @property
    def missed_by(self) -> str:
        """By how much it is missed, in words; empty when it is not."""
        if self.is_met is not False or self.measured is None:
            return ""
        if self.unit == "x":
            share = abs(self.measured.middle / self.limit - 1) * 100
            return f"{share:.0f} %"
        return f"{self.measured.middle - self.limit:.0f} {self.unit}"


def percentile(values: Sequence[float], percent: float) -> float:
    """Return the percentile of `values`, between neighbours in proportion."""
    ordered = sorted(values)
    position = (len(ordered) - 1) * percent / 100
    below = int(position)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (position - below)


def ratio(over: Sequence[float], under: Sequence[float]) -> Spread:
    """Summarise the ratios of two contestants, each taken within one round."""
    return Spread.of([a / b for a, b in zip(over, under)])


def measured(results: Results, name: str) -> Mapping[str, Any] | None:
    """Return the facts of a contestant that ran, else None."""
    facts = results.get(name)
    return None if facts is None or "error" in facts else facts


def times(results: Results, over: str, under: str) -> Spread | None:
    """Return how many times `over` takes as long as `under`; None unless both ran."""
    slow, fast = measured(results, over), measured(results, under)
    return None if slow is None or fast is None else ratio(slow["us"], fast["us"])


def more_than_ours(results: Results, output: str) -> Spread | None:
    """Return the microseconds a framework's output costs more than arrays do.

    What the consumer pays to see the bytes of either is taken off first.
    """
    ours, other = measured(results, OURS), measured(results, output)
    if ours is None or other is None:
        return None
    touching = other["touch_us"] - ours["touch_us"]
    return Spread.of([b - a - touching for a, b in zip(ours["us"], other["us"])])


def more_cpu_than_ours(results: Results, output: str) -> Spread | None:
    """Return the microseconds of trainer CPU a framework's output costs more than arrays do."""
    ours, other = measured(results, OURS), measured(results, output)
    if ours is None or other is None:
        return None
    more = other["untouched_cpu_us"] - ours["untouched_cpu_us"]
    return Spread(more, more, more)


def above_making(facts: Mapping[str, Any]) -> Spread:
    """Return how long the first batch of a later epoch took beyond making it, each round."""
    return Spread.of(
        [first - making for first, making in zip(facts["first_us"], facts["making_us"])]
    )


def goals(works: Mapping[str, Results]) -> Iterator[Goal]:
    """Yield every goal for the works that were run."""
    for work, results in works.items():
        ours = measured(results, OURS)
        for peer, limit in FASTER.get(work, {}).items():
            yield Goal(work, f"faster than {peer}", times(results, peer, OURS), limit, True, "x")
        for bar, limit in WITHIN.get(work, {}).items():
            text = "over the bare floor" if bar == "floor" else "over decoding alone"
            yield Goal(work, text, times(results, OURS, bar), limit, False, "x")
        for output in OUTPUTS:
            text = f"{output} above {OURS}"
            if work in SHORT:
                more = more_than_ours(results, output)
            else:
                more = more_cpu_than_ours(results, output)
                text += ", CPU"
            yield Goal(work, text, more, OUTPUT_US, False, "us")
        cpu = first = None
        notes = ["", ""]
        if ours is not None:
            alone = ours["untouched_cpu_us"]
            cpu = Spread(alone, alone, alone)
            first = above_making(ours)
            beside = Spread.of([value - ours["touch_cpu_us"] for value in ours["cpu_us"]])
            notes[0] = f"{beside.middle:.1f} us when touching is measured warm and taken off"
            if (floor := measured(results, "floor")) is not None:
                # What the machine itself takes just then.
                notes[0] += f"; bare floor {floor['untouched_cpu_us']:.1f} us"
                notes[1] = f"bare floor {above_making(floor).middle:.0f} us"
        yield Goal(work, "trainer CPU beside touching", cpu, CPU_US, False, "us", notes[0])
        yield Goal(work, "first batch above making it", first, FIRST_US, False, "us", notes[1])
