"""Files of this machine: how they are found, and read by places.

Imports the errors, how files are opened, and paths. An open file belongs to one process; its
threads may read from it at once, since every read names its place.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any, BinaryIO, NamedTuple

from reader.errors import ConfigError, DatasetError
from reader.files import open_regular
from reader.stores.paths import files_in, is_folder, named, names_below
from reader.stores.read_ahead import read_ahead
from reader.stores.shard_cache import CacheUse

__all__ = [
    "Files",
    "OpenBytes",
    "StoredBytes",
    "StoredFile",
    "inner_path",
    "json_of",
    "stored_file",
]

_MOST_JSON = 1 << 30  # bytes of an index
_MOST_AHEAD = 1 << 28  # bytes of a file that is read into the system's cache before it is asked for
_AHEAD = 1 << 19  # bytes: of a longer part Linux reads the beginning alone


class StoredFile(NamedTuple):
    """A file of a set, as it was when its index was made.

    Attributes:
        path: of it.
        nbytes: of it.
        mtime_ns: when it was changed last, in nanoseconds.
    """

    path: str
    nbytes: int
    mtime_ns: int


def stored_file(path: str) -> StoredFile:
    """Return a file as it is now. OSError: it cannot be read."""
    found = os.stat(path)  # noqa: PTH116
    return StoredFile(path, found.st_size, found.st_mtime_ns)


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


def inner_path(folder: str, name: str) -> str:
    """Return the path of a file that an index names. ConfigError: it is outside of the folder."""
    if os.path.isabs(name) or ".." in name.split("/"):  # noqa: PTH117
        raise ConfigError(f"it names the file '{name}', which is outside of its folder")
    return os.path.join(folder, name)  # noqa: PTH118


class Files:
    """How the files of a set are found and read: those of this machine.

    Attributes:
        use: of a cache, for files of stores; None: there are none.
    """

    use: CacheUse | None = None

    def named(self, part: str) -> list[str]:
        """Return the files and folders that a path or pattern names. See `reader.stores.paths`."""
        return named(part)

    def stored(self, file: StoredFile, content: bytes | None = None) -> StoredBytes:
        """Return the bytes of a file, or of what it is decompressed to. See `StoredBytes`."""
        return StoredBytes(file, content)

    def file(self, path: str) -> StoredFile:
        """Return a file as it is now. OSError: it cannot be read."""
        return stored_file(path)

    def found(self, paths: Sequence[str]) -> list[StoredFile]:
        """Return files as they are now. OSError: one cannot be read; it names that."""
        found = []
        for path in paths:
            try:
                found.append(self.file(path))
            except (OSError, ValueError) as error:  # ValueError: of a name with a NUL
                raise OSError(f"the shard '{path}' cannot be read: {error}") from error
        return found

    def json(self, path: str) -> Any:
        """Return what a JSON file holds. See `json_of`."""
        return json_of(path)

    def has(self, path: str) -> bool:
        """Whether there is a file."""
        return os.path.exists(path)  # noqa: PTH110

    def is_here(self, path: str) -> bool:
        """Whether there is a file on this machine."""
        return os.path.exists(path)  # noqa: PTH110

    def is_file(self, path: str) -> bool:
        """Whether a path is that of a file."""
        return os.path.isfile(path)  # noqa: PTH113

    def entries(self, folder: str) -> list[str]:
        """Return the files, links and other entries of a folder. See `files_in`."""
        return files_in(folder)

    def indexed_folders(self, folder: str) -> list[str]:
        """Return the folders in a folder that have an index.json."""
        with os.scandir(folder) as entries:
            inner = sorted(each.path for each in entries if each.is_dir())
        return [each for each in inner if self.has(os.path.join(each, "index.json"))]  # noqa: PTH118

    def is_folder(self, path: str) -> bool:
        """Whether a path is that of a folder."""
        return os.path.isdir(path)  # noqa: PTH112

    def folders(self, folder: str) -> list[str]:
        """Return the names of the folders in a folder, sorted. OSError: it cannot be read."""
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if is_folder(each))

    def names(self, folder: str) -> list[str]:
        """Return the names of all that lies in a folder, sorted. OSError: it cannot be read."""
        return sorted(os.listdir(folder))  # noqa: PTH208

    def tree(
        self, folder: str, above: frozenset[tuple[int, int]] | None = None
    ) -> tuple[dict[str, list[str]], list[str]]:
        """Return the names of the files in a folder and in each below it. See `names_below`."""
        return names_below(folder, above)

    def below(self, folder: str) -> list[str]:
        """Return the paths in a folder of all files below it.

        Raises:
            ConfigError: it cannot be read, or a link in it leads back to a folder that it lies in.
        """
        names_in, loops = names_below(folder)
        if loops:
            raise ConfigError(
                f"the link '{loops[0]}' leads back to a folder that it lies in: remove it, or write"
                " an index.jsonl that names the files"
            )
        found = []
        for inner, names in names_in.items():
            part = os.path.relpath(inner, folder)
            found += [name if part == os.curdir else f"{part}/{name}" for name in names]
        return found

    def listed_meanwhile(self, path: str) -> AbstractContextManager[None]:  # noqa: ARG002
        """Have a store list what lies beside a file, while the context reads that one.

        Of what is listed it is not asked for bytes and version again.
        """
        return nullcontext()

    def keep_listings(self, folder: str) -> None:
        """Keep what a store lists in a folder of this machine, and take it from there.

        Raises:
            ConfigError: nothing is in a store.
        """
        raise ConfigError(
            f"index='{folder}' is for the list of what lies in a store, and these files are of this"
            " machine: leave it out"
        )

    def place_of(self, folder: str) -> str:  # noqa: ARG002
        """Return the path of the file that keeps what lies below an address; "": none does."""
        return ""

    def forget(self) -> None:
        """Forget what was listed, which takes memory: who has it keeps what it needs."""

    def fetch_stats(self) -> dict[str, Any]:
        """Return what was fetched. See `Shards.fetch_stats`."""
        return {}

    def expect(
        self, groups: list[list[StoredFile]], then: list[list[StoredFile]], begins: bool = True
    ) -> None:
        """Take the order in which files will be read. See `ShardedDataset.expect`.

        Args:
            groups: of files that are read together.
            then: those of the next epoch; empty: they are not known.
            begins: whether an epoch begins with them; else it goes on.
        """

    @property
    def are_read_elsewhere(self) -> bool:
        """Whether workers on other machines read them."""
        return False

    def fetch(self, wanted: Iterable[tuple[StoredFile, Sequence[tuple[int, int]]]]) -> None:
        """Have bytes fetched together that are read next: where they begin and end in files.

        Of files of this machine the system is asked to read them.
        """
        read_ahead((file.path, *each) for file, ranges in wanted for each in ranges)

    def is_given_anew(
        self,
        file: StoredFile,  # noqa: ARG002
        ranges: Sequence[tuple[int, int]],  # noqa: ARG002
        error: Exception,  # noqa: ARG002
    ) -> bool:
        """Whether bytes that were found to be damaged are fetched anew when they are read again.

        Args:
            file: that they are of.
            ranges: where they begin and end in it; an end of -1 is the file's.
            error: what was found.
        """
        return False

    def open(self, path: str) -> BinaryIO:
        """Return an open file, which the caller closes.

        Raises:
            OSError, ValueError: it cannot be opened; of one in a store, reads raise DatasetError.
        """
        return open(path, "rb", opener=open_regular)

    def source(self, path: str) -> Any:
        """Return what a library opens a file by: its path, or an object that it reads.

        Raises:
            OSError: it is not in its store.
        """
        return path

    def fetch_ends(self, paths: Sequence[str], first: int, last: int) -> None:
        """Have so many of the first and the last bytes of files fetched together.

        Raises:
            OSError, DatasetError: one cannot be read.
        """

    def head(self, path: str, nbytes: int) -> bytes:
        """Return the first bytes of a file; -1: all. OSError, ValueError: it cannot be read."""
        with open(path, "rb", opener=open_regular) as file:
            return file.read(nbytes)


class StoredBytes:
    """The bytes of a shard, read by their place.

    Args:
        file: the file; it must be as it was.
        content: what it is decompressed to; None: it is read as it lies.

    Raises:
        DatasetError: it cannot be opened, or has changed.
    """

    def __init__(self, file: StoredFile, content: bytes | None = None) -> None:
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
    def source(self) -> Any:
        """What a library opens the file by: its path, or an object that it reads."""
        return self.path

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
                f" {self._file.nbytes:,} bytes, and has {found.st_size:,}, or was written to. Leave"
                " the files as they are while they are read, or make the dataset anew"
            )

    def __del__(self) -> None:
        fd, self._fd = getattr(self, "_fd", -1), -1
        if fd >= 0:
            os.close(fd)

    def read(self, place: int, nbytes: int) -> bytes:
        """Return some bytes. DatasetError: the file does not have them."""
        if not 0 <= place <= place + nbytes <= self.nbytes:
            raise self._outside(place, nbytes)
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

    def parts(self, places: Sequence[int], numbers: Sequence[int]) -> Iterator[bytes]:
        """Yield some parts of what lies one behind the other: `places[k]` to `places[k + 1]`."""
        read = self.read
        for number in numbers:
            begin = places[number]
            yield read(begin, places[number + 1] - begin)

    def pread(self, nbytes: int, place: int) -> bytes:
        """Return some bytes, or those that there are, as os.pread does. See `read`."""
        return self.read(place, max(0, min(nbytes, self.nbytes - place)))

    def _outside(self, place: int, nbytes: int) -> DatasetError:
        return DatasetError(
            f"the shard '{self.path}' is damaged: bytes {place:,} to {place + nbytes:,} are"
            f" named, and it has {self.nbytes:,}"
        )


class OpenBytes(io.RawIOBase):
    """The bytes of a file as an open file, for libraries; it needs no closing."""

    def __init__(self, stored: StoredBytes) -> None:
        self._stored = stored
        self._place = 0

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def seekable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """See io.RawIOBase."""
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._place, io.SEEK_END: self._stored.nbytes}[whence]
        self._place = max(0, base + offset)
        return self._place

    def tell(self) -> int:
        """See io.RawIOBase."""
        return self._place

    def read(self, nbytes: int = -1) -> bytes:
        """See io.RawIOBase; it allocates no more than the file has."""
        rest = max(0, self._stored.nbytes - self._place)
        count = rest if nbytes < 0 else min(nbytes, rest)
        found = self._stored.read(self._place, count) if count else b""
        self._place += len(found)
        return found

    def readinto(self, buffer: Any) -> int:
        """See io.RawIOBase."""
        found = self.read(len(buffer))
        memoryview(buffer).cast("B")[: len(found)] = found
        return len(found)
