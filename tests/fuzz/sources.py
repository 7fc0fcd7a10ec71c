"""Data of the fuzzers of states: small datasets and samplers, with and without states.

Imports reader and numpy. Sample i is i, so that what is lost, or comes twice, is seen; each object
belongs to the loader that it is made for.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import reader

SIZE = 23  # samples
FAR = 100  # the numbers of worker w begin at FAR * w where a stream is not divided
BOUND_S = 20.0  # for one batch
LATE_S = 0.005


def _first() -> int:
    info = reader.get_worker_info()
    return 0 if info is None else FAR * info.id


class Items(reader.Dataset[int]):
    """Sample i is i."""

    def __getitem__(self, index: int) -> int:
        return int(index)

    def __len__(self) -> int:
        return SIZE


class Global:
    """Draws its order from the global random state: it is replayed."""

    def __iter__(self) -> Iterator[int]:
        yield from np.random.permutation(SIZE).tolist()

    def __len__(self) -> int:
        return SIZE


class Stateful:
    """A sampler with a state of its own."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield (self.at - 1) * 7 % SIZE
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.at = state["at"]

    def __len__(self) -> int:
        return SIZE


class Dealt(reader.IterableDataset[int]):
    """Divides its items over the workers."""

    def __iter__(self) -> Iterator[int]:
        yield from reader.shard(range(SIZE))


class Kept(reader.IterableDataset[int]):
    """A stream whose iterators have a state; worker w yields the numbers from FAR * w on."""

    def __iter__(self) -> Iterator[int]:
        return Counting(_first())


class Counting:
    """Counts from a number on."""

    def __init__(self, first: int) -> None:
        self.first = first
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        if self.at == SIZE:
            raise StopIteration
        self.at += 1
        return self.first + self.at - 1

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.at = state["at"]


class Bad(Exception):
    """The exception of the dataset in the place of a batch."""


class Raising(Items):
    """Sample i is i, and one of them raises.

    Args:
        bad: the index that raises; None: none.

    Attributes:
        is_late: some samples are late, so that others overtake them.
    """

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad
        self.is_late = False

    def __getitem__(self, index: int) -> int:
        if index == self.bad:
            raise Bad(index)
        if self.is_late and index % 11 == 0:
            threading.Event().wait(LATE_S)
        return super().__getitem__(index)


class Reading(Raising):
    """A map-style dataset with a state: how many samples it has read."""

    def __init__(self, bad: int | None = None) -> None:
        super().__init__(bad)
        self.read = 0

    def __getitem__(self, index: int) -> int:
        self.read += 1
        return super().__getitem__(index)

    def state_dict(self) -> dict[str, Any]:
        """Return the count."""
        return {"read": self.read}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set the count."""
        self.read = state["read"]


class UserBatches:
    """A batch sampler of the user's without a state: batches of three kinds of length."""

    def __iter__(self) -> Iterator[list[int]]:
        at = 0
        for size in itertools.cycle([3, 1, 4]):
            if at >= SIZE:
                return
            yield [each * 5 % SIZE for each in range(at, min(at + size, SIZE))]
            at += size


class UserOrder:
    """A sampler of the user's without a state, the same in each epoch."""

    def __iter__(self) -> Iterator[int]:
        return iter([each * 3 % SIZE for each in range(SIZE)])

    def __len__(self) -> int:
        return SIZE


class Walked(reader.IterableDataset[int]):
    """Divides its items over the workers, and its iterators go on after one that raises.

    Args:
        bad: the item that raises; None: none.
    """

    def __init__(self, bad: int | None = None) -> None:
        self.bad = bad

    def __iter__(self) -> Iterator[int]:
        return _Walk(self.bad)


class _Walk:
    def __init__(self, bad: int | None) -> None:
        self.bad = bad
        self.items = iter(reader.shard(range(SIZE)))

    def __iter__(self) -> Iterator[int]:
        return self

    def __next__(self) -> int:
        item = next(self.items)
        if item == self.bad:
            raise Bad(item)
        return item


class Plain(reader.IterableDataset[int]):
    """A stream without any state, not divided."""

    def __iter__(self) -> Iterator[int]:
        return iter(range(_first(), _first() + SIZE))


class Own(reader.IterableDataset[int]):
    """A stream that keeps its position itself. Threads cannot share it."""

    def __init__(self) -> None:
        self.at = 0

    def __iter__(self) -> Iterator[int]:
        while self.at < SIZE:
            self.at += 1
            yield _first() + self.at - 1
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        """Return the position."""
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to a position."""
        self.at = state["at"]


def _generator_sampler() -> Any:
    import torch

    generator = torch.Generator().manual_seed(3)
    return torch.utils.data.RandomSampler(range(SIZE), generator=generator)


@dataclass(frozen=True)
class Source:
    """Where samples and their order come from.

    Attributes:
        dataset: makes the dataset, of the sample that raises where one can.
        options: makes the loader's arguments for it, of the seed.
        is_fixed: the order is a function of seed and epoch.
        is_known: the order is the same for each loader that is made alike.
        has_batches: it makes the batches itself.
        is_stream: the dataset is iterable.
        can_raise: one of its samples can.
        is_per_worker: the dataset, or its iterators, belong to one worker's number.
    """

    dataset: Callable[..., Any] = Raising
    options: Callable[[int | None], dict[str, Any]] = lambda _: {}
    is_fixed: bool = True
    is_known: bool = True
    has_batches: bool = False
    is_stream: bool = False
    can_raise: bool = True
    is_per_worker: bool = False

    def make(self, bad: int | None) -> Any:
        """Make the dataset."""
        return self.dataset(bad) if self.can_raise else self.dataset()


def _own_batches(seed: int | None) -> dict[str, Any]:
    sampler = reader.RandomSampler(Items(), seed=9 if seed is None else seed)
    return {"batch_sampler": reader.BatchSampler(sampler, 4)}


SOURCES: dict[str, Source] = {
    "sequence": Source(),
    "shuffled": Source(options=lambda seed: {"shuffle": True, "seed": seed or 1}),
    "drawn": Source(
        Items, options=lambda _: {"shuffle": True}, is_fixed=False, is_known=False, can_raise=False
    ),
    "replayed": Source(options=lambda _: {"sampler": Global()}, is_fixed=False),
    "stateful": Source(options=lambda _: {"sampler": Stateful()}),
    "user": Source(options=lambda _: {"sampler": UserOrder()}),
    "list": Source(options=lambda _: {"sampler": list(range(SIZE))[::-1]}),
    "generator": Source(options=lambda _: {"sampler": _generator_sampler()}, is_fixed=False),
    "ranks": Source(
        options=lambda _: {"sampler": reader.DistributedSampler(Items(), 2, 1, seed=4)}
    ),
    "batches": Source(options=_own_batches, has_batches=True),
    "user_batches": Source(options=lambda _: {"batch_sampler": UserBatches()}, has_batches=True),
    "reading": Source(dataset=Reading, is_per_worker=True),
    "dealt": Source(dataset=Dealt, is_stream=True, can_raise=False),
    "walked": Source(dataset=Walked, is_stream=True),
    "kept": Source(dataset=Kept, is_stream=True, can_raise=False, is_per_worker=True),
    "plain": Source(dataset=Plain, is_stream=True, can_raise=False, is_per_worker=True),
    "own": Source(dataset=Own, is_stream=True, can_raise=False, is_per_worker=True),
}
