"""The program: trains in both graphs, compares the loaders, and says whether the goal was met.

Run as ``python -m tools.demo``; exit code 0 when both graphs reached the accuracy and their
batches were not copied, 1 else. Paddle is imported last, once its environment is quiet.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import os
import sys
import time
import warnings
from collections.abc import Sequence

from tools.demo.digits import Split, load
from tools.demo.figures import EpochFigures, Show
from tools.demo.options import Options, parse
from tools.demo.places import NoPlace, find_places
from tools.demo.screen import Screen, duration, percent

NEEDED = {"paddle": "paddlepaddle", "sklearn": "scikit-learn"}


def main(arguments: Sequence[str]) -> int:
    """Run the demo; returns the exit code."""
    options = parse(arguments)
    missing = [name for module, name in NEEDED.items() if not importlib.util.find_spec(module)]
    if missing:
        print(f'The demo needs {" and ".join(missing)}: pip install "lodreader[demo]".')
        return 2
    quieten_paddle()
    try:
        options = dataclasses.replace(options, places=find_places(options.place, options.devices))
    except NoPlace as error:
        print(error)
        return 2
    screen = Screen()
    began = time.monotonic()
    train_on, test_with = load()
    screen.line(
        f"Handwritten digits, 8 x 8 pixels: {len(train_on.labels)} to train on, shifted by a pixel "
        f"at random; {len(test_with.labels)} to test with."
    )
    screen.line(
        f"{options.epochs} epochs of batches of {options.batch_size}, made by "
        f"{name_workers(options.workers)}; seed {options.seed}. Trained on"
        f" {', '.join(options.places.names)}."
    )
    screen.line(
        "start: until an epoch's first batch is there; wait: of each step for its batch; share: of "
        "waits in the time; copy: of each step until its batch was on the device, as a mean."
    )
    is_static = options.places.runs_programs
    problems = [
        *train_dynamic(train_on, test_with, options, screen),
        *(train_static(train_on, test_with, options, screen) if is_static else []),
    ]
    if not is_static:
        screen.line(
            "\nThe static graph is left out: Paddle runs the operators of a simulated device on the"
            " CPU, and loses what an optimizer writes in place."
        )
    show_comparison(train_on, options, screen)
    screen.line()
    for problem in problems:
        screen.line(f"MISSED: {problem}")
    if not problems:
        screen.line(
            f"Done: {'both graphs' if is_static else 'the dynamic graph'} ended at"
            f" {percent(options.target)} or more, on batches read where the workers wrote them."
            f" {duration(time.monotonic() - began)} in all."
        )
    return 1 if problems else 0


def name_workers(count: int) -> str:
    """Print which workers make the batches."""
    if count == 0:
        return "a thread of this process"
    return (
        f"{count} worker process{'es' if count > 1 else ''} that persist{'' if count > 1 else 's'}"
    )


def quieten_paddle() -> None:
    """Keep notes of paddle, which the demo cannot prevent, out of the tables."""
    os.environ.setdefault("GLOG_minloglevel", "2")
    warnings.filterwarnings("ignore", message="No ccache found")
    warnings.filterwarnings("ignore", message="Tensor do not have 'place' interface")


def train_dynamic(train_on: Split, test_with: Split, options: Options, screen: Screen) -> list[str]:
    """Train in the dynamic graph; returns the missed goals."""
    from tools.demo import dynamic

    screen.line("\nDynamic graph: for images, labels in loader")
    show = epoch_shower(screen, options, len(train_on.labels))
    return judge("dynamic graph", dynamic.train(train_on, test_with, options, show), options)


def train_static(train_on: Split, test_with: Split, options: Options, screen: Screen) -> list[str]:
    """Train in the static graph; returns the missed goals."""
    from tools.demo import static

    screen.line("\nStatic graph: for feed in loader: executor.run(program, feed=feed)")
    show = epoch_shower(screen, options, len(train_on.labels))
    return judge("static graph", static.train(train_on, test_with, options, show), options)


def epoch_shower(screen: Screen, options: Options, images: int) -> Show:
    """Make the function that shows a step as a bar, and an epoch that was tested as a row."""
    screen.header("epoch")
    steps = -(-images // (options.share * len(options.places.names)))
    shown = 0

    def show(figures: EpochFigures) -> None:
        nonlocal shown
        name = f"{shown + 1} of {options.epochs}"
        if figures.accuracy is None:
            screen.bar(name, figures, steps)
        else:
            screen.row(name, figures)
            shown += 1

    return show


def judge(graph: str, epochs: list[EpochFigures], options: Options) -> list[str]:
    """Return the missed goals of a training, as sentences."""
    missed = []
    accuracy = epochs[-1].accuracy or 0.0
    if accuracy < options.target:
        missed.append(
            f"the {graph} ended at a test accuracy of {percent(accuracy)}, and the goal is "
            f"{percent(options.target)}."
        )
    if not all(epoch.is_shared for epoch in epochs):
        missed.append(f"batches of the {graph} were copied before the network saw them.")
    return missed


def show_comparison(train_on: Split, options: Options, screen: Screen) -> None:
    """Train for an epoch through each loader, and show both."""
    from tools.demo.compare import ROUNDS, compare

    screen.line("\nThe same epoch through paddle.io.DataLoader, dynamic graph")
    screen.header("loader")
    steps = -(-len(train_on.labels) // options.batch_size)
    found = compare(
        train_on,
        options,
        lambda name, turn, figures: screen.bar(f"{name}, {turn}", figures, steps),
    )
    for turn in ROUNDS:
        for name in ("reader", "paddle.io"):
            screen.row(f"{name}, {turn}", found[name, turn])
    ours, theirs = (found[name, ROUNDS[-1]] for name in ("reader", "paddle.io"))
    ratios = (
        times(theirs.start_s, ours.start_s),
        times(theirs.mean_wait_s, ours.mean_wait_s),
        times(theirs.total_s, ours.total_s),
    )
    screen.line(
        "  Later epoch, paddle.io : reader = {}x until the first batch, {}x the mean wait, {}x in "
        "all.".format(*ratios)
    )


def times(longer_s: float, shorter_s: float) -> str:
    """Write how many times as long one time is as another."""
    ratio = longer_s / max(shorter_s, 1e-9)
    return f"{ratio:.0f}" if ratio >= 10 else f"{ratio:.1f}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
