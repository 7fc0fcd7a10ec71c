"""Measure a training step without a loader: the ceiling of any loader.

Imports Observed. It works on a copy of the loader, so that the loader's own position stays; the
result is a record.
"""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from reader.checks import as_int
from reader.errors import ConfigError, ConfigTypeError, got
from reader.observe.observed import Observed
from reader.random.random_state import capture, generator_state, put_back, set_generator

__all__ = ["Ceiling", "measure"]


@dataclass(frozen=True)
class Ceiling:
    """The speed of a step with batches that cost nothing, and the loader's own speed.

    Attributes:
        steps: how many steps were measured, after one that was not.
        step_s: mean seconds of a step.
        loader_s: mean seconds of a batch in the loader's own loop, over the batches in its log, to
            compare with; None: fewer than two batches.
    """

    steps: int
    step_s: float
    loader_s: float | None

    @property
    def steps_per_s(self) -> float:
        """Steps in a second, with batches that cost nothing."""
        return 1.0 / self.step_s

    @property
    def loader_steps_per_s(self) -> float | None:
        """Steps in a second of the loader's own loop; None: unknown."""
        return None if not self.loader_s else 1.0 / self.loader_s

    @property
    def gain(self) -> float | None:
        """The speed-up of the loop with a loader that costs nothing; None: unknown."""
        return None if self.loader_s is None else max(1.0, self.loader_s / self.step_s)

    def __str__(self) -> str:
        text = f"{self.steps_per_s:.4g} steps a second ({self.step_s * 1e3:.4g} ms for each) with"
        text += f" batches that cost nothing, over {self.steps} steps"
        if self.loader_steps_per_s is None:
            return text + "; the loader has not run yet"
        return (
            f"{text}; with the loader {self.loader_steps_per_s:.4g}: up to {self.gain:.3g} times as"
            " fast"
        )


def measure(
    loader: Observed,
    step: Callable[[Any], Any],
    batches: int,
    seconds: float,
    steps: int | None,
) -> Ceiling:
    """Measure the ceiling: see `ObservedFace.ceiling`."""
    if not callable(step):
        raise ConfigTypeError(
            f"ceiling takes a function of a batch, got {got(step)}: pass your training step"
        )
    batches = as_int("batches", batches, low=1, remedy="It is how many batches are kept.")
    if steps is not None:
        steps = as_int("steps", steps, low=1, remedy="None: as many as the seconds allow.")
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < 1e6:
        raise ConfigError(
            f"seconds must be a number above 0 and below 1e6, got {got(seconds)}: it is how long"
            " steps are measured"
        )
    loader_s = _usual_s(loader)
    kept = _taken(loader, batches)
    step(kept[0])  # the first step compiles and allocates
    done = 0
    began = time.perf_counter()
    spent_s = 0.0
    for batch in itertools.cycle(kept):
        step(batch)
        done += 1
        spent_s = time.perf_counter() - began
        if spent_s >= seconds or done == steps:
            break
    return Ceiling(done, max(spent_s / done, 1e-9), loader_s)


def _taken(loader: Observed, count: int) -> list[Any]:
    """Return the first batches of a copy of a loader; the copy's workers have ended."""
    other: Any = copy.copy(loader)
    generator = getattr(loader, "generator", None)
    drawn = None if generator is None else generator_state(generator)
    before = capture()
    batches = None
    try:
        batches = iter(other)
        kept = list(itertools.islice(batches, count))
    finally:
        end = getattr(batches, "close", None)
        if callable(end):
            end()
        del batches
        other.close()
        put_back(before)
        if drawn is not None:
            set_generator(generator, drawn)
    if not kept:
        raise ConfigError("ceiling needs a batch, and the loader gave none: its dataset is empty")
    return kept


def _usual_s(loader: Observed) -> float | None:
    """Return the mean seconds between two batches in the log."""
    import numpy as np

    from reader._core.wire.times_log import FIELDS

    records = np.frombuffer(loader._observed_times().last(), np.dtype(list(FIELDS)))
    between = np.diff(records["delivered_ns"])[records["epoch"][1:] == records["epoch"][:-1]]
    return float(between.mean()) * 1e-9 if len(between) else None
