"""Datasets that keep something from one sample to the next, in the ways of real programs.

Imports NumPy and the standard library alone, so that each library's tests can use them. A sample is
(an array of two float32, its index); what is carried shows in the array. `KINDS` has one of each.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import itertools
import os
import random
import struct
import tempfile
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

COUNT, SIZE = 48, 8
SLOW_S = 0.003  # a sample; a batch of them takes long enough to be worth sharing

_libc = ctypes.CDLL(None)
_of_module = {"calls": 0}


class Impure:
    """Samples; `carried(index)` returns the part that depends on those before."""

    def __init__(self, sample_s: float = 0.0) -> None:
        self.sample_s = sample_s

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.sample_s:
            time.sleep(self.sample_s)
        return np.array([index, self.carried(index)], np.float32), index

    def carried(self, index: int) -> float:
        raise NotImplementedError

    def prepare(self, worker_id: int) -> None:
        """Seed a worker's copy; called by `worker_init_fn`."""


class OwnGenerator(Impure):
    """As imgaug and albumentations have one, seeded for each worker."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.rng = np.random.default_rng(99)

    def prepare(self, worker_id: int) -> None:
        self.rng = np.random.default_rng(100 + worker_id)

    def carried(self, index: int) -> float:
        return float(self.rng.random())


class OwnRandom(Impure):
    """A `random.Random` that every worker has a copy of."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.random = random.Random(7)

    def carried(self, index: int) -> float:
        return self.random.random()


class OwnState(Impure):
    """A generator of the old kind, whose draws depend on the index as well."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.state = np.random.RandomState(3)

    def carried(self, index: int) -> float:
        return float(self.state.normal(size=1 + index % 3)[-1])


class Cursor(Impure):
    """A position in something that is read in order."""

    at = 0

    def carried(self, index: int) -> float:
        self.at = (5 * self.at + index) % 997
        return self.at


class Cached(Impure):
    """A cache that drops what was not used for long."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.misses = 0

    @functools.lru_cache(maxsize=3)  # noqa: B019  one dataset lives as long as its test
    def chunk(self, number: int) -> int:
        self.misses += 1
        return 100 * self.misses + number

    def carried(self, index: int) -> float:
        return self.chunk(index * 7 % 5)


class Counter(Impure):
    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.count = itertools.count()

    def carried(self, index: int) -> float:
        return next(self.count)


class OfALibrary(Impure):
    """The state of a C library, seeded for each worker, as OpenCV's is."""

    def prepare(self, worker_id: int) -> None:
        _libc.srand(5 + worker_id)

    def carried(self, index: int) -> float:
        return float(_libc.rand() % 1000)


class Draws(Impure):
    """A generator function of Python that is within the dataset."""

    draws: Iterator[float] | None = None

    def carried(self, index: int) -> float:
        if self.draws is None:
            self.draws = self.drawn()
        return next(self.draws)

    def drawn(self) -> Iterator[float]:
        level = 0.0
        while True:
            level = 0.5 * level + 1
            yield level


class File(Impure):
    """The position in an open file."""

    file: Any = None

    def carried(self, index: int) -> float:
        if self.file is None:
            self.file = tempfile.TemporaryFile()  # noqa: SIM115  open for as long as its worker
            self.file.write(struct.pack(f"{4 * COUNT}i", *range(4 * COUNT)))
            self.file.seek(0)
        self.file.seek(4 * (index % 3), 1)
        return float(struct.unpack("i", self.file.read(4))[0])


class OfTheModule(Impure):
    """A global variable of a module."""

    def prepare(self, worker_id: int) -> None:
        _of_module["calls"] = 1000 * worker_id

    def carried(self, index: int) -> float:
        _of_module["calls"] += 1
        return _of_module["calls"]


class Blended(Impure):
    """The samples before, kept to be mixed into later ones."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.kept: list[float] = []

    def carried(self, index: int) -> float:
        mixed = index + 0.25 * sum(self.kept)
        self.kept = [*self.kept[-2:], mixed / 2]
        return mixed


class Many(OwnRandom):
    """Fetches many at once in another way than one by one, if it is asked to."""

    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [(np.array([index, -1], np.float32), index) for index in indices]


class Reused(Impure):
    """One array that every sample is written to, as into the buffer of a decoder."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.buffer = np.zeros(2, np.float32)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        if self.sample_s:
            time.sleep(self.sample_s)
        self.buffer += index
        return self.buffer, index


class Overlapping(Reused):
    """Overlapping parts of one array."""

    def __init__(self, sample_s: float = 0.0) -> None:
        super().__init__(sample_s)
        self.buffer = np.zeros(6, np.float32)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        super().__getitem__(index)
        return self.buffer[index % 2 :][:2], index


class Logged(Impure):
    """Samples that say who made them: (process, thread, how many it had made, index)."""

    def __init__(self, sample_s: float = 0.0, waits: dict[int, float] | None = None) -> None:
        super().__init__(sample_s)
        self.waits = {} if waits is None else waits
        self.made: dict[tuple[int, int], int] = {}

    def __getitem__(self, index: int) -> Any:
        time.sleep(self.waits.get(index, self.sample_s))
        who = os.getpid(), threading.get_ident()
        made = self.made[who] = self.made.get(who, -1) + 1
        return np.array([*who, made, index], np.int64)


def check_made_whole(batches: list[Any], orders: list[list[int]]) -> list[tuple[int, int]]:
    """Return the maker of each batch: one worker, sample after sample, each fetched once.

    Args:
        batches: of `Logged`, as nested lists; all that its workers made.
        orders: the indices of each.
    """
    makers = []
    calls: dict[tuple[int, int], list[int]] = {}
    for batch, order in zip(batches, orders, strict=True):
        assert [row[3] for row in batch] == order
        (who,) = {(row[0], row[1]) for row in batch}
        made = [row[2] for row in batch]
        assert made == list(range(made[0], made[0] + len(order)))
        calls.setdefault(who, []).extend(made)
        makers.append(who)
    for made in calls.values():
        assert sorted(made) == list(range(len(made)))
    return makers


KINDS: dict[str, type[Impure]] = {
    "own generator": OwnGenerator,
    "random.Random": OwnRandom,
    "RandomState": OwnState,
    "cursor": Cursor,
    "cache": Cached,
    "counter": Counter,
    "C library": OfALibrary,
    "generator function": Draws,
    "file position": File,
    "module": OfTheModule,
    "samples before": Blended,
    "fetches many": Many,
    "reused array": Reused,
    "overlapping arrays": Overlapping,
}


def make(kind: str, sample_s: float) -> Impure:
    """Return a dataset, with all state outside of it as in a fresh process."""
    _of_module["calls"] = 0
    _libc.srand(1)
    return KINDS[kind](sample_s)


@contextlib.contextmanager
def opened(kind: str, sample_s: float) -> Iterator[Impure]:
    """Make a dataset; at the end, close the file that it has opened in this process."""
    dataset = make(kind, sample_s)
    yield dataset
    if isinstance(dataset, File) and dataset.file is not None:
        dataset.file.close()
