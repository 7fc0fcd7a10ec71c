"""GluonNLP's streams: what yields items anew in each iteration, with transformations.

Imports `reader.checks` and `reader.worker.context`. A stream keeps no position: its iterators
share nothing with it or with each other. Prefetching is in `prefetching_stream`.
"""

from __future__ import annotations

import abc
import glob
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from reader.checks import as_reiterable, refuse_url
from reader.errors import ConfigError, ConfigTypeError, got
from reader.worker.context import get_worker_info

__all__ = [
    "DataStream",
    "DatasetStream",
    "SimpleDataStream",
    "SimpleDatasetStream",
    "files_of",
    "order_of",
]

ORDERS = ("random", "sequential")


class DataStream(abc.ABC):
    """Base class of streams: each `iter()` begins anew, and nothing need be in memory at once.

    `reader.DataLoader` takes a stream as its dataset.

    >>> list(SimpleDataStream([1, 2, 3]).transform(lambda item: item * item))
    [1, 4, 9]
    """

    @abc.abstractmethod
    def __iter__(self) -> Iterator[Any]:
        """Return a fresh iterator over the items."""

    def transform(self, fn: Callable[..., Any]) -> DataStream:
        """Return a stream of what `fn` makes of each item, when that is taken.

        If the first item is a tuple, then each item is unpacked: `fn(*item)`. Iterating begins the
        iteration of this stream at once, and raises its error then.
        """
        return _TransformedStream(self, fn)


class _TransformedStream(DataStream):
    """The items of a stream, each passed through a function."""

    def __init__(self, stream: DataStream, fn: Callable[..., Any]) -> None:
        if not callable(fn):
            raise ConfigTypeError(
                f"a stream is transformed by a function, got {got(fn)}. Pass one that takes an"
                " item."
            )
        self._stream = stream
        self._fn = fn

    def __iter__(self) -> Iterator[Any]:
        return _transformed(iter(self._stream), self._fn)


def _transformed(items: Iterator[Any], fn: Callable[..., Any]) -> Iterator[Any]:
    is_unpacked: bool | None = None
    for item in items:
        if is_unpacked is None:
            is_unpacked = isinstance(item, tuple)
        yield fn(*item) if is_unpacked else fn(item)
        del item  # this frame keeps nothing while it waits


class SimpleDataStream(DataStream):
    """Make a stream of an iterable.

    Args:
        iterable: iterated over anew in each iteration of the stream.
    """

    def __init__(self, iterable: Iterable[Any]) -> None:
        self._items = iterable

    def __iter__(self) -> Iterator[Any]:
        return iter(self._items)


class DatasetStream(DataStream):
    """Base class of streams whose items are datasets: the parts of one that is large."""


class SimpleDatasetStream(DatasetStream):
    """Yield one dataset for each of several files, made when it is taken.

    Args:
        dataset: called with the path of a file, and the other arguments, for each dataset.
        file_pattern: a path with wildcards, or several with commas between them.
        file_sampler: "random": the files come in an order that `numpy.random` draws, or in a worker
            thread its own generator; "sequential": sorted by path; or an iterable of the numbers of
            files, which count in the sorted order.
        kwargs: passed to `dataset`.

    Raises:
        ConfigTypeError: (a TypeError) `file_pattern` is no str.
        ConfigError: (a ValueError) no such files, or no such order.
    """

    def __init__(
        self,
        dataset: Callable[..., Any],
        file_pattern: str,
        file_sampler: Any = "random",
        **kwargs: Any,
    ) -> None:
        self._make_dataset = dataset
        self._files = files_of(file_pattern)
        if isinstance(file_sampler, str) and file_sampler not in ORDERS:
            raise ConfigError(
                'file_sampler must be a supported str ("random", "sequential") or a'
                f" `gluon.data.Sampler`, but got {file_sampler!r}: pass one of them."
            )
        is_named = isinstance(file_sampler, str)
        self._sampler = file_sampler if is_named else as_reiterable("file_sampler", file_sampler)
        self._kwargs = kwargs

    def __iter__(self) -> Iterator[Any]:
        for number in order_of(self._sampler, len(self._files)):
            yield self._make_dataset(self._files[number], **self._kwargs)


def files_of(file_pattern: Any) -> list[str]:
    """Return the paths that a pattern names, sorted; commas separate several patterns.

    Raises:
        ConfigTypeError: (a TypeError) it is no str.
        ConfigError: (a ValueError) it names none.
    """
    if not isinstance(file_pattern, str):
        raise ConfigTypeError(
            f"file_pattern must be str, but got {type(file_pattern)}: {got(file_pattern)}. Pass"
            " paths with commas between them."
        )
    patterns = [each.strip() for each in file_pattern.split(",") if each.strip()]
    for each in patterns:
        refuse_url("file_pattern", each)
    found = [file for each in patterns for file in glob.glob(str(Path(each).expanduser()))]  # noqa: PTH207
    if not found:
        raise ConfigError(
            f'Cannot find any file with path "{file_pattern}". Paths are relative to {Path.cwd()}.'
        )
    return sorted(found)


def order_of(sampler: Any, count: int) -> Iterable[int]:
    """Return the numbers from 0 to `count` in one of `ORDERS`, or what a sampler yields."""
    if not isinstance(sampler, str):
        return sampler  # type: ignore[no-any-return]
    if sampler == "sequential":
        return range(count)
    worker = get_worker_info()
    if worker is not None and worker.rng is not None:
        # the global state of a thread is that of all threads
        found: list[int] = worker.rng.numpy_generator.permutation(count).tolist()
        return found
    return np.random.permutation(count).tolist()  # type: ignore[no-any-return]
