"""The epochs of datasets and samplers: read in the trainer, and set on copies in the workers.

Imports the core. The dataset in the trainer is the user's; the engine calls its
`set_epoch` only when the user calls that of the loader, or loads a state.
"""

from __future__ import annotations

from typing import Any

from reader._core.interpreter.own_attribute import note_owned
from reader.data.wrapped import datasets_in

__all__ = [
    "Mark",
    "apply_marks",
    "carried_epochs",
    "epoch_carriers",
    "epoch_marks",
    "find_carriers",
    "following",
    "own_epoch",
    "set_epochs",
]

_DEPTH = 8  # of objects inside objects
_ONE = ("dataset", "sampler", "batch_sampler")  # attributes that hold an object of the kind
_MANY = ("datasets", "samplers")  # and those that hold several
_DATASETS = ("dataset", "datasets")
Path = tuple[Any, ...]
Mark = tuple[Path, int]  # where the dataset is, and its epoch


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
    for path, found in _walk(dataset):
        is_dataset = all(type(step) is int or step in _DATASETS for step in path)
        if is_dataset and callable(getattr(type(found), "set_epoch", None)):
            own = own_epoch(found)
            marks.append((path, epoch if own is None else own))
    return marks


def set_epochs(epoch: int, *objects: Any) -> None:
    """Call `set_epoch` of the trainer's datasets and samplers that have it; any may be None."""
    for each in objects:
        if callable(getattr(each, "set_epoch", None)):
            each.set_epoch(epoch)
        if hasattr(type(each), "__getitem__"):  # no sampler
            for dataset in following(each):
                dataset.follow_epoch(epoch)


def following(dataset: Any) -> list[Any]:
    """Return of a dataset and those inside of it what has `follow_epoch`; see SeededDataset."""
    return [each for each in datasets_in(dataset) if hasattr(type(each), "follow_epoch")]


def apply_marks(dataset: Any, marks: list[Mark]) -> None:
    """Set on a worker's copy of the dataset the epochs that `epoch_marks` found."""
    for path, epoch in marks:
        found = dataset
        for step in path:
            found = found[step] if type(step) is int else getattr(found, step)
        found.set_epoch(epoch)


def epoch_carriers(*objects: Any) -> list[Any]:
    """Return datasets and samplers, and those inside of them, that have an epoch."""
    found = [each for outer in objects for _, each in _walk(outer)]
    return [each for each in found if own_epoch(each) is not None]


def carried_epochs(**objects: Any) -> dict[str, int]:
    """Return the epochs of datasets and samplers with `set_epoch`, by the path to each."""
    found: dict[str, int] = {}
    for path, each in _paths(objects, "set_epoch"):
        epoch = own_epoch(each)
        if epoch is not None:
            found[_name(path)] = epoch
    return found


def find_carriers(names: Any, **objects: Any) -> list[Any]:
    """Return what `carried_epochs` named. KeyError: it is not there, or has no `set_epoch`."""
    known = {_name(path): each for path, each in _paths(objects)}
    found = [known[name] for name in names]
    for name, each in zip(names, found, strict=True):
        if not callable(getattr(each, "set_epoch", None)):
            raise KeyError(name)
    return found


def _paths(objects: dict[str, Any], having: str | None = None) -> list[tuple[Path, Any]]:
    """Return these objects and those inside of them, each once, with the path to it.

    `having`: only those with a method of this name; None: all.
    """
    found: list[tuple[Path, Any]] = []
    for name, outer in objects.items():
        if outer is not None:
            note_owned(found, outer, (name,), _ONE, _MANY, _DEPTH, having)
    if not found:
        return found
    once = {id(pair[1]): pair for pair in found[::-1]}  # the first path to each counts
    return [pair for pair in found if once[id(pair[1])] is pair]


def _name(path: Path) -> str:
    return ".".join(map(str, path))


def own_epoch(value: Any) -> int | None:
    """Return the epoch of a dataset or sampler; None: it has no such attribute."""
    for name in ("epoch", "_epoch"):
        epoch = getattr(value, name, None)
        if type(epoch) is int:
            return epoch
    return None


def _walk(value: Any) -> list[tuple[Path, Any]]:
    """Return an object and those inside of it, outermost first, each with the path to it."""
    found: list[tuple[Path, Any]] = []
    note_owned(found, value, (), _ONE, _MANY, _DEPTH)
    return found
