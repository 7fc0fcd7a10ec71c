"""The options of a run, and the command line that sets them.

Imports the names of the places. Options are frozen; whoever parses them owns them.
"""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Callable, Sequence

from tools.demo.places import CPU, TrainingPlaces

__all__ = ["Options", "parse"]


@dataclasses.dataclass(frozen=True)
class Options:
    """How to train, and which test accuracy counts as done."""

    epochs: int
    batch_size: int
    rate: float  # of learning, at the first step
    target: float  # test accuracy to reach, in [0, 1]
    workers: int = 2
    seed: int = 7
    test_batch_size: int = 90
    place: str | None = None  # as find_places takes it
    devices: int = 1
    places: TrainingPlaces = CPU  # found by the program

    @property
    def share(self) -> int:
        """How many images of a step's batch each place gets."""
        return max(1, self.batch_size // len(self.places.names))


FULL = Options(epochs=12, batch_size=32, rate=4e-3, target=0.97)
SMALL = Options(epochs=2, batch_size=16, rate=5e-3, target=0.92)


def _at_least(low: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if int(text) < low:
            raise argparse.ArgumentTypeError(f"{text} is less than {low}")
        return int(text)

    return number


def parse(arguments: Sequence[str]) -> Options:
    """Read the command line. Leaves the program on --help and on wrong arguments."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.demo",
        description="Train a small network on handwritten digits with paddle, in the dynamic and "
        "in the static graph, and show how long each step waited for its batch.",
    )
    add = parser.add_argument
    add("--epochs", type=_at_least(1), metavar="N", help=f"default {FULL.epochs}; small: 2")
    add("--workers", type=_at_least(0), default=FULL.workers, metavar="N", help="default 2")
    add("--seed", type=_at_least(0), default=FULL.seed, metavar="N", help="default 7")
    add(
        "--small",
        action="store_true",
        help=f"a quick look: few epochs of small batches, done at {SMALL.target:.0%} instead of "
        f"{FULL.target:.0%}",
    )
    add(
        "--place",
        metavar="WHERE",
        help="where to train: cpu, gpu, simulated (accelerators that are built from source and run"
        " on the CPU), or names such as gpu:0,gpu:1; default: GPUs where Paddle finds some, else"
        " the CPU",
    )
    add(
        "--devices",
        type=_at_least(1),
        default=1,
        metavar="N",
        help="how many of them; each step takes a batch for each (default 1)",
    )
    given = parser.parse_args(arguments)
    base = SMALL if given.small else FULL
    return dataclasses.replace(
        base,
        epochs=given.epochs or base.epochs,
        workers=given.workers,
        seed=given.seed,
        place=given.place,
        devices=given.devices,
    )
