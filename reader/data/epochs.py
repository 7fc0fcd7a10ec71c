"""Telling datasets which epoch begins: what is read in the trainer, and said again in the workers.

Imports the standard library alone. The dataset in the trainer is the user's and is only looked at;
its copies in persistent workers are told what their original was told.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

__all__ = ["Mark", "epoch_marks", "tell_epoch"]

_DEPTH = 8  # of datasets inside datasets
Mark = tuple[tuple[Any, ...], int]  # where the dataset is, and its epoch


def epoch_marks(dataset: Any, epoch: int) -> list[Mark]:
    """Return the epoch of each dataset in `dataset` that has `set_epoch`, outermost first.

    Datasets inside are found in the attributes `dataset` and `datasets`. The epoch is the
    dataset's own `epoch` or `_epoch` where that is an int, as it is where `set_epoch` keeps its
    argument; else it is the loader's.

    Args:
        dataset: the trainer's.
        epoch: the loader's count of epochs, from 0.
    """
    marks: list[Mark] = []
    for path, found in _walk(dataset, (), _DEPTH):
        if callable(getattr(type(found), "set_epoch", None)):
            own = [getattr(found, name, None) for name in ("epoch", "_epoch")]
            known = [value for value in own if type(value) is int]
            marks.append((path, known[0] if known else epoch))
    return marks


def tell_epoch(dataset: Any, marks: list[Mark]) -> None:
    """Call `set_epoch` of a copy of the dataset as `epoch_marks` found it."""
    for path, epoch in marks:
        found = dataset
        for step in path:
            found = found[step] if type(step) is int else getattr(found, step)
        found.set_epoch(epoch)


def _walk(dataset: Any, path: tuple[Any, ...], depth: int) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, dataset
    attributes = getattr(dataset, "__dict__", {})
    if depth == 0 or not isinstance(attributes, dict):
        return
    if "dataset" in attributes:
        yield from _walk(attributes["dataset"], (*path, "dataset"), depth - 1)
    inner = attributes.get("datasets")
    if isinstance(inner, (list, tuple)):
        for place, each in enumerate(inner):
            yield from _walk(each, (*path, "datasets", place), depth - 1)
