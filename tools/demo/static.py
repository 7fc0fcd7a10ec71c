"""Training in paddle's static graph: an Executor fed with the loader's DenseTensors as they come.

Imports paddle, the network and the figures. A batch is `[{name: DenseTensor}]`, which is what
`Executor.run` takes; nothing is copied on the way from a worker into the program.
"""

from __future__ import annotations

import dataclasses
import gc
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import paddle
from paddle.nn import functional

import reader
from tools.demo.digits import PIXELS, DigitImages, Split
from tools.demo.epochs import run_epochs
from tools.demo.figures import EpochFigures, Show, is_in_arena, note_copies, timed
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
    """The programs that train and test, and for each place an executor and the parameters."""

    def __init__(self, steps: int, options: Options) -> None:
        paddle.seed(options.seed)
        self.places = options.places
        self.training, self.schedule = make_training(steps, options.rate)
        self.testing = make_graph(count_hits)
        self.parameters = [each.name for each in self.training.main.global_block().all_parameters()]
        self.executors = [paddle.static.Executor(place) for place in self.places.to_paddle()]
        self.scopes = [paddle.base.core.Scope() for _ in self.executors]
        for number in range(len(self.executors)):
            self._run(number, self.training.startup)
        self._share_parameters()

    def run_epoch(self, loader: Iterable[Any], figures: EpochFigures, show: Show) -> None:
        """Train on every batch of `loader`."""
        training = self.training
        settle = self.places.settle if self.places.is_device else None
        for feeds in timed(loader, figures, settle):
            if figures.is_shared is None and settle is None:
                figures.is_shared = is_in_arena(feeds[0]["images"]._ptr())
            losses = [
                float(self._run(number, training.main, feed, [training.output])[0])
                for number, feed in enumerate(feeds)
            ]
            if len(self.scopes) > 1:
                self._share_parameters()
            self.schedule.step()
            figures.losses.append(sum(losses) / len(losses))
            show(figures)

    def test(self, loader: Iterable[Any]) -> float:
        """Return the part of the images whose label the network finds."""
        hits = images = 0
        for (feed,) in loader:
            hits += int(self._run(0, self.testing.main, feed, [self.testing.output])[0])
            images += feed["labels"].shape()[0]
        return hits / images

    def _run(self, number: int, program: Any, feed: Any = None, fetch: Any = None) -> Any:
        with paddle.static.scope_guard(self.scopes[number]):
            return self.executors[number].run(program, feed=feed, fetch_list=fetch)

    def _share_parameters(self) -> None:
        """Give each place the mean of all places' parameters."""
        places = self.places.to_paddle()
        for name in self.parameters:
            found = [scope.find_var(name).get_tensor() for scope in self.scopes]
            mean = sum(np.array(tensor) for tensor in found) / len(found)
            for tensor, place in zip(found, places, strict=True):
                tensor.set(mean, place)


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
    batches = -(-len(train_on.labels) // options.share)
    places = options.places.to_paddle()
    trainer = Trainer(options.epochs * -(-batches // len(places)), options)
    with (
        reader.DataLoader(
            DigitImages(train_on, reader.sample_rng),
            feed_list=trainer.training.feeds,
            return_list=False,
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
            feed_list=trainer.testing.feeds,
            return_list=False,
            batch_size=options.test_batch_size,
            framework="paddle",
            places=places[0],
        ) as tests,
    ):
        found = run_epochs(trainer, loader, tests, options.epochs, show)
        note_copies(found, loader)
        return found
