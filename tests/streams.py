"""Iterable datasets that tests share, and the order in which their batches have to come.

Imports the public package, numpy, the standard library and tests.datasets. Objects here pickle
plainly, so that a spawned worker finds them.
"""

from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from reader import IterableDataset, get_worker_info, sample_rng, shard
from tests.datasets import Rows, first_time, listen, tell


def worker_id() -> int:
    """The number of the calling worker; 0 in the trainer."""
    info = get_worker_info()
    return 0 if info is None else info.id


class Parts(IterableDataset[Any]):
    """Worker w yields the values of `parts[w]` as (array of 4 float32, value)."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self.parts = parts

    def __iter__(self) -> Iterator[Any]:
        for value in self.parts[worker_id()]:
            yield self.sample(value)

    def sample(self, value: int) -> Any:
        return np.full(4, value, np.float32), value


class PidParts(Parts):
    """Parts with the pid of the process that made them."""

    def sample(self, value: int) -> Any:
        return (*super().sample(value), os.getpid())


class ActParts(Parts):
    """Parts, but before the value `at` is yielded, `action(value)` is called."""

    def __init__(self, parts: Sequence[Sequence[int]], at: int, action: Callable[[int], Any]):
        super().__init__(parts)
        self.at = at
        self.action = action

    def sample(self, value: int) -> Any:
        if value == self.at:
            self.action(value)
        return super().sample(value)


class Act:
    """The first caller, or with `once=None` each one, reports its pid, waits, or ends itself."""

    def __init__(
        self, says: str | None = None, hears: str | None = None, signum: int = 0,
        once: str | None = None,
    ) -> None:  # fmt: skip
        self.says = says
        self.hears = hears
        self.signum = signum
        self.once = once

    def __call__(self, _: Any) -> None:
        if self.once is not None and not first_time(self.once):
            return
        if self.says is not None:
            tell(self.says, str(os.getpid()))
        if self.hears is not None:
            listen(self.hears)
        if self.signum:
            os.kill(os.getpid(), self.signum)
            threading.Event().wait()


class RangeStream(IterableDataset[int]):
    """0 to count - 1, to each worker that asks."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.count))


class Items(IterableDataset[Any]):
    """The items of `items()`, anew in each epoch."""

    def __init__(self, items: Iterable[Any]) -> None:
        self.items = items

    def __iter__(self) -> Iterator[Any]:
        return iter(self.items)


class Iterates:
    """Iterates over `make(*arguments)`, anew in each epoch; not derived from our class."""

    def __init__(self, make: Callable[..., Iterable[Any]], *arguments: Any) -> None:
        self.make = make
        self.arguments = arguments

    def __iter__(self) -> Iterator[Any]:
        return iter(self.make(*self.arguments))


class Marking(Rows):
    """Rows; each sample that is made adds a byte to a file."""

    def __init__(self, log: str, count: int) -> None:
        super().__init__(count)
        self.log = log

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        mark(self.log)
        return super().__getitem__(index)


class Sharded(IterableDataset[int]):
    """0 to count - 1, divided by `reader.shard` with its options."""

    def __init__(self, count: int, **options: Any) -> None:
        self.count = count
        self.options = options

    def __iter__(self) -> Iterator[int]:
        return shard(range(self.count), **self.options)


class Endless(IterableDataset[int]):
    """Counts for ever; `log` names a file that each sample adds a byte to."""

    def __init__(self, log: str | None = None) -> None:
        self.log = log

    def __iter__(self) -> Iterator[int]:
        value = 0
        while True:
            if self.log is not None:
                mark(self.log)
            yield value
            value += 1


def keyed(value: int) -> Any:
    """A sample with its random draws: the same whenever it is made."""
    return value, sample_rng(value).random()


def piece(value: int) -> Any:
    """A few rows, or none."""
    rows = np.arange(10 * value, 10 * value + value % 4)
    return {"rows": rows, "wide": rows[:, None] * np.ones(2, np.float32)}


class Numbers(IterableDataset[Any]):
    """The results of `make` for numbers, divided in turn; a generator without a state."""

    def __init__(self, first: int, stop: int, make: Callable[[int], Any] = keyed) -> None:
        self.first = first
        self.stop = stop
        self.make = make
        self.drawn = 0  # in this copy

    def share(self) -> range:
        """The numbers of this worker."""
        info = get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return range(self.first + worker, self.stop, workers)

    def sample(self, value: int) -> Any:
        self.drawn += 1
        return self.make(value)

    def __iter__(self) -> Iterator[Any]:
        return map(self.sample, self.share())


class NumbersWalk(Numbers):
    """Numbers whose iterators have their position as state."""

    def __iter__(self) -> Iterator[Any]:
        return NumbersIterator(self)


class NumbersIterator:
    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.share = numbers.share()
        self.at = 0

    def __iter__(self) -> NumbersIterator:
        return self

    def __next__(self) -> Any:
        if self.at == len(self.share):
            raise StopIteration
        sample = self.numbers.sample(self.share[self.at])
        self.at += 1
        return sample

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class NumbersKept(Numbers):
    """Numbers that keep the position of their one iterator, and begin anew after the end."""

    at = 0

    def __iter__(self) -> Iterator[Any]:
        share = self.share()
        while self.at < len(share):
            self.at += 1
            yield self.sample(share[self.at - 1])
        self.at = 0

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.at = state["at"]


class Noisy(Parts):
    """Parts with random augmentation from random and numpy."""

    def sample(self, value: int) -> Any:
        return {"value": value, "python": random.random(), "numpy": np.random.standard_normal(2)}


def mark(path: str) -> None:
    """Add one byte to a file, from any process."""
    fd = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY)
    try:
        os.write(fd, b".")
    finally:
        os.close(fd)


def marks(path: str) -> int:
    """Return how often a file was marked."""
    try:
        return os.stat(path).st_size
    except FileNotFoundError:
        return 0


def cut(values: Sequence[int], batch_size: int, drop_last: bool = False) -> list[list[int]]:
    """The batches of one worker."""
    made = [list(values[at : at + batch_size]) for at in range(0, len(values), batch_size)]
    if drop_last and made and len(made[-1]) < batch_size:
        made.pop()
    return made


def in_turn(queues: Sequence[Sequence[Any]]) -> list[Any]:
    """Return the batches of workers in round robin, without exhausted workers."""
    rest = [list(queue) for queue in queues]
    found = []
    while any(rest):
        found += [queue.pop(0) for queue in rest if queue]
    return found


def order_of(
    parts: Sequence[Sequence[int]], workers: int, batch_size: int, drop_last: bool = False
) -> list[list[int]]:
    """The values of the batches of Parts, in order."""
    return in_turn([cut(part, batch_size, drop_last) for part in parts[: max(1, workers)]])


def values_of(batch: Any) -> list[int]:
    """Check a stacked batch of Parts; returns its values."""
    rows, values = np.asarray(batch[0]), np.asarray(batch[1])
    assert rows.shape == (len(values), 4)
    assert rows.dtype == np.float32
    assert (rows == values[:, None]).all()
    return [int(value) for value in values]
