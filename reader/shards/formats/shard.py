"""What every format gives: an open shard, and what is known of it before it is opened.

Imports the files. An open shard belongs to one process; its threads may
read from it at once, since every read names its place.
"""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError
from reader.stores.files import Files, StoredBytes
from reader.stores.kept_arrays import Arrays

__all__ = [
    "UNIT_ENDS",
    "Arrays",
    "ListedShard",
    "Options",
    "PlacedShard",
    "Shard",
    "errors_of_library",
    "read_places",
]

UNIT_ENDS = "unit_ends"  # an array: the ends of what is read as one part of a shard, in samples
_NUMBER = np.dtype("<u4")  # of a head with places


@contextmanager
def errors_of_library(path: str, kind: type[Exception]) -> Iterator[None]:
    """Raise `kind`, which names the file, where a library cannot read it, by errors of its own."""
    try:
        yield
    except (ConfigError, DatasetError):
        raise
    except Exception as error:
        raise kind(
            f"the shard '{path}' is damaged, encrypted, or of another format: {error}. Fetch it"
            " again, or write it anew"
        ) from error


class ListedShard(NamedTuple):
    """A shard of a set, before its file is read.

    Attributes:
        path: of its file, or of the folder that it is.
        samples: how many it has; None: its file has to be read to know.
        note: what else an index.json says of it, as JSON.
        arrays: its index, where that is made when the shard is listed.
        nbytes: of its file, as a list of the set says; None: it does not.
    """

    path: str
    samples: int | None = None
    note: str = ""
    arrays: Mapping[str, npt.NDArray[Any]] = MappingProxyType({})
    nbytes: int | None = None


class Options(NamedTuple):
    """How samples are decoded.

    Attributes:
        files: how the shards' files are found and read.
        check: whether sums that the format has are compared.
        allow_pickle: whether pickles are read, which can run any program.
        names: of the fields that are wanted, of which a sample may lack some; None: all.
        encoded: those of them that are wanted as bytes, where a shard holds the bytes of a file.
        numbers: those of them that are wanted as arrays, where a shard holds lists of numbers.
        block_size: how many tokens a sample has; None: as many as were written at once.
    """

    check: bool
    allow_pickle: bool
    names: frozenset[str] | None = None
    encoded: frozenset[str] = frozenset()
    numbers: frozenset[str] = frozenset()
    block_size: int | None = None
    files: Files = Files()

    def wants(self, name: str) -> bool:
        """Whether a field is wanted."""
        return self.names is None or name in self.names


def read_places(stored: StoredBytes, count: int, least: int, most: int) -> npt.NDArray[Any]:
    """Return where samples begin, and the last one ends, as the head of a file says it.

    The numbers are uint32, of little-endian order: how many samples there are, and their places.

    Args:
        stored: the file.
        count: how many samples an index.json says it has.
        least: where samples can begin.
        most: where they can end.

    Raises:
        DatasetError: it has another number of samples, or the places cannot be.
    """
    head = stored.read(0, _NUMBER.itemsize * (count + 2))
    numbers = np.frombuffer(head, _NUMBER).astype(np.int64)
    places = numbers[1:]
    if numbers[0] != count:
        raise DatasetError(
            f"the shard '{stored.path}' has {numbers[0]:,} samples, and index.json says {count:,}"
        )
    if places[0] < least or places[-1] > most or (np.diff(places) < 0).any():
        raise DatasetError(
            f"the shard '{stored.path}' is damaged: the places of its samples lie outside of it, or"
            " one before the other. Fetch it again, or write it anew"
        )
    return places


class Shard(abc.ABC):
    """An open shard: its samples by their position in it.

    Args:
        path: of its file.
        unpacked_nbytes: of what it is decompressed to in memory.

    Attributes:
        path, unpacked_nbytes: as given.
    """

    _stored: Any = None  # the StoredBytes that it reads from, if it keeps them

    def __init__(self, path: str, unpacked_nbytes: int = 0) -> None:
        self.path, self.unpacked_nbytes = path, unpacked_nbytes

    def check_unchanged(self) -> None:
        """Raise DatasetError where the file is not as it was when it was opened."""
        if self._stored is not None:
            self._stored.check_unchanged()

    def read_ahead(self) -> None:
        """Have the system read the file into its cache: more samples of it will be wanted."""
        if self._stored is not None:
            self._stored.read_ahead()

    @property
    def is_read_in_place(self) -> bool:
        """Whether bytes are read where they lie in the file, and not of what was decompressed."""
        return self._stored is not None and not self._stored.unpacked_nbytes

    def ranges(self, positions: Sequence[int]) -> list[tuple[int, int]]:  # noqa: ARG002
        """Return where the bytes of samples begin and end in the file, if that is known."""
        return []

    @abc.abstractmethod
    def samples(self, positions: Sequence[int]) -> list[Any]:
        """Return samples as the library gives them whose format it is, of the fields wanted.

        Raises:
            DatasetError: one is damaged.
        """

    @abc.abstractmethod
    def names(self, position: int) -> list[str]:
        """Return the names of all fields of a sample."""

    @abc.abstractmethod
    def origin(self, position: int) -> tuple[int, str]:
        """Return where in the file a sample begins, in bytes, and its key; "": it has none."""

    def check_sums(self) -> list[str]:
        """Compare sums and sizes of the whole file, where its set has them and opening it does not.

        Returns:
            The kinds of sums that it has, and that cannot be computed here.

        Raises:
            DatasetError: one differs.
        """
        return []  # most formats have none

    def damaged(self, position: int, what: str) -> DatasetError:
        """Return the error of a damaged sample; `what`: what is wrong with it."""
        return DatasetError(
            f"sample {position:,} of the shard '{self.path}', at {self.origin(position)[0]:,}, is"
            f" damaged: {what}. Fetch the shard again, or write it anew"
        )


class PlacedShard(Shard):
    """An open shard whose samples lie one behind the other.

    Args:
        stored: its bytes.
        places: where each sample begins, and the last one ends, of int64.
    """

    def __init__(self, stored: StoredBytes, places: npt.NDArray[Any]) -> None:
        super().__init__(stored.path, stored.unpacked_nbytes)
        self._stored = stored
        self._places = places.data  # gives a number in half of an array's time

    def contents(self, positions: Sequence[int]) -> Iterator[bytes]:
        """Yield the bytes of samples."""
        found: Iterator[bytes] = self._stored.parts(self._places, positions)
        return found

    def ranges(self, positions: Sequence[int]) -> list[tuple[int, int]]:
        """See Shard."""
        places = self._places
        return [(places[position], places[position + 1]) for position in positions]

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard."""
        return self._places[position], ""
