"""The epochs of one training, whatever its graph: train, test, note, show.

Imports the figures alone. The trainer and the loaders are the caller's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from tools.demo.figures import EpochFigures, Show

__all__ = ["Trainer", "run_epochs"]


class Trainer(Protocol):
    """What trains in either graph."""

    def run_epoch(self, loader: Iterable[Any], figures: EpochFigures, show: Show) -> None:
        """Train on every batch of `loader`."""

    def test(self, loader: Iterable[Any]) -> float:
        """Return the part of the images whose label the network finds."""


def run_epochs(
    trainer: Trainer, loader: Iterable[Any], tests: Iterable[Any], epochs: int, show: Show
) -> list[EpochFigures]:
    """Train and test `epochs` times. `show` is called after every step, and after each test."""
    found = []
    for _ in range(epochs):
        figures = EpochFigures()
        trainer.run_epoch(loader, figures, show)
        figures.accuracy = trainer.test(tests)
        show(figures)
        found.append(figures)
    return found
