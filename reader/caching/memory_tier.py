"""A file of entries in memory: that of another process of this user, or a new one.

Imports the file of entries. The file has no name in any folder: it is found through the descriptors
of the processes that hold it (proc(5): /proc/PID/fd), and ends with the last of them. A process may
hold another user's file, such as a set-uid program that inherited it: so the owner is read from the
file itself, and its seals prove that nobody can truncate it (fcntl(2)).
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from reader.caching.entry_file import EntryFile, entries_begin
from reader.caching.identity import Identity
from reader.errors import ConfigError, refusal
from reader.files import locked, open_regular
from reader.log import log as _log

__all__ = ["open_memory"]

_PROC = Path("/proc")
_NAME = "lodreader-cache"
_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_PATIENCE_S = 5.0  # for a process that looks for a file or makes one: it takes ms


_opened: weakref.WeakValueDictionary[str, EntryFile] = weakref.WeakValueDictionary()


def open_memory(identity: Identity, limit: int, group: str | None) -> EntryFile:
    """Return a file of entries in memory.

    Args:
        identity: of the cache.
        limit: how many bytes entries may take.
        group: names the processes that use the same file; None: nobody else uses it.

    Raises:
        ConfigError: the cache is larger than the memory that a process may have.
        ReaderError: the system refuses descriptors.
    """
    if group is None:
        return _made(identity, limit, _NAME)
    name = f"{_NAME}-{group}-{limit}"
    with _locked():
        found = _opened.get(name)
        if found is None:
            found = _found(identity, limit, name) or _made(identity, limit, name)
            _opened[name] = found
        return found


def _made(identity: Identity, limit: int, name: str) -> EntryFile:
    try:
        fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as error:
        raise refusal("memory for a cache", "cannot be made", error) from error
    try:
        os.fchmod(fd, 0o600)  # the mode counts for access through /proc; it is 0777 at first
        os.ftruncate(fd, entries_begin(identity.samples) + limit)
        os.pwrite(fd, identity.head(), 0)
        with contextlib.suppress(OSError):  # a sandbox forbids it: then no other takes it
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
        return EntryFile(fd, identity.samples, limit, is_memory=True)
    except OSError as error:
        os.close(fd)
        if error.errno not in (errno.ENOMEM, errno.EFBIG, errno.EINVAL):
            raise
        raise ConfigError(
            f"a cache of {limit:,} bytes of memory for {identity.samples:,} samples is more than"
            f" the system gives: {error}. Pass a smaller memory="
        ) from error
    except BaseException:
        os.close(fd)
        raise


def _found(identity: Identity, limit: int, name: str) -> EntryFile | None:
    """Return the file that another process of this user holds; None: there is none."""
    for path in _descriptors():
        with contextlib.suppress(OSError):  # its process has ended meanwhile
            if not os.readlink(path).startswith(f"/memfd:{name} "):  # noqa: PTH115
                continue
            fd = open_regular(path, os.O_RDWR)
            try:
                if _is_own(fd, identity, limit):
                    return EntryFile(fd, identity.samples, limit, is_memory=True)
            except BaseException:
                os.close(fd)
                raise
            os.close(fd)
    return None


def _is_own(fd: int, identity: Identity, limit: int) -> bool:
    """Whether this user made a file, for this cache, and nobody can truncate it.

    OSError: it is no memory file.
    """
    found, head = os.fstat(fd), identity.head()
    return (
        found.st_uid == os.geteuid()
        and found.st_size == entries_begin(identity.samples) + limit
        and fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS == _SEALS
        and os.pread(fd, len(head), 0) == head
    )


def _descriptors() -> Iterator[str]:
    """Yield the paths of files that other processes of this user have open."""
    own = os.getuid()
    with contextlib.suppress(OSError), os.scandir(_PROC) as processes:
        for process in processes:
            if not process.name.isdigit() or int(process.name) == os.getpid():
                continue
            with contextlib.suppress(OSError):
                if process.stat().st_uid == own:
                    folder = f"{process.path}/fd"
                    yield from (f"{folder}/{fd}" for fd in os.listdir(folder))  # noqa: PTH208


@contextlib.contextmanager
def _locked() -> Iterator[None]:
    """Let one process at a time look for a file, and make it if there is none.

    Other users can lock that file too. A process that continues without the lock at worst makes a
    second file, and does not share memory.
    """
    with contextlib.ExitStack() as stack:
        try:
            # any file that all processes can lock
            file = stack.enter_context(open(__file__, "rb"))  # noqa: PTH123
            stack.enter_context(locked(file.fileno(), _PATIENCE_S))
        except TimeoutError as error:
            _log.warning(
                "a cache in memory may not be shared with other processes: %s, on '%s'",
                error,
                __file__,
            )
        except OSError as error:
            raise refusal("memory for a cache", "cannot be looked for", error) from error
        yield
