"""A work of a domain, and how its loaders are read: by whole epochs, or a part of one."""

from __future__ import annotations

import contextlib
import functools
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np

from tools.turns import grid

# The turn of a contestant: returns the seconds of a batch, or of an image.
Turn = Callable[[], float]
_PER_SECOND = {"ms": 1e3, "us": 1e6}


@dataclass(frozen=True)
class Work:
    """What is measured: the contestants by name, the first of which others are compared with.

    Attributes:
        contestants: Name and turn of each; those that are left out say why as they are asked for.
        unit: Of what the table shows: "ms ..." or "us ...".
        warm_ups: Rounds before those that count: workers start, caches fill, files are read.
    """

    contestants: Iterable[tuple[str, Turn]]
    unit: str = "ms per batch"
    warm_ups: int = 1


def by_epochs(loaders: Iterable[tuple[str, Iterable[Any]]]) -> Work:
    """Return the work whose turns are epochs of a loader."""
    return Work((name, functools.partial(epoch, loader)) for name, loader in loaders)


def render(found: dict[str, float], unit: str) -> str:
    """Return a table: of each contestant the time, and its ratio to the first."""
    first, scale = next(iter(found.values())), _PER_SECOND[unit.split()[0]]
    cells = [
        [name, f"{value * scale:.2f} {unit}", f"{value / first:#.3g} times the first"]
        for name, value in found.items()
    ]
    return "\n".join(grid(cells))


def epoch(loader: Iterable[Any]) -> float:
    """Return the seconds of a batch in an epoch; one number of each page of its images is read."""
    begun, count = time.perf_counter(), 0
    for images, *_ in loader:
        np.asarray(images).reshape(-1)[::4096].sum()
        count += 1
    return (time.perf_counter() - begun) / count


def part_of_epoch(loader: Any, batches: int, ahead: int = 0) -> float:
    """Return the seconds of a batch among the first of an epoch, of which nothing is read.

    Not counted are a tenth as many before them and `ahead` that workers have made meanwhile, or
    a tenth of the epoch where that is less.
    """
    some = iter(loader)
    for _ in islice(some, min(batches // 10 + ahead, len(loader) // 10)):
        pass
    begun = time.perf_counter()
    count = sum(1 for _ in islice(some, batches))
    return (time.perf_counter() - begun) / count


@contextlib.contextmanager
def left_out(what: str) -> Iterator[None]:
    """Skip contestants made in the block if a package is missing, with a note."""
    try:
        yield
    except (ImportError, OSError, RuntimeError) as error:
        reason = str(error).partition("\n")[0]
        print(f"left out: {what} ({reason[:100]})")
