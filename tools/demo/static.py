"""Training in paddle's static graph: an Executor fed with the loader's DenseTensors as they come.

Imports paddle, the network and the figures. A batch is `[{name: DenseTensor}]`, which is what
`Executor.run` takes; nothing is copied on the way from a worker into the program.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterable
from typing import Any

import paddle
from paddle.nn import functional

import reader
from tools.demo.digits import PIXELS, DigitImages, Split
from tools.demo.epochs import run_epochs
from tools.demo.figures import EpochFigures, Show, is_in_arena, timed
from tools.demo.network import make_network, make_optimizer
from tools.demo.options import Options

__all__ = ["train"]


@dataclasses.dataclass(frozen=True)
class Graph:
    """One program with its inputs and its output."""

    main: Any
    startup: Any
    feeds: list[Any]
    output: Any


def make_graph(make_output: Callable[[Any, Any], Any]) -> Graph:
    """Build a program: inputs, network, and what `make_output(scores, labels)` adds.

    Names are counted anew in each program, so that all of them share their parameters.
    """
    make_program: Callable[[], Any] = paddle.static.Program
    main, startup = make_program(), make_program()
    with paddle.utils.unique_name.guard(), paddle.static.program_guard(main, startup):
        images = paddle.static.data("images", [None, 1, PIXELS, PIXELS], "float32")
        labels = paddle.static.data("labels", [None], "int64")
        output = make_output(make_network()(images), labels)
    return Graph(main, startup, [images, labels], output)


def make_training(steps: int, rate: float) -> tuple[Graph, Any]:
    """Build the program that trains, with its loss as output, and the schedule of its rate."""
    schedules = []

    def make_loss(scores: Any, labels: Any) -> Any:
        loss = functional.cross_entropy(scores, labels)
        optimizer, schedule = make_optimizer(steps, rate)
        optimizer.minimize(loss)
        schedules.append(schedule)
        return loss

    return make_graph(make_loss), schedules[0]


def count_hits(scores: Any, labels: Any) -> Any:
    """Add to a program: how many labels the network finds."""
    return (scores.argmax(1) == labels).astype("int64").sum()


class Trainer:
    """The programs that train and test, and the executor that runs them."""

    def __init__(self, steps: int, options: Options) -> None:
        paddle.seed(options.seed)
        self.training, self.schedule = make_training(steps, options.rate)
        self.testing = make_graph(count_hits)
        self.executor = paddle.static.Executor(paddle.CPUPlace())
        self.executor.run(self.training.startup)

    def run_epoch(self, loader: Iterable[Any], figures: EpochFigures, show: Show) -> None:
        """Train on every batch of `loader`."""
        for feed in timed(loader, figures):
            if figures.is_shared is None:
                figures.is_shared = is_in_arena(feed[0]["images"]._ptr())
            loss = self._run(self.training, feed)
            self.schedule.step()
            figures.losses.append(float(loss))
            show(figures)

    def test(self, loader: Iterable[Any]) -> float:
        """Return the part of the images whose label the network finds."""
        hits = images = 0
        for feed in loader:
            hits += int(self._run(self.testing, feed))
            images += feed[0]["labels"].shape()[0]
        return hits / images

    def _run(self, graph: Graph, feed: Any) -> Any:
        return self.executor.run(graph.main, feed=feed, fetch_list=[graph.output])[0]


def train(train_on: Split, test_with: Split, options: Options, show: Show) -> list[EpochFigures]:
    """Train for all epochs and test after each. `show` is called after every step and test."""
    paddle.enable_static()
    try:
        return _train(train_on, test_with, options, show)
    finally:
        paddle.disable_static()
        # An executor that waits for garbage collection when another loader forks its workers would
        # be collected there, too, and paddle's does not survive that. Ours never collect it.
        gc.collect()


def _train(train_on: Split, test_with: Split, options: Options, show: Show) -> list[EpochFigures]:
    steps = -(-len(train_on.labels) // options.batch_size)
    trainer = Trainer(options.epochs * steps, options)
    with (
        reader.DataLoader(
            DigitImages(train_on, reader.sample_rng),
            feed_list=trainer.training.feeds,
            return_list=False,
            batch_size=options.batch_size,
            shuffle=True,
            num_workers=options.workers,
            persistent_workers=True,
            framework="paddle",
            seed=options.seed,
        ) as loader,
        reader.DataLoader(
            DigitImages(test_with),
            feed_list=trainer.testing.feeds,
            return_list=False,
            batch_size=options.test_batch_size,
            framework="paddle",
        ) as tests,
    ):
        return run_epochs(trainer, loader, tests, options.epochs, show)
