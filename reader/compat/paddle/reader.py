"""The decorators of `paddle.reader`: functions that make a reader from other readers.

A reader is a function without arguments that returns an iterable; the readers made here return
generators. Imports paddle, for its exception, and the modules of the decorators that use threads
and processes. A generator owns the threads and processes it starts, and they end with it.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from itertools import islice, zip_longest
from typing import Any

from paddle.reader.decorator import ComposeNotAligned as PaddleComposeNotAligned

from reader.compat.paddle.background_reader import as_count, as_reader, buffered, xmap_readers
from reader.compat.paddle.process_reader import multiprocess_reader
from reader.errors import ConfigError, ConfigTypeError, ReaderError, got

__all__ = [
    "ComposeNotAligned",
    "buffered",
    "cache",
    "chain",
    "compose",
    "firstn",
    "map_readers",
    "multiprocess_reader",
    "shuffle",
    "xmap_readers",
]

Reader = Callable[[], Iterable[Any]]
MadeReader = Callable[[], Iterator[Any]]

_ENDED = object()


class ComposeNotAligned(ReaderError, PaddleComposeNotAligned):
    """The readers of a `compose` do not yield equally many items; also a ValueError."""


def cache(reader: Reader) -> MadeReader:
    """Read all of a reader now, into memory, and yield its items again and again."""
    items = tuple(as_reader("reader", reader)())

    def cached() -> Iterator[Any]:
        yield from items

    return cached


def map_readers(func: Callable[..., Any], *readers: Reader) -> MadeReader:
    """Yield what `func` makes of one item of each reader; ends with the shortest of them.

    Raises:
        ConfigTypeError: func or a reader cannot be called, or there is no reader.
    """
    _check_function("func", func)
    _check_readers(readers)
    if not readers:
        raise ConfigTypeError("map_readers() takes one reader or more, got none. Pass readers.")

    def mapped() -> Iterator[Any]:
        # Not map(): a StopIteration from `func` would end it like the end of the readers.
        for items in zip(*[reader() for reader in readers]):
            yield func(*items)

    return mapped


def shuffle(reader: Reader, buf_size: int) -> MadeReader:
    """Yield the items in random order within runs of `buf_size`.

    Draws by `random.shuffle`, so that `random.seed` repeats the order.

    Args:
        reader: the reader to take items from.
        buf_size: how many items are held in memory and shuffled at a time.
    """
    as_reader("reader", reader)
    size = max(as_count("buf_size", buf_size), 1)

    def shuffled() -> Iterator[Any]:
        items = iter(reader())
        while run := list(islice(items, size)):
            random.shuffle(run)
            yield from run

    return shuffled


def chain(*readers: Reader) -> MadeReader:
    """Yield the items of several readers, those of the first one first."""
    _check_readers(readers)

    def chained() -> Iterator[Any]:
        for items in [reader() for reader in readers]:
            yield from items

    return chained


def compose(*readers: Reader, check_alignment: bool = True) -> MadeReader:
    """Join one item of each reader into one tuple; an item that is a tuple gives its fields.

    Args:
        readers: the readers to take items from.
        check_alignment: raise ComposeNotAligned if one ends before the others; else drop the
            remaining items of the others. None is an item like any other.
    """
    _check_readers(readers)

    def composed() -> Iterator[Any]:
        sources = [reader() for reader in readers]
        if not check_alignment:
            yield from map(_joined, zip(*sources))
            return
        for number, items in enumerate(zip_longest(*sources, fillvalue=_ENDED)):
            if any(item is _ENDED for item in items):
                raise _not_aligned(items, number)
            yield _joined(items)

    return composed


def firstn(reader: Reader, n: int) -> MadeReader:
    """Yield the first `n` items, and take no more from the reader.

    Raises:
        ConfigError: n is negative.
    """
    as_reader("reader", reader)
    count = as_count("n", n)
    if count < 0:
        raise ConfigError(f"n must be 0 or more, got {n}. Use the reader itself for all its items.")

    def first() -> Iterator[Any]:
        yield from islice(reader(), count)

    return first


def _joined(items: tuple[Any, ...]) -> tuple[Any, ...]:
    fields: list[Any] = []
    for item in items:
        if isinstance(item, tuple):
            fields.extend(item)
        else:
            fields.append(item)
    return tuple(fields)


def _not_aligned(items: tuple[Any, ...], number: int) -> ComposeNotAligned:
    ended = [position for position, item in enumerate(items) if item is _ENDED]
    going = [position for position, item in enumerate(items) if item is not _ENDED]
    return ComposeNotAligned(
        f"outputs of readers are not aligned. After {number} items each, readers {ended} ended and"
        f" readers {going} went on. Make them equally long, or pass check_alignment=False to drop"
        " the remaining items."
    )


def _check_readers(readers: tuple[Any, ...]) -> None:
    for position, reader in enumerate(readers):
        as_reader(f"readers[{position}]", reader)


def _check_function(name: str, function: Any) -> None:
    if not callable(function):
        raise ConfigTypeError(f"{name} must be callable, got {got(function)}. Pass the function.")
