"""Decoded tables in a folder, each made once and used by every process that wants the same.

Imports the file of a table, private folders and the core's checksum. The folder belongs to all
processes that name it: a lock in it, which the system lets go when its holder dies, says who makes
a table.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import secrets
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from reader._core.shared.entry_table import checksum
from reader.errors import ConfigError
from reader.files import PrivateFolder
from reader.formats.table_file import Form, write_at

__all__ = ["TableFolder"]

_VERSION = 2  # of how tables lie in a folder, and of their checksums
_BLOCK = 1 << 24  # bytes that have a checksum of their own
_PIECE = 1 << 18  # bytes of them that are read at a time, so that they stay in the cache
_CHECKED = 1 << 30  # bytes that are checked in a file that says it was not written to
_SECOND = 10**9
_LOCK = "lock"
_PATIENCE_S = 300.0  # with a process that holds the lock, and writes nothing


class TableFolder:
    """A folder with decoded tables.

    A table is two files: NAME.rows, which is mapped, and NAME.json, which says what it was made of
    and how it lies there. The rows end with the same text. A table counts where both are whole and
    its sources are as they were; else it is made again. Each file is written under another name,
    and gets its own once it is on the disk.

    Each block of the rows has a checksum. All of them are compared where the file has another time
    of change than it was given, and in a small file; of a large one that was not written to, some
    are, others each time: to read it all would take minutes.

    Close it, or leave its `with` block.

    Args:
        path: of the folder, which is made where it is missing.

    Raises:
        ConfigError: there is no such folder, and it cannot be made; or others may write to it.
    """

    def __init__(self, path: str) -> None:
        try:
            self._folder = PrivateFolder(path, "disk")
        except OSError as error:
            raise ConfigError(f"disk must be a folder, got '{path}': {error}") from error

    def __enter__(self) -> TableFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self._folder.close()

    def open(
        self,
        name: str,
        made_of: dict[str, Any],
        make: Callable[[int, Callable[[int, int], None]], Form],
        form_of: Callable[[Any], Form | None],
    ) -> tuple[int, Form]:
        """Return the descriptor of a table, and its form.

        Waits while another process makes one in this folder, as long as that one writes.

        Args:
            name: of the table; what it is made of is added to it.
            made_of: plain values that JSON holds: another table has others. Of "sources" it is the
                bytes and times that may differ, for the table to be made again.
            make: writes the rows into an empty file, and calls its second argument with where the
                bytes begin and end that it has written.
            form_of: returns the form that a file says to have; None: `make` writes no such form.

        Raises:
            ConfigError: another process keeps the folder locked, and writes nothing; or others may
                write to a table.
            OSError: the folder cannot be written to, or has no space.
        """
        made_of = json.loads(json.dumps({"version": _VERSION, **made_of}))
        paths = [path for path, *_ in made_of["sources"]]
        key = json.dumps([paths, made_of["options"]])
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        found = self._find(name, made_of, form_of)
        if found is not None:
            return found
        folder = self._folder
        with folder.exclusive(_LOCK, _PATIENCE_S, self._parts) as is_alone:
            found = self._find(name, made_of, form_of)  # another process made it meanwhile
            if found is None:
                for left in folder.names(f"{name}.", ".part") if is_alone else ():
                    folder.remove(left)  # its process died
                self._make(name, made_of, make)
                found = self._find(name, made_of, form_of)
            os.fsync(folder.fd)
        if found is None:
            raise ConfigError(
                f"the table '{name}' in '{folder.path}' is not what was just written there: see"
                " whether other programs write to the folder, or name another by disk="
            )
        return found

    def _parts(self) -> object:
        """Return what changes while another process makes a table."""
        found = []
        for name in self._folder.names("", ".part"):
            with contextlib.suppress(FileNotFoundError):
                part = os.stat(name, dir_fd=self._folder.fd)
                found.append((name, part.st_size, part.st_blocks, part.st_mtime_ns))
        return sorted(found)

    def _find(
        self, name: str, made_of: dict[str, Any], form_of: Callable[[Any], Form | None]
    ) -> tuple[int, Form] | None:
        """Return a table's descriptor and form; None: it is missing, old or damaged."""
        try:
            with open(self._folder.open(f"{name}.json"), "rb") as text:  # noqa: PTH123
                content = text.read()
            kept = json.loads(content)
            fd = self._folder.open(f"{name}.rows")
        except (OSError, ValueError, RecursionError):  # RecursionError: lists within lists
            return None
        try:
            form = form_of(kept["form"])
            if form is not None and kept["made_of"] == made_of:
                nbytes = form.nbytes
                is_whole = os.fstat(fd).st_size == nbytes + len(content)
                is_whole = is_whole and os.pread(fd, len(content), nbytes) == content
                if is_whole and _is_sound(fd, nbytes, kept):
                    return fd, form
        except (LookupError, OSError, TypeError, ValueError, OverflowError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _make(
        self,
        name: str,
        made_of: dict[str, Any],
        make: Callable[[int, Callable[[int, int], None]], Form],
    ) -> None:
        with self._written(name, "rows") as fd:
            sums = _BlockSums(fd)
            form = make(fd, sums.note)
            os.ftruncate(fd, form.nbytes)
            # a time that every file system holds as it is, and that no later change has
            changed_ns = (time.time_ns() // _SECOND // 2 - 1) * 2 * _SECOND
            kept = {
                "made_of": made_of,
                "form": form,
                "changed_ns": changed_ns,
                "checksums": sums.all(form.nbytes),
            }
            content = json.dumps(kept, indent=1).encode()
            write_at(fd, content, form.nbytes)
            _set_changed(fd, changed_ns)
        with self._written(name, "json") as fd:
            write_at(fd, content, 0)

    @contextlib.contextmanager
    def _written(self, name: str, suffix: str) -> Iterator[int]:
        """Give a new file its name once it is written and on the disk."""
        part = f"{name}.{os.getpid()}.{secrets.token_hex(4)}.{suffix}.part"
        fd = self._folder.create(part, 0o644)  # others may read it, where they may see the folder
        try:
            yield fd
            os.fsync(fd)
            self._folder.rename(part, f"{name}.{suffix}")
        except BaseException:
            self._folder.remove(part)
            raise
        finally:
            os.close(fd)


class _BlockSums:
    """The checksums of the blocks of a file that is being written.

    Each is taken once all bytes of its block are written, and still in memory: of a table that the
    memory does not hold nothing is read back from the disk.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._missing: dict[int, int] = {}  # by block: how many bytes are not written yet
        self._sums: dict[int, int] = {}

    def note(self, begin: int, end: int) -> None:
        """Note that bytes were written, which are not written again."""
        while begin < end:
            number = begin // _BLOCK
            block_end = (number + 1) * _BLOCK
            stop = min(end, block_end)
            self._missing[number] = self._missing.get(number, _BLOCK) - (stop - begin)
            if not self._missing[number]:
                self._sums[number] = _sum_of(self._fd, number, block_end)
            begin = stop

    def all(self, nbytes: int) -> list[int]:
        """Return the checksums of a file that has so many bytes now."""
        return [
            self._sums[number] if number in self._sums else _sum_of(self._fd, number, nbytes)
            for number in range(_blocks_of(nbytes))
        ]


def _is_sound(fd: int, nbytes: int, kept: dict[str, Any]) -> bool:
    """Whether the first bytes of a file have the checksums that they had when it was made."""
    sums, changed_ns = kept["checksums"], os.fstat(fd).st_mtime_ns
    numbers = list(range(_blocks_of(nbytes)))
    is_as_left = changed_ns == kept["changed_ns"]
    if is_as_left:
        most = max(1, _CHECKED // _BLOCK)
        numbers = sorted(random.SystemRandom().sample(numbers, min(most, len(numbers))))
    if any(_sum_of(fd, number, nbytes) != sums[number] for number in numbers):
        return False
    if not is_as_left and os.fstat(fd).st_mtime_ns == changed_ns:
        _set_changed(fd, kept["changed_ns"])  # it was copied: the next one need not read it all
    return True


def _set_changed(fd: int, changed_ns: int) -> None:
    with contextlib.suppress(OSError):  # another user's file: all of it is checked each time
        os.utime(fd, ns=(changed_ns, changed_ns))


def _blocks_of(nbytes: int) -> int:
    return -(-nbytes // _BLOCK)


def _sum_of(fd: int, number: int, nbytes: int) -> int:
    """Return the checksum of a block of a file of so many bytes. OSError: it has fewer."""
    memory = np.empty(min(_PIECE, _BLOCK), np.uint8)
    end = min((number + 1) * _BLOCK, nbytes)

    def pieces() -> Iterator[Any]:
        for begin in range(number * _BLOCK, end, len(memory)):
            piece = memory[: min(len(memory), end - begin)]
            done = 0
            while done < len(piece):
                read = os.preadv(fd, [piece[done:].data], begin + done)
                if not read:
                    raise OSError(f"the file ends at {begin + done:,} of {nbytes:,} bytes")
                done += read
            yield piece

    return checksum(pieces())
