"""What every format gives: an open shard, and what is known of it before it is opened.

Imports the errors and how files are opened. An open shard belongs to one process; its threads may
read from it at once, since every read names its place.
"""

from __future__ import annotations

import abc
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader.errors import ConfigError, DatasetError
from reader.files import open_regular

__all__ = [
    "UNIT_ENDS",
    "Arrays",
    "ListedShard",
    "Options",
    "PlacedShard",
    "Shard",
    "ShardFile",
    "StoredBytes",
    "errors_of_library",
    "inner_path",
    "json_of",
    "read_places",
    "shard_file",
]

UNIT_ENDS = "unit_ends"  # an array: the ends of what is read as one part of a shard, in samples
_NUMBER = np.dtype("<u4")  # of a head with places
_MOST_JSON = 1 << 30  # bytes of an index
_MOST_AHEAD = 1 << 28  # bytes of a file that is read into the system's cache before it is asked for
_AHEAD = 1 << 19  # bytes: of a longer part Linux reads the beginning alone

Arrays = Mapping[str, npt.NDArray[Any]]


class ShardFile(NamedTuple):
    """A file of a set, as it was when its index was made.

    Attributes:
        path: of it.
        nbytes: of it.
        mtime_ns: when it was changed last, in nanoseconds.
    """

    path: str
    nbytes: int
    mtime_ns: int


def shard_file(path: str) -> ShardFile:
    """Return a file as it is now. OSError: it cannot be read."""
    found = os.stat(path)  # noqa: PTH116
    return ShardFile(path, found.st_size, found.st_mtime_ns)


def json_of(path: str) -> Any:
    """Return what a JSON file holds.

    Raises:
        FileNotFoundError: there is no such file.
        ConfigError: it cannot be read, or holds no JSON.
    """
    try:
        with open(path, "rb", opener=open_regular) as file:
            nbytes = os.fstat(file.fileno()).st_size
            if nbytes > _MOST_JSON:
                raise ConfigError(
                    f"'{path}' has {nbytes:,} bytes, and the most is {_MOST_JSON:,}: write fewer"
                    " and larger shards"
                )
            return json.loads(file.read())
    except FileNotFoundError:
        raise
    except OSError as error:
        raise ConfigError(f"'{path}' cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, ConfigError):
            raise
        raise ConfigError(
            f"'{path}' is damaged: {error}. Fetch it again, or write the shards anew"
        ) from error


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


def inner_path(folder: str, name: str) -> str:
    """Return the path of a file that an index names. ConfigError: it is outside of the folder."""
    if os.path.isabs(name) or ".." in name.split("/"):  # noqa: PTH117
        raise ConfigError(f"it names the file '{name}', which is outside of its folder")
    return os.path.join(folder, name)  # noqa: PTH118


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

    def wants(self, name: str) -> bool:
        """Whether a field is wanted."""
        return self.names is None or name in self.names


class StoredBytes:
    """The bytes of a shard, read by their place.

    Args:
        file: the file; it must be as it was.
        content: what it is decompressed to; None: it is read as it lies.

    Raises:
        DatasetError: it cannot be opened, or has changed.
    """

    def __init__(self, file: ShardFile, content: bytes | None = None) -> None:
        self.path = file.path
        self._content = content
        self.unpacked_nbytes = 0 if content is None else len(content)
        self._fd = -1
        try:
            self._fd = open_regular(file.path)
            found = os.fstat(self._fd)
        except OSError as error:
            raise DatasetError(f"the shard '{file.path}' cannot be opened: {error}") from error
        self.nbytes = found.st_size if content is None else len(content)
        self._file = file
        self._compare(found)

    @property
    def mtime_ns(self) -> int:
        """When the file was changed last, in nanoseconds."""
        return self._file.mtime_ns

    @property
    def fd(self) -> int:
        """The descriptor of the file, open as long as this is; -1: its bytes lie in memory."""
        return self._fd if self._content is None else -1

    def check_unchanged(self) -> None:
        """Raise DatasetError where the file is not as it was, unless all of it was read."""
        if self._content is None:
            self._compare(os.fstat(self._fd))

    def read_ahead(self) -> None:
        """Have the system read the file into its cache, if it is not large; does not wait."""
        if self._content is None and self.nbytes <= _MOST_AHEAD:
            with suppress(OSError):  # a file system that has no such cache
                for place in range(0, self.nbytes, _AHEAD):
                    os.posix_fadvise(self._fd, place, _AHEAD, os.POSIX_FADV_WILLNEED)

    def _compare(self, found: os.stat_result) -> None:
        if (found.st_size, found.st_mtime_ns) != self._file[1:]:
            raise DatasetError(
                f"the shard '{self.path}' has changed since its index was made: it had"
                f" {self._file.nbytes:,} bytes, and has {found.st_size:,}. Leave the files as they"
                " are while they are read, or make the dataset anew"
            )

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def read(self, place: int, nbytes: int) -> bytes:
        """Return some bytes. DatasetError: the file does not have them."""
        if not 0 <= place <= place + nbytes <= self.nbytes:
            raise DatasetError(
                f"the shard '{self.path}' is damaged: bytes {place:,} to {place + nbytes:,} are"
                f" named, and it has {self.nbytes:,}"
            )
        if self._content is not None:
            return self._content[place : place + nbytes]
        try:
            found = os.pread(self._fd, nbytes, place)
            while len(found) < nbytes:  # a signal came, or the file was cut
                more = os.pread(self._fd, nbytes - len(found), place + len(found))
                if not more:
                    raise DatasetError(
                        f"the shard '{self.path}' ends at {os.fstat(self._fd).st_size:,}, and had"
                        f" {self.nbytes:,} bytes when it was opened"
                    )
                found += more
        except OSError as error:  # of a disk, or of a network
            raise DatasetError(
                f"the shard '{self.path}' cannot be read at {place:,}: {error}"
            ) from error
        return found


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

    def check_sums(self) -> None:  # noqa: B027  # most formats have none
        """Compare the sums of the whole file, where its set has them and opening it does not.

        Raises:
            DatasetError: one differs.
        """

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

    def content(self, position: int) -> bytes:
        """Return the bytes of a sample."""
        begin, end = self._places[position], self._places[position + 1]
        found: bytes = self._stored.read(begin, end - begin)
        return found

    def origin(self, position: int) -> tuple[int, str]:
        """See Shard."""
        return self._places[position], ""
