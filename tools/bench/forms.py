"""The usual forms of samples in programs without workers: a work for each, in small batches.

Imports the works, and torch where samples are tensors. Nothing here knows a loader.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np

from tools.bench.works import Bank, Work

_BANK = 64
_SIZE = 32


class Named(NamedTuple):
    """A sample whose fields have names."""

    values: Any
    label: int


class Samples(Bank):
    """Samples that a function makes once from their numbers, handed out in turn."""

    def __init__(self, make: Callable[[int], Any], bank: int, samples: int) -> None:
        super().__init__(samples)
        self.made = [make(number) for number in range(bank)]

    def __getitem__(self, index: int) -> Any:
        return self.made[index % len(self.made)]


class ManySamples(Samples):
    """The same, fetched many at once."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.made[index % len(self.made)] for index in indices]


def as_they_are(samples: list[Any]) -> list[Any]:
    """A `collate_fn`: return the samples."""
    return samples


def _text(number: int) -> str:
    return f"sentence {number} of some words"


def _array(number: int) -> np.ndarray[Any, Any]:
    return np.full(8, number, np.float32)


def _tensor(number: int) -> Any:
    return import_module("torch").full((8,), float(number))


def _picture(number: int) -> np.ndarray[Any, Any]:
    return np.full((3, 512, 512), number, np.float32)


def _nested(number: int) -> dict[str, Any]:
    text = _text(number)
    box = (1.0, float(number))
    return {
        "image": {"values": _tensor(number), "name": text},
        "meta": {"id": number, "tags": [text, text], "box": box},
    }


# its name on the page, the function that makes a sample from its number, the rest of a Form
_FORMS: tuple[tuple[Any, ...], ...] = (
    ("strings", _text),
    ("bytes", lambda number: _text(number).encode()),
    ("floats", float),
    ("ints", int),
    ("bools", lambda number: number % 2 == 0),
    ("numbers of NumPy", np.float32),
    ("arrays", _array),
    ("tensors", _tensor),
    ("(array, string, float)", lambda number: (_array(number), _text(number), float(number))),
    ("(tensor, string)", lambda number: (_tensor(number), _text(number))),
    ("(tensor, int)", lambda number: (_tensor(number), number)),
    ("lists of floats", lambda number: [float(number), 2.0, 3.0]),
    ("dicts of numbers", lambda number: {"id": number, "score": float(number)}),
    ("named tuples", lambda number: Named(_tensor(number), number)),
    ("nested tuples", lambda number: ((_tensor(number), (_array(number), number)), "text")),
    ("nested dicts with strings", _nested),
    ("pictures of 3 MB, 4 a batch", _picture, 4),
    ("ints, 1024 a batch", int, 1024),
    ("tensors, 1 a batch", _tensor, 1),
    ("strings, 1 a batch", _text, 1),
)
_STREAMED = ("strings", "ints", "arrays", "tensors")


class Form(NamedTuple):
    """A form of samples, and how it is loaded.

    Attributes:
        work: its samples and batches.
        samples: "arrays", which are the work's own samples, or a "stream" of them.
        options: arguments of the loaders.
    """

    work: Work
    samples: str = "arrays"
    options: dict[str, Any] = {}  # noqa: RUF012  never changed


def _work(title: str, make: Any, size: int = _SIZE, kind: type[Samples] = Samples) -> Work:
    name = "-".join("".join(c if c.isalnum() else " " for c in title.lower()).split())
    bank = min(_BANK, size) if make is _picture else _BANK
    dataset = functools.partial(kind, make, bank)
    return Work(name, title, title, size, dataset, 40)


def _forms() -> list[Form]:
    works = {form[0]: _work(*form) for form in _FORMS}
    texts, tensors = works["strings"], works["tensors"]
    found = [Form(work) for work in works.values()]
    found += [Form(works[name], "stream") for name in _STREAMED]
    for title, size in (("strings", 1), ("tensors", 1)):
        found.append(Form(works[f"{title}, {size} a batch"], options={"batch_size": None}))
    found.append(Form(works["tensors, 1 a batch"], "stream", {"batch_size": None}))
    found += [Form(each, options={"shuffle": True}) for each in (texts, tensors)]
    found += [Form(texts, options={"collate_fn": as_they_are})]
    found += [
        Form(_work(f"{title}, by __getitems__", make, kind=ManySamples))
        for title, make in (("strings", _text), ("tensors", _tensor))
    ]
    return found


FORMS = _forms()
