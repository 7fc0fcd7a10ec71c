"""Training in paddle's dynamic graph: `for images, labels in loader`.

Imports paddle, the network and the figures. The loop is written as a user would write it, but for
the lines that take figures.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional

import reader
from tools.demo.digits import DigitImages, Split
from tools.demo.epochs import run_epochs
from tools.demo.figures import EpochFigures, Show, is_in_arena, timed
from tools.demo.network import make_network, make_optimizer
from tools.demo.options import Options

__all__ = ["Trainer", "train"]


class Trainer:
    """A network, its optimizer and the step; the loader is given with each epoch."""

    def __init__(self, steps: int, options: Options) -> None:
        paddle.seed(options.seed)
        self.network = make_network()
        self.optimizer, self.schedule = make_optimizer(
            steps, options.rate, self.network.parameters()
        )

    def run_epoch(self, loader: Iterable[Any], figures: EpochFigures, show: Show) -> None:
        """Train on every batch of `loader`."""
        for images, labels in timed(loader, figures):
            if figures.is_shared is None:
                figures.is_shared = is_in_arena(images.data_ptr())
            loss = functional.cross_entropy(self.network(images), labels)
            loss.backward()
            self.optimizer.step()
            self.optimizer.clear_grad()
            self.schedule.step()
            figures.losses.append(float(loss))
            show(figures)

    def test(self, loader: Iterable[Any]) -> float:
        """Return the part of the images whose label the network finds."""
        hits: list[Any] = []
        with paddle.no_grad():
            for images, labels in loader:
                hits += [self.network(images).numpy().argmax(1) == labels.numpy()]
        return float(np.concatenate(hits).mean())


def train(train_on: Split, test_with: Split, options: Options, show: Show) -> list[EpochFigures]:
    """Train for all epochs and test after each. `show` is called after every step and test."""
    with (
        reader.DataLoader(
            DigitImages(train_on, reader.sample_rng),
            batch_size=options.batch_size,
            shuffle=True,
            num_workers=options.workers,
            persistent_workers=True,
            framework="paddle",
            seed=options.seed,
        ) as loader,
        reader.DataLoader(
            DigitImages(test_with), batch_size=options.test_batch_size, framework="paddle"
        ) as tests,
    ):
        trainer = Trainer(options.epochs * len(loader), options)
        return run_epochs(trainer, loader, tests, options.epochs, show)
