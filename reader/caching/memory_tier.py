"""A file of entries in memory: found where another process of this user has it, or made.

Imports the file of entries. Nothing has a name in any folder: the file is found through the
descriptors of the processes that hold it (proc(5): /proc/PID/fd), and ends with the last of them.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import weakref
from collections.abc import Iterator
from pathlib import Path

from reader.caching.about import About
from reader.caching.entry_file import EntryFile, entries_begin

__all__ = ["open_memory"]

_PROC = Path("/proc")
_NAME = "lodreader-cache"

_opened: weakref.WeakValueDictionary[str, EntryFile] = weakref.WeakValueDictionary()


def open_memory(about: About, limit: int, is_known: bool) -> EntryFile:
    """Return a file of entries in memory.

    Args:
        about: what it is of.
        limit: how many bytes entries may take.
        is_known: whether `about` says all that samples depend on: then other processes, and other
            caches of this one, use the same file.

    Raises:
        OSError: the system refuses memory or descriptors.
    """
    if not is_known:
        return _made(about, limit, _NAME)
    name = f"{_NAME}-{about.key}-{limit}"
    with _turn():
        found = _opened.get(name)
        if found is None:
            found = _found(about, limit, name) or _made(about, limit, name)
            _opened[name] = found
        return found


def _made(about: About, limit: int, name: str) -> EntryFile:
    fd = os.memfd_create(name, os.MFD_CLOEXEC)
    try:
        os.ftruncate(fd, entries_begin(about.samples) + limit)
        os.pwrite(fd, about.head(), 0)
        return EntryFile(fd, about.samples, limit, is_memory=True)
    except BaseException:
        os.close(fd)
        raise


def _found(about: About, limit: int, name: str) -> EntryFile | None:
    """Return the file that another process of this user holds; None: there is none."""
    head = about.head()
    for path in _descriptors():
        with contextlib.suppress(OSError):  # its process has ended meanwhile
            if not os.readlink(path).startswith(f"/memfd:{name} "):  # noqa: PTH115
                continue
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
            if os.pread(fd, len(head), 0) == head:
                return EntryFile(fd, about.samples, limit, is_memory=True)
            os.close(fd)
    return None


def _descriptors() -> Iterator[str]:
    """Yield the paths of what other processes of this user have open."""
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
def _turn() -> Iterator[None]:
    """Have one process at a time look for a file, and make it where there is none."""
    with open(__file__, "rb") as file:  # noqa: PTH123  any file that all processes can lock
        fd = file.fileno()
        locked = False
        with contextlib.suppress(OSError):  # a file system without locks: at worst there are two
            fcntl.flock(fd, fcntl.LOCK_EX)
            locked = True
        try:
            yield
        finally:
            if locked:  # a process that was forked meanwhile would keep it
                fcntl.flock(fd, fcntl.LOCK_UN)
