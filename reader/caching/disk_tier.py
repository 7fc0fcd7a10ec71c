"""A file of entries on disk, in a folder of its own: opened, made, or begun anew.

Imports the file of entries. Processes that use a folder hold a lock on its file; whoever opens it
holds the folder's other lock meanwhile. Both end with their process.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import warnings
from collections.abc import Iterator
from pathlib import Path

from reader.caching.entry_file import HEAD, EntryFile, entries_begin
from reader.caching.file_lock import locked
from reader.caching.identity import Identity, identity_in
from reader.errors import ConfigError, remedy_for_file

__all__ = ["open_disk"]

_FILE = "samples.cache"
_LOCK = "lock"


def open_disk(folder: str, identity: Identity, limit: int) -> EntryFile:
    """Return the file of entries in a folder, which is made where there is none.

    A file of the same dataset in another version is begun anew, with a warning.

    Args:
        folder: which holds nothing else.
        identity: what the file is of.
        limit: how many bytes entries may take.

    Raises:
        ConfigError: the folder cannot be written, the disk is full, or the file is of another
            dataset, of another format, damaged, in use in another version, or its table is larger
            than the limit.
    """
    path = Path(folder)
    table = entries_begin(identity.samples)
    if table >= limit:
        raise ConfigError(
            f"disk_limit must be more than the {table:,} bytes that the table of"
            f" {identity.samples:,} entries takes, got {limit:,}: pass a larger one"
        )
    try:
        path.mkdir(parents=True, exist_ok=True)
        with _turn(path / _LOCK):
            fd = _opened(path / _FILE, identity)
            try:
                return EntryFile(fd, identity.samples, limit - table, is_memory=False)
            except BaseException:
                os.close(fd)
                raise
    except OSError as error:
        remedy = "Pass a folder that can be written to, on a disk with room"
        raise ConfigError(
            f"'{folder}' cannot hold a cache: {error}. {remedy_for_file(error, remedy)}"
        ) from error


def _opened(path: Path, identity: Identity) -> int:
    """Return a descriptor of a file that is of what it should be, and in use from now on."""
    with contextlib.suppress(FileNotFoundError):
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        try:
            if _is_usable(fd, path, identity):
                return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
    return _made(path, identity)


def _is_usable(fd: int, path: Path, identity: Identity) -> bool:
    """Whether a file is of the same dataset and version; False: it is to be begun anew."""
    is_alone = _lock(fd, fcntl.LOCK_EX)
    found = _identity_of(fd, path)
    if (found.dataset, found.what) != (identity.dataset, identity.what):
        raise ConfigError(
            f"'{path.parent}' holds a cache of {found.what} of {found.dataset}, and not of"
            f" {identity.what} of {identity.dataset}: pass a folder of its own for each dataset"
        )
    if found != identity:
        if not is_alone:
            raise ConfigError(
                f"'{path.parent}' holds a cache of {_told(found)}, which is in use, and not of"
                f" {_told(identity)}: pass another folder, or end what uses it: another process, or"
                " a dataset of this one"
            )
        warnings.warn(
            f"the cache in '{path.parent}' was of {_told(found)}, and is begun anew for"
            f" {_told(identity)}",
            stacklevel=2,
        )
        return False
    if os.fstat(fd).st_size < entries_begin(identity.samples):
        raise ConfigError(f"'{path}' is cut off: remove it, and it is made again")
    if is_alone:
        EntryFile(os.dup(fd), identity.samples, 0, is_memory=False).recover()
    _lock(fd, fcntl.LOCK_SH)
    return True


def _identity_of(fd: int, path: Path) -> Identity:
    try:
        return identity_in(os.pread(fd, HEAD, 0))
    except LookupError as error:
        its_format, our_format = error.args
        raise ConfigError(
            f"'{path}' was made by another version of lodreader, in format {its_format}, and this"
            f" one has format {our_format}: remove it, or pass another folder"
        ) from error
    except ValueError as error:
        raise ConfigError(
            f"'{path}' is no cache, or damaged ({error}): remove it, or pass another folder"
        ) from error


def _made(path: Path, identity: Identity) -> int:
    """Make a file without entries. It gets its name when all of it is on the disk."""
    draft = path.with_suffix(".draft")
    fd = os.open(draft, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
    try:
        # room for the table: a write through the mapping must not find the disk full
        os.posix_fallocate(fd, 0, entries_begin(identity.samples))
        os.pwrite(fd, identity.head(), 0)
        os.fsync(fd)
        _lock(fd, fcntl.LOCK_SH)
        draft.rename(path)
        folder = os.open(path.parent, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except BaseException:
        os.close(fd)
        draft.unlink(missing_ok=True)
        raise
    return fd


def _lock(fd: int, kind: int) -> bool:
    """Lock a file, if that can be at once. A file system without locks has none to wait for."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:  # BlockingIOError where another has it
        return False
    return True


def _told(identity: Identity) -> str:
    version = f", version {identity.version!r}" if identity.version else ""
    return f"{identity.samples:,} samples{version}, {identity.digest[:8] or 'undigested'}"


@contextlib.contextmanager
def _turn(path: Path) -> Iterator[None]:
    """Have one process at a time open the file."""
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        with locked(fd):
            yield
    finally:
        os.close(fd)
