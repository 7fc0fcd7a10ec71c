"""`paddle.batch`: make a reader of batches from a reader of items.

Imports the check of readers and `reader.errors`. A reader keeps no state but its arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

from reader.compat.paddle.background_reader import as_reader
from reader.errors import ConfigError

__all__ = ["batch"]


def batch(
    reader: Callable[[], Iterable[Any]], batch_size: int, drop_last: bool = False
) -> Callable[[], Iterator[list[Any]]]:
    """Return a reader that yields lists of `batch_size` items of another.

    Args:
        reader: a function without arguments that returns an iterable.
        batch_size: how many items make a batch; converted by `int()`.
        drop_last: leave out the last batch when it is short.

    Raises:
        ConfigError: (a ValueError) batch_size is not 1 or more.

    >>> list(batch(lambda: range(5), 2)())
    [[0, 1], [2, 3], [4]]
    """
    as_reader("reader", reader)
    size = int(batch_size)
    if size <= 0:
        raise ConfigError(
            "batch_size should be a positive integer value, but got"
            f" batch_size={batch_size}. A batch holds one item or more."
        )

    def batches() -> Iterator[list[Any]]:
        items = iter(reader())
        while found := list(islice(items, size)):
            if drop_last and len(found) < size:
                return
            yield found

    return batches
