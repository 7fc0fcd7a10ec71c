"""How a dataset around others passes calls on to them.

Imports the errors. Keeps no state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from reader._core.interpreter.own_attribute import own_attribute
from reader.errors import SampleIndexError

__all__ = [
    "datasets_in",
    "fetch_located",
    "fetch_many",
    "if_any_has",
    "own_of_all",
    "set_epoch_of",
    "unless_overridden",
]

_DEEPEST = 16  # datasets within datasets


def fetch_many(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """Return the samples at `indices`, in one call where the dataset offers that."""
    fetch = getattr(dataset, "__getitems__", None)
    if fetch is None:
        return [dataset[index] for index in indices]
    samples = list(fetch(list(indices)))
    if len(samples) != len(indices):
        raise SampleIndexError(
            f"__getitems__ of {type(dataset).__name__} got {len(indices)} indices and returned"
            f" {len(samples)} samples; it must return a list with one sample for each index"
        )
    return samples


def fetch_located(datasets: Sequence[Any], places: Sequence[tuple[int, int]]) -> list[Any]:
    """Return the samples at (number of the dataset, position in it).

    Those of one dataset are fetched in one call where it offers that.
    """
    wanted: dict[int, list[tuple[int, int]]] = {}  # by dataset: (row of the batch, position)
    for row, (number, position) in enumerate(places):
        wanted.setdefault(number, []).append((row, position))
    samples: list[Any] = [None] * len(places)
    for number, rows in wanted.items():
        found = fetch_many(datasets[number], [position for _, position in rows])
        for (row, _), sample in zip(rows, found):
            samples[row] = sample
    return samples


def set_epoch_of(epoch: int, *datasets: Any) -> None:
    """Call `set_epoch(epoch)` of each of the datasets that has the method."""
    for dataset in datasets:
        set_epoch = getattr(dataset, "set_epoch", None)
        if set_epoch is not None:
            set_epoch(epoch)


_Value = TypeVar("_Value")


def if_any_has(name: str, datasets: Iterable[Any], method: _Value) -> _Value:
    """Return `method`, or raise AttributeError: `hasattr` is True if a wrapped dataset has it."""
    if not any(hasattr(dataset, name) for dataset in datasets):
        raise AttributeError(f"none of the wrapped datasets has {name}")
    return method


def unless_overridden(dataset: Any, kind: Any, fetch_all: _Value) -> _Value:
    """Return the `__getitems__` of a class, or raise AttributeError: a subclass asks for each.

    Args:
        dataset: an instance of the class, or of a subclass.
        kind: the class.
        fetch_all: its method.
    """
    if type(dataset).__getitem__ is not kind.__getitem__:
        raise AttributeError("__getitems__")
    return fetch_all


def own_of_all(dataset: Any, name: str, kind: type[_Value]) -> list[_Value]:
    """Return an attribute of a dataset and of those that it wraps, each value once.

    No code of a dataset runs. Those that it wraps are its `dataset`, or its `datasets`.

    Args:
        dataset: the outermost one.
        name: of the attribute.
        kind: its type: others are left out.
    """
    values = [own_attribute(each, name, None) for each in datasets_in(dataset)]
    return list({id(value): value for value in values if isinstance(value, kind)}.values())


def datasets_in(dataset: Any, looks_into: Callable[[Any], bool] = lambda _: True) -> list[Any]:
    """Return a dataset and those that it wraps: its `dataset`, or its `datasets`; outermost first.

    No code of a dataset runs. `looks_into` says which of them are asked for what they wrap.
    """
    found: dict[int, Any] = {}
    inner, deeper = [dataset], 0
    while inner and deeper < _DEEPEST:
        found.update((id(each), each) for each in inner)
        inner = [part for each in filter(looks_into, inner) for part in _wrapped_by(each)]
        deeper += 1
    return list(found.values())


def _wrapped_by(dataset: Any) -> list[Any]:
    several, one = own_attribute(dataset, "datasets", ()), own_attribute(dataset, "dataset", None)
    found = list(several) if type(several) in (list, tuple) else []
    return found if one is None else [*found, one]
