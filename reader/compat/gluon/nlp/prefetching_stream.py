"""GluonNLP's stream whose items are made ahead, in a thread or a process.

Imports the loader, whose one worker makes the items, and the streams. An iterator owns its worker,
which ends with it: when it is exhausted or dropped, or the program ends.
"""

from __future__ import annotations

import functools
import itertools
import pickle
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from reader.checks import as_int
from reader.compat.gluon.nlp.errors import ArgumentError
from reader.compat.gluon.nlp.streams import DataStream
from reader.data.iterable import IterableDataset
from reader.errors import ConfigError, shown
from reader.loader import DataLoader
from reader.random.seeds import seed_known_libraries
from reader.worker.context import get_worker_info

__all__ = ["PrefetchingStream"]

_WORKER_TYPES = ("thread", "process")
_SEED_LIMIT = 2**31 - 1  # of the draw from NumPy, which is GluonNLP's
_IN_BAND_BYTES = 1 << 16  # arrays of fewer bytes are copied into the pickle


class PrefetchingStream(DataStream):
    """Make the items of a stream ahead, in a thread or a process of their own.

    Each iterator has its own worker. `iter()` starts it, and waits until it has begun to iterate
    over the stream, and raises an error of that start. An error of a later item is raised in its
    place. Items arrive as they were yielded; from a process they are pickled.

    Each `iter()` draws from `random` and `numpy.random` of its caller. A process seeds both by what
    was drawn; a thread shares them with the whole program, and seeds the generators of
    `reader.get_worker_info().rng`.

    Args:
        stream: what is iterated, in the worker.
        num_prefetch: how many items are made ahead, 1 or more.
        worker_type: "thread" or "process"; how a process starts is what multiprocessing says.

    Raises:
        ConfigError: (a ValueError) num_prefetch is less than 1.
        ArgumentError: (an AssertionError) another worker_type.

    >>> list(PrefetchingStream([1, 2, 3], num_prefetch=2))
    [1, 2, 3]
    """

    def __init__(
        self, stream: Iterable[Any], num_prefetch: int = 1, worker_type: str = "thread"
    ) -> None:
        self._stream = stream
        remedy = "It is how many items are made ahead."
        self._ahead = as_int("num_prefetch", num_prefetch, low=-sys.maxsize, remedy=remedy)
        if self._ahead < 1:
            raise ConfigError(f"num_prefetch must be greater 0. Got {num_prefetch}: {remedy}")
        self._worker_type = str(worker_type).lower()
        if self._worker_type not in _WORKER_TYPES:
            raise ArgumentError(
                f"worker_type must be 'thread' or 'process', got {shown(worker_type)}."
            )

    def __iter__(self) -> Iterator[Any]:
        seeds = random.getrandbits(32), int(np.random.randint(0, _SEED_LIMIT))
        wrap, unwrap = (_Item, _value_of) if self._worker_type == "thread" else (_pack, _unpack)
        loader: Any = DataLoader(
            _StreamDataset(self._stream),
            batch_size=None,
            collate_fn=wrap,
            num_workers=1,
            prefetch_factor=self._ahead,
            worker_type=self._worker_type,  # type: ignore[arg-type]
            worker_init_fn=functools.partial(_seed, *seeds),
            worker_retries=0,
            snapshot_every_n_steps=0,
            keep_states=0,
        )
        items = iter(loader)
        next(items)  # the worker has begun
        return map(unwrap, items)


class _StreamDataset(IterableDataset[Any]):
    """Yields None as soon as the iteration over a stream has begun, then its items."""

    def __init__(self, stream: Iterable[Any]) -> None:
        self._stream = stream

    def __iter__(self) -> Iterator[Any]:
        return itertools.chain([None], iter(self._stream))


class _Item:
    """Holds an item that a thread made, so that the loader hands it over as it is."""

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value


def _value_of(item: _Item) -> Any:
    return item.value


def _pack(item: Any) -> list[npt.NDArray[np.uint8]]:
    """Return the pickle of an item, then the bytes of the large arrays in it: copied once."""
    large: list[npt.NDArray[np.uint8]] = []

    def keep(buffer: pickle.PickleBuffer) -> bool:
        found = np.frombuffer(buffer.raw(), np.uint8)
        is_small = found.nbytes < _IN_BAND_BYTES
        if not is_small:
            large.append(found)
        return is_small

    text = pickle.dumps(item, protocol=5, buffer_callback=keep)
    return [np.frombuffer(text, np.uint8), *large]


def _unpack(parts: list[npt.NDArray[np.uint8]]) -> Any:
    return pickle.loads(parts[0].data, buffers=parts[1:])


def _seed(python_seed: int, numpy_seed: int, worker_id: int) -> None:  # noqa: ARG001
    """Seed the worker's generators; in a thread, those that no other thread has."""
    worker = get_worker_info()
    both = python_seed << 32 | numpy_seed
    if worker is not None and worker.rng is not None:
        worker.rng.reseed(both)
        return
    seed_known_libraries(both)
    random.seed(python_seed)
    np.random.seed(numpy_seed)
