"""The decorator of `paddle.reader` that reads in processes: `multiprocess_reader`.

Imports the engine, whose workers read, and `reader.worker.context`. A generator owns its engine:
the processes end when it ends, is closed or is collected.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from reader.checks import as_int
from reader.compat.paddle.background_reader import as_reader
from reader.compat.paddle.errors import ArgumentError, also_as
from reader.config import LoaderConfig
from reader.data import IterableDataset
from reader.engine.engine import Engine
from reader.errors import DatasetError, InternalError, got
from reader.policy import Policy
from reader.worker.context import get_worker_info

__all__ = ["NoneSampleError", "multiprocess_reader"]

_AHEAD = 8  # items of each reader in flight; in Paddle the size of a pipe decides


class NoneSampleError(DatasetError, ValueError):
    """A reader yielded None, which Paddle's readers use for their end."""


def multiprocess_reader(
    readers: Sequence[Callable[[], Iterable[Any]]],
    use_pipe: bool = True,
    queue_size: int = 1000,
) -> Callable[[], Iterator[Any]]:
    """Yield the items of several readers, each of which runs in its own process.

    Items arrive as they were yielded, arrays as arrays and tuples as tuples: one of each reader in
    turn, and those of one reader in its order. An error of a reader is raised in place of its item,
    and a process that dies is an error too: `except` finds either by its own type, by ValueError
    and by SystemError, as Paddle raises it here and where a loader reads.

    Args:
        readers: a list or tuple of readers, which the processes inherit by fork.
        use_pipe: accepted, without effect: items travel through shared memory.
        queue_size: with use_pipe=False, how many items of all readers may be in flight; 0: as many
            as with use_pipe=True.

    Raises:
        ArgumentError: (an AssertionError) readers is no list or tuple, or is empty.

    While iterating: NoneSampleError (a ValueError) for a reader that yields None.
    """
    if not isinstance(readers, (list, tuple)) or not readers:
        raise ArgumentError(
            f"`readers` must be list or tuple. Got {got(readers)}: pass one reader or more."
        )
    for position, reader in enumerate(readers):
        as_reader(f"readers[{position}]", reader)
    queue_size = as_int("queue_size", queue_size, low=0, remedy="It is a number of items.")
    ahead = _AHEAD if use_pipe or not queue_size else -(-queue_size // len(readers))

    def merged() -> Iterator[Any]:
        config = LoaderConfig.build(
            _OnePerWorker(list(readers)),
            is_iterable=True,
            batch_size=None,
            num_workers=len(readers),
            prefetch_factor=ahead,
            start_method="fork",
        )
        with contextlib.closing(Engine(config, Policy(), None, None)) as engine:
            items = iter(engine)
            while True:
                try:
                    item = next(items)
                except StopIteration:
                    return
                except Exception as error:
                    failure = also_as(error, ValueError, SystemError)
                    break
                yield item
                del item  # this frame keeps nothing while it waits
            try:
                raise failure  # in `except` the original would be its context
            finally:
                del failure  # its traceback refers to this frame

    return merged


class _OnePerWorker(IterableDataset[Any]):
    """Yields the items of another reader in each worker."""

    def __init__(self, readers: list[Callable[[], Iterable[Any]]]) -> None:
        self.readers = readers

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        if worker is None:
            raise InternalError("a reader was called in the trainer instead of a worker")
        for number, item in enumerate(self.readers[worker.id]()):
            if item is None:
                raise NoneSampleError(
                    f"sample has None! Reader {worker.id} yielded None as item {number}, and None"
                    " is not a valid sample. Skip it, or yield another value in its place."
                )
            yield item
