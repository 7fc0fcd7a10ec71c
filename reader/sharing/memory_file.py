"""Anonymous memory that processes share: written once, sealed, read by all.

Imports the core's mapping and `reader.available_memory`. A MemoryFile owns its descriptor and its
mapping; forked processes have both, others get the descriptor as multiprocessing passes it.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Sequence
from multiprocessing import context, reduction
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from reader._core.interpreter.signals import Finalized
from reader._core.shared.mapping import Mapping
from reader.available_memory import available_bytes
from reader.errors import ConfigError, ReaderError, refusal

__all__ = [
    "Bytes",
    "MemoryFile",
    "Part",
    "is_sent",
    "is_shared_memory",
    "padded",
    "part_of",
    "seal",
]

Bytes = npt.NDArray[np.uint8]

_LINE = 64  # alignment of each part: rows of numbers are copied by whole lines
_FUTURE_WRITE = 0x10  # F_SEAL_FUTURE_WRITE: linux/fcntl.h, of Linux 5.1
# F_SEAL_WRITE would do too, but before Linux 6.7 such a file cannot be mapped as shared memory
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | _FUTURE_WRITE | fcntl.F_SEAL_SEAL


class Part(NamedTuple):
    """A number of bytes, and the function that writes them into an array of that size."""

    nbytes: int
    write: Callable[[Bytes], None]


def part_of(array: npt.NDArray[Any]) -> Part:
    """Return a part with the bytes of an array."""
    made = np.ascontiguousarray(array)

    def write(out: Bytes) -> None:
        out[:] = made.reshape(-1).view(np.uint8)

    return Part(made.nbytes, write)


class MemoryFile(Finalized):
    """Immutable parts of memory, one after the other.

    Args:
        fd: of a file in memory; this object owns it.
        sizes: how many bytes each part has.

    Raises:
        OSError: the system refuses to map it.
    """

    _fd = -1

    def __init__(self, fd: int, sizes: Sequence[int]) -> None:
        self._sizes = tuple(sizes)
        self._mapping = Mapping(fd, sum(map(padded, self._sizes)))
        self._fd = fd  # last: until then the caller closes fd

    @classmethod
    def made_of(cls, parts: Sequence[Part]) -> MemoryFile:
        """Write parts into a new file in memory.

        Raises:
            ConfigError: the machine, or a memory cgroup, has not that much memory.
            ReaderError: the system refuses a file, or to map it.
        """
        sizes = [part.nbytes for part in parts]
        total = sum(map(padded, sizes))
        available = available_bytes()
        if total > available:
            raise ConfigError(
                f"sharing takes {total:,} bytes of memory, and {available:,} are available: share"
                " less, or free memory first"
            )
        fd = -1
        try:
            fd = os.memfd_create("lodreader-shared", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
            os.ftruncate(fd, total)
            _write(fd, total, parts)
            seal(fd)
            return cls(fd, sizes)
        except BaseException as error:
            if fd >= 0:
                os.close(fd)
            if isinstance(error, OSError):
                what = f"shared memory of {total:,} bytes, with a file of its own,"
                raise refusal(what, "cannot be made", error) from error
            raise

    @property
    def parts(self) -> list[Bytes]:
        """The bytes of each part, read-only."""
        return _views(self._mapping, self._sizes)

    @property
    def fd(self) -> int:
        """The descriptor, which this object owns."""
        return self._fd

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes."""
        return self._mapping.nbytes

    def __reduce__(self) -> Any:
        """Pass the descriptor to another process, in the way of multiprocessing."""
        return _received, (reduction.DupFd(self._fd), self._sizes)

    def finalize(self) -> None:
        """Close the descriptor."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def seal(fd: int) -> None:
    """Make a memory file immutable for every holder of a descriptor."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)


def is_shared_memory(fd: int) -> bool:
    """Whether a descriptor is of an immutable memory file."""
    try:
        return fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
    except OSError:  # it is no memory file
        return False


def is_sent() -> bool:
    """Whether multiprocessing is pickling the arguments of a process that it starts."""
    popen: Any = context.get_spawning_popen()
    return popen is not None


def _received(descriptor: Any, sizes: tuple[int, ...]) -> MemoryFile:
    try:
        fd = descriptor.detach()
    except (OSError, EOFError) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise refusal("shared memory", "cannot be opened", error) from error
        raise ReaderError(
            f"shared memory cannot be opened: {error}. The process that made it has ended, or was"
            " sent this pickle twice: pass the object to each process once, while its maker runs"
        ) from error
    try:
        return MemoryFile(fd, sizes)
    except BaseException as error:
        os.close(fd)
        if isinstance(error, OSError):
            raise refusal("shared memory", "cannot be mapped", error) from error
        raise


def _write(fd: int, total: int, parts: Sequence[Part]) -> None:
    try:
        if total:
            os.posix_fallocate(fd, 0, total)  # lack of memory is an error here, not a signal
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.ENOMEM):
            raise
        raise ConfigError(
            f"sharing takes {total:,} bytes of memory, which the machine has not: share less"
        ) from error
    mapping = Mapping(fd, total, is_writable=True)
    for part, view in zip(parts, _views(mapping, [part.nbytes for part in parts])):
        part.write(view)


def _views(mapping: Any, sizes: Sequence[int]) -> list[Bytes]:
    content = np.frombuffer(memoryview(mapping), np.uint8)
    found, at = [], 0
    for size in sizes:
        found.append(content[at : at + size])
        at += padded(size)
    return found


def padded(nbytes: int) -> int:
    """Return how many bytes a part of `nbytes` takes with its padding."""
    return -(-nbytes // _LINE) * _LINE
