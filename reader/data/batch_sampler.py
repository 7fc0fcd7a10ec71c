"""Batch samplers: which indices make one task.

Imports `reader.checks` and `reader.data.seekable`. A batch sampler runs in the trainer alone, in
the thread that draws tasks; it owns nothing but its sampler and keeps no state between iterations.
A YieldedBatch goes to a worker.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice, repeat, takewhile
from typing import Any, TypeVar

from reader.checks import as_bool, as_int, as_reiterable, described
from reader.data.seekable import Seekable, as_position, iterate_from
from reader.errors import ConfigTypeError

__all__ = ["BatchSampler", "NoBatching", "YieldedBatch", "batched", "count_of"]

T = TypeVar("T")


class BatchSampler(Seekable[list[T]]):
    """Group the indices of a sampler into lists of `batch_size`.

    Args:
        sampler: an iterable of indices that can be iterated over anew for each epoch.
        batch_size: how many indices make a batch, 1 or more.
        drop_last: leave out the last batch when it is short.

    >>> list(BatchSampler(range(5), 2)), list(BatchSampler(range(5), 2, drop_last=True))
    ([[0, 1], [2, 3], [4]], [[0, 1], [2, 3]])
    """

    __repr__ = described

    def __init__(self, sampler: Iterable[T], batch_size: int, drop_last: bool = False) -> None:
        self.sampler: Iterable[T] = as_reiterable("sampler", sampler)
        self.batch_size = as_int("batch_size", batch_size, low=1, remedy="Use NoBatching for none.")
        self.drop_last = as_bool("drop_last", drop_last)

    @classmethod
    def of(cls, sampler: Iterable[T], batch_size: int, drop_last: bool) -> BatchSampler[T]:
        """Make one of arguments that were checked elsewhere."""
        made = cls.__new__(cls)
        made.sampler, made.batch_size, made.drop_last = sampler, batch_size, drop_last
        return made

    def __iter__(self) -> Iterator[list[T]]:
        return batched(iter(self.sampler), self.batch_size, self.drop_last)

    def iter_from(self, position: int) -> Iterator[list[T]]:
        """Iterate over the batches from `position` on, by `iter_from` of the sampler."""
        indices = iterate_from(self.sampler, as_position(position) * self.batch_size)
        return batched(indices, self.batch_size, self.drop_last)

    def __len__(self) -> int:
        count = count_of(self.sampler)
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)


class NoBatching(Seekable[list[T]]):
    """Make each index a task of its own, as a list of one, as for `batch_size=None`.

    Args:
        sampler: an iterable of indices that can be iterated over anew for each epoch.

    >>> list(NoBatching(range(3)))
    [[0], [1], [2]]
    """

    def __init__(self, sampler: Iterable[T]) -> None:
        self.sampler: Iterable[T] = as_reiterable("sampler", sampler)

    def __iter__(self) -> Iterator[list[T]]:
        return map(list, zip(self.sampler))

    def iter_from(self, position: int) -> Iterator[list[T]]:
        """Iterate over the tasks from `position` on, by `iter_from` of the sampler."""
        return map(list, zip(iterate_from(self.sampler, as_position(position))))

    def __len__(self) -> int:
        return count_of(self.sampler)


class YieldedBatch(list[Any]):
    """The keys of a batch, and as `yielded` the object that a batch sampler yielded for them.

    A face gives that object to `__getitems__` where its library does: a tensor, an array, a range.

    Args:
        yielded: any object but a list; where it is no iterable, it is the only key.
    """

    def __init__(self, yielded: Any) -> None:
        try:
            super().__init__(yielded)
        except TypeError:
            super().__init__([yielded])
        self.yielded = yielded

    @classmethod
    def of(cls, yielded: Any) -> list[Any]:
        """Return it, or for what can be iterated over only once the list of its keys."""
        return list(yielded) if isinstance(yielded, Iterator) else cls(yielded)

    def __reduce__(self) -> tuple[Any, ...]:
        yielded = self.yielded
        if type(yielded).__module__ == "torch" and hasattr(yielded, "untyped_storage"):
            yielded = yielded.clone()  # a pickled view takes the whole order along
        return YieldedBatch, (yielded,)


def batched(indices: Iterator[T], batch_size: int, drop_last: bool) -> Iterator[list[T]]:
    """Return lists of `batch_size` indices; a short last one only without `drop_last`.

    No code of Python runs in it, and so no handler of a signal: what it drew is not lost by one.
    """
    if drop_last:
        return map(list, zip(*repeat(indices, batch_size)))
    chunks: Iterator[Iterator[T]] = map(islice, repeat(indices), repeat(batch_size))
    return takewhile(bool, map(list, chunks))


def count_of(sampler: Any) -> int:
    """Return the length of a sampler or batch sampler. ConfigTypeError if it has none."""
    if not hasattr(type(sampler), "__len__"):
        raise ConfigTypeError(
            f"the number of batches is not known: the sampler ({type(sampler).__name__}) has no"
            " __len__. Add the method to it, or do without len()."
        )
    return len(sampler)
