"""The same epoch through `paddle.io.DataLoader` and through this package, side by side.

Imports paddle and the dynamic graph's trainer. Both loaders get the same batches of indices, two
worker processes that persist, and a network of their own; both start afresh, then go on.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import paddle

import reader
from tools.demo.digits import DigitImages, Split
from tools.demo.dynamic import Trainer
from tools.demo.figures import EpochFigures
from tools.demo.options import Options

__all__ = ["ROUNDS", "compare"]

ROUNDS = ("first epoch", "later epoch")


def rng_of(index: int) -> np.random.Generator:
    """Return the generator of a sample, for loaders without one; costs as much as ours."""
    key = np.random.SeedSequence([7, index, 0, 0, 0, 0, 0])
    return np.random.Generator(np.random.Philox(key))


def compare(
    split: Split, options: Options, show: Callable[[str, str, EpochFigures], None]
) -> dict[tuple[str, str], EpochFigures]:
    """Train for an epoch in each round with each loader, in turns. Keys: (loader, round)."""
    order = np.random.default_rng(options.seed).permutation(len(split.labels)).tolist()
    size = options.batch_size
    batches = [order[start : start + size] for start in range(0, len(order), size)]
    dataset = DigitImages(split, rng_of)
    # Paddle's loader drops the batches of all places but the first
    options = dataclasses.replace(options, places=options.places.first)
    (place,) = options.places.to_paddle()
    found: dict[tuple[str, str], EpochFigures] = {}
    with reader.DataLoader(
        dataset,
        batch_sampler=batches,
        num_workers=options.workers,
        persistent_workers=True,
        framework="paddle",
        places=place,
    ) as ours:
        theirs: Any = paddle.io.DataLoader(
            dataset,  # type: ignore[arg-type]
            batch_sampler=batches,  # type: ignore[arg-type]
            num_workers=options.workers,
            persistent_workers=True,
            places=place,
        )
        loaders: dict[str, Iterable[Any]] = {"reader": ours, "paddle.io": theirs}
        trainers = {name: Trainer(len(ROUNDS) * len(batches), options) for name in loaders}
        for turn in ROUNDS:
            for name, loader in loaders.items():
                figures = found[name, turn] = EpochFigures()
                trainers[name].run_epoch(loader, figures, functools.partial(show, name, turn))
    return found
