"""Datasets whose samples hold their index and a checksum, and functions that check batches.

Imports reader and numpy. A shape is a value; each dataset belongs to the loader it is made for.
"""

from __future__ import annotations

import functools
import threading
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

import reader

__all__ = ["Broken", "Items", "Shape", "Stream", "Walk", "digest_of", "numbers_of", "stack"]

SLOW_S = 0.02


class Broken(Exception):
    """The exception of a dataset.

    Args:
        index: of the sample.
    """

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


@dataclass(frozen=True)
class Shape:
    """The kind of samples of a dataset.

    Attributes:
        count: how many there are.
        nbytes: of each.
        slow: one of so many takes long; 0: none.
        raising: one of so many raises; 0: none.
    """

    count: int
    nbytes: int
    slow: int = 0
    raising: int = 0

    def sample(self, index: int) -> dict[str, Any]:
        """Return a sample, or raise Broken."""
        if self.slow and index % self.slow == 1 % self.slow:
            threading.Event().wait(SLOW_S)
        if self.breaks(index):
            raise Broken(index)
        content = _content(index, self.nbytes)
        return {"index": index, "bytes": content, "sum": zlib.crc32(content.data)}

    def breaks(self, index: int) -> bool:
        """Whether a sample raises."""
        return bool(self.raising) and index % self.raising == 2 % self.raising


def _content(index: int, nbytes: int) -> np.ndarray[Any, Any]:
    numbers = np.arange(nbytes, dtype=np.uint32) * np.uint32(2 * index + 1) + np.uint32(index)
    found: np.ndarray[Any, Any] = (numbers >> np.uint32(3)).astype(np.uint8)
    return found


@functools.lru_cache(4096)
def _sum(index: int, nbytes: int) -> int:
    return zlib.crc32(_content(index, nbytes).data)


class Items(reader.Dataset[Any]):
    """A map-style dataset."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __getitem__(self, index: int) -> Any:
        return self.shape.sample(int(index))

    def __len__(self) -> int:
        return self.shape.count


class Stream(reader.IterableDataset[Any]):
    """An iterable dataset; worker w of W yields the samples w, w + W, and so on."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape

    def __iter__(self) -> Iterator[Any]:
        return Walk(self.shape)


class Walk:
    """Yields a worker's samples, and goes on after one that raises."""

    def __init__(self, shape: Shape) -> None:
        self.shape = shape
        self.indices = iter(reader.shard(range(shape.count)))

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self.shape.sample(next(self.indices))


def stack(samples: list[Any]) -> dict[str, Any]:
    """Return a batch: a collate_fn of the user's."""
    return {name: np.stack([each[name] for each in samples]) for name in samples[0]}


def numbers_of(batch: Any) -> tuple[list[int], bool]:
    """Return the indices of a batch's samples, and whether its bytes are those of the samples."""
    content = np.asarray(batch["bytes"])
    indices = np.asarray(batch["index"]).ravel().tolist()
    sums = np.asarray(batch["sum"]).ravel().tolist()
    is_right = len(indices) == len(sums) == len(content) and all(
        zlib.crc32(np.ascontiguousarray(row).data) == found == _sum(index, content.shape[1])
        for index, found, row in zip(indices, sums, content, strict=True)
    )
    return indices, is_right


def digest_of(batch: Any) -> int:
    """Return a checksum of all bytes of a batch."""
    found = 0
    for name in ("index", "bytes", "sum"):
        found = zlib.crc32(np.ascontiguousarray(np.asarray(batch[name])).data, found)
    return found
