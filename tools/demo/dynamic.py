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
from tools.demo.figures import EpochFigures, Show, is_in_arena, note_copies, timed
from tools.demo.network import make_network, make_optimizer
from tools.demo.options import Options

__all__ = ["Trainer", "train"]


class Replica:
    """A network on one place, and its optimizer."""

    def __init__(self, name: str, steps: int, options: Options) -> None:
        paddle.device.set_device(name)
        paddle.seed(options.seed)  # all replicas begin alike
        self.name = name
        self.network = make_network()
        self.parameters = self.network.parameters()
        self.optimizer, self.schedule = make_optimizer(steps, options.rate, self.parameters)

    def learn(self, images: Any, labels: Any) -> float:
        """Compute the gradients of a batch; returns the loss."""
        paddle.device.set_device(self.name)
        loss = functional.cross_entropy(self.network(images), labels)
        loss.backward()
        return float(loss)

    def step(self) -> None:
        """Apply the gradients."""
        paddle.device.set_device(self.name)
        self.optimizer.step()
        self.optimizer.clear_grad(set_to_zero=False)
        self.schedule.step()


class Trainer:
    """A replica of the network on each place; the loader is given with each epoch."""

    def __init__(self, steps: int, options: Options) -> None:
        self.places = options.places
        self.replicas = [Replica(name, steps, options) for name in self.places.names]

    def run_epoch(self, loader: Iterable[Any], figures: EpochFigures, show: Show) -> None:
        """Train on every batch of `loader`."""
        replicas = self.replicas
        settle = self.places.settle if self.places.is_device else None
        for step in timed(loader, figures, settle):
            batches = step if len(replicas) > 1 else [step]
            if figures.is_shared is None and settle is None:
                figures.is_shared = is_in_arena(batches[0][0].data_ptr())
            pairs = zip(replicas, batches, strict=False)  # the last group may be short
            losses = [replica.learn(*batch) for replica, batch in pairs]
            if len(replicas) > 1:
                share_gradients(replicas, len(losses))
            for replica in replicas:
                replica.step()
            figures.losses.append(sum(losses) / len(losses))
            show(figures)

    def test(self, loader: Iterable[Any]) -> float:
        """Return the part of the images whose label the network finds."""
        hits: list[Any] = []
        network = self.replicas[0].network
        paddle.device.set_device(self.places.names[0])
        with paddle.no_grad():
            for images, labels in loader:
                hits += [network(images).numpy().argmax(1) == labels.numpy()]
        return float(np.concatenate(hits).mean())


def share_gradients(replicas: list[Replica], learned: int) -> None:
    """Give each replica the mean gradients of the first `learned`, which got a batch."""
    for same in zip(*(replica.parameters for replica in replicas), strict=True):
        mean = sum(parameter.grad.numpy() for parameter in same[:learned]) / learned
        for parameter in same:
            if parameter.grad is None:
                parameter.grad = paddle.to_tensor(mean, place=parameter.place)
            else:
                parameter.grad.set_value(mean)


def train(train_on: Split, test_with: Split, options: Options, show: Show) -> list[EpochFigures]:
    """Train for all epochs and test after each. `show` is called after every step and test."""
    places = options.places.to_paddle()
    with (
        reader.DataLoader(
            DigitImages(train_on, reader.sample_rng),
            batch_size=options.share,
            shuffle=True,
            num_workers=options.workers,
            persistent_workers=True,
            framework="paddle",
            places=places,
            drop_last_group=False,
            seed=options.seed,
        ) as loader,
        reader.DataLoader(
            DigitImages(test_with),
            batch_size=options.test_batch_size,
            framework="paddle",
            places=places[0],
        ) as tests,
    ):
        trainer = Trainer(options.epochs * loader.steps, options)
        found = run_epochs(trainer, loader, tests, options.epochs, show)
        note_copies(found, loader)
        return found
