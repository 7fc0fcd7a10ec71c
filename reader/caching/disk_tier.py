"""A file of entries on disk, in its own folder: opened, made, or started again.

Imports the file of entries and private folders. Processes that use a folder hold a lock on its
file; a process that opens it also holds the folder's second lock. Both end with their process. On a
file system without locks, all use the file that was published first.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import secrets
import warnings

from reader.caching.entry_file import HEAD, EntryFile, entries_begin
from reader.caching.identity import Identity, identity_in
from reader.errors import ConfigError, remedy_for_file
from reader.files import PrivateFolder

__all__ = ["open_disk"]

_FILE = "samples.cache"
_LOCK = "lock"
_DRAFT = "samples.", ".draft"
_PATIENCE_S = 300.0  # for a process that makes the file without progress: disks may be slow
_TRIES = 16  # while others keep replacing the file


def open_disk(folder: str, identity: Identity, limit: int) -> EntryFile:
    """Return the file of entries in a folder; make it if there is none.

    A file of the same dataset in another version is started again, with a warning. Waits for
    another process that opens it, at most 300 s while that writes nothing.

    Args:
        folder: for this file alone.
        identity: of the cache.
        limit: how many bytes entries may take.

    Raises:
        ConfigError: the folder cannot be written, others may write to it, another process keeps it
            locked, the disk is full, or the file is of another dataset, of another format, damaged,
            in use in another version, or its table is larger than the limit.
    """
    table = entries_begin(identity.samples)
    if table >= limit:
        raise ConfigError(
            f"disk_limit must be more than the {table:,} bytes that the table of"
            f" {identity.samples:,} entries takes, got {limit:,}: pass a larger one"
        )
    try:
        with PrivateFolder(folder, "disk") as place:
            with place.exclusive(_LOCK, _PATIENCE_S, lambda: _drafts_of(place)) as is_alone:
                for left in place.names(*_DRAFT) if is_alone else ():
                    place.remove(left)  # its process died
                fd = _opened(place, identity)
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


def _drafts_of(folder: PrivateFolder) -> object:
    """Return a value that changes while another process makes a file."""
    found = []
    for name in folder.names(*_DRAFT):
        with contextlib.suppress(FileNotFoundError):
            draft = os.stat(name, dir_fd=folder.fd)
            found.append((name, draft.st_size, draft.st_blocks, draft.st_mtime_ns))
    return sorted(found)


def _opened(folder: PrivateFolder, identity: Identity) -> int:
    """Return a descriptor of a file with the right identity, locked for use from now on."""
    for _ in range(_TRIES):
        with contextlib.suppress(FileNotFoundError):
            fd = folder.open(_FILE, os.O_RDWR)
            try:
                if _is_usable(fd, folder, identity):
                    return fd
                now = os.stat(_FILE, dir_fd=folder.fd)
                if os.path.samestat(os.fstat(fd), now):  # without locks, it may be another's
                    folder.remove(_FILE)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
        made = _made(folder, identity)
        if made is not None:
            return made
    raise ConfigError(
        f"'{folder.path}' cannot hold a cache: other processes put their own file there each time,"
        f" {_TRIES} times now. Pass a folder of its own to each program"
    )


def _is_usable(fd: int, folder: PrivateFolder, identity: Identity) -> bool:
    """Whether a file is of the same dataset and version; False: start it again."""
    is_alone = _lock(fd, fcntl.LOCK_EX)
    path = folder.path
    found = _identity_of(fd, f"{path / _FILE}")
    if (found.dataset, found.what) != (identity.dataset, identity.what):
        raise ConfigError(
            f"'{path}' holds a cache of {found.what} of {found.dataset}, and not of"
            f" {identity.what} of {identity.dataset}: pass a folder of its own for each dataset"
        )
    if found != identity:
        if not is_alone:
            raise ConfigError(
                f"'{path}' holds a cache of {_described(found)}, which is in use, and not of"
                f" {_described(identity)}: pass another folder, or end what uses it: another"
                " process, or a dataset of this one"
            )
        warnings.warn(
            f"the cache in '{path}' was of {_described(found)}, and is begun anew for"
            f" {_described(identity)}",
            stacklevel=2,
        )
        return False
    if os.fstat(fd).st_size < entries_begin(identity.samples):
        raise ConfigError(f"'{path / _FILE}' is cut off: remove it, and it is made again")
    if is_alone:
        EntryFile(os.dup(fd), identity.samples, 0, is_memory=False).recover()
    _lock(fd, fcntl.LOCK_SH)
    return True


def _identity_of(fd: int, path: str) -> Identity:
    try:
        return identity_in(os.pread(fd, HEAD, 0))
    except LookupError as error:
        its_format, our_format = error.args
        raise ConfigError(
            f"'{path}' was made by another version of lodreader, in format {its_format}, and this"
            f" one has format {our_format}: remove it, or pass another folder"
        ) from error
    except (ValueError, RecursionError) as error:  # RecursionError: deeply nested lists
        raise ConfigError(
            f"'{path}' is no cache, or damaged ({error}): remove it, or pass another folder"
        ) from error


def _made(folder: PrivateFolder, identity: Identity) -> int | None:
    """Make a file without entries; None: another process has made one meanwhile.

    It gets its name when it is complete on the disk, and only if nothing has that name.
    """
    draft = f"{_DRAFT[0]}{os.getpid()}.{secrets.token_hex(4)}{_DRAFT[1]}"
    mode = 0o660 if folder.is_shared else 0o600
    fd = folder.create(draft, mode)
    try:
        if folder.is_shared:
            os.fchmod(fd, mode)  # whatever the umask
        # allocate the table: a write through the mapping must not find the disk full
        os.posix_fallocate(fd, 0, entries_begin(identity.samples))
        os.pwrite(fd, identity.head(), 0)
        os.fsync(fd)
        _lock(fd, fcntl.LOCK_SH)
        is_first = _publish(folder, draft)
        os.fsync(folder.fd)
    except BaseException:
        os.close(fd)
        folder.remove(draft)
        raise
    if is_first:
        return fd
    os.close(fd)
    return None


def _publish(folder: PrivateFolder, draft: str) -> bool:
    """Give a draft its name. False: something has that name already."""
    try:
        os.link(draft, _FILE, src_dir_fd=folder.fd, dst_dir_fd=folder.fd)
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        folder.rename(draft, _FILE)
        return True
    finally:
        folder.remove(draft)
    return True


# errors of file systems without hard links
_NO_LINKS = (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK)


def _lock(fd: int, kind: int) -> bool:
    """Lock a file if it is free. A file system without locks has none to wait for."""
    try:
        fcntl.flock(fd, kind | fcntl.LOCK_NB)
    except OSError:  # BlockingIOError: another process has it
        return False
    return True


def _described(identity: Identity) -> str:
    version = f", version {identity.version!r}" if identity.version else ""
    return f"{identity.samples:,} samples{version}, {identity.digest[:8] or 'undigested'}"
