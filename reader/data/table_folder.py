"""Decoded tables in a folder, each made once and used by every process that wants the same.

Imports the file of a table and the standard library. The folder belongs to all processes that name
it: a lock on it, which the system lets go when its holder dies, says who makes a table.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from reader.data.table_file import Field, Form, write_at
from reader.errors import ConfigError

__all__ = ["TableFolder"]

_VERSION = 1  # of how tables lie in a folder


class TableFolder:
    """A folder with decoded tables.

    A table is two files: NAME.rows, which is mapped, and NAME.json, which says what it was made of
    and how it lies there. The rows end with the same text. A table counts where both are whole and
    its sources are as they were; else it is made again. Each file is written under another name,
    and gets its own once it is on the disk.

    Args:
        path: of the folder, which is made where it is missing.

    Raises:
        ConfigError: there is no such folder, and it cannot be made.
    """

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        try:
            self._path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"disk must be a folder, got '{path}': {error}") from error

    def open(
        self, name: str, made_of: dict[str, Any], make: Callable[[int], Form]
    ) -> tuple[int, Form]:
        """Return the descriptor of a table, and its form.

        Args:
            name: of the table; what it is made of is added to it.
            made_of: plain values that JSON holds: another table has others. Of "sources" it is the
                bytes and times that may differ, for the table to be made again.
            make: writes the rows into an empty file.

        Raises:
            OSError: the folder cannot be written to, or has no room.
        """
        made_of = json.loads(json.dumps({"version": _VERSION, **made_of}))
        paths = [path for path, *_ in made_of["sources"]]
        key = json.dumps([paths, made_of["options"]])
        name = f"{name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
        found = self._find(name, made_of)
        if found is not None:
            return found
        with self._locked() as is_alone:
            found = self._find(name, made_of)  # another process made it meanwhile
            if found is None:
                for left in self._path.glob(f"{glob.escape(name)}.*.part") if is_alone else ():
                    left.unlink(missing_ok=True)  # its process died
                self._make(name, made_of, make)
                found = self._find(name, made_of)
        if found is None:
            raise ConfigError(
                f"the table '{name}' in '{self._path}' is not what was just written there: see"
                " whether other programs write to the folder, or name another by disk="
            )
        return found

    def _find(self, name: str, made_of: dict[str, Any]) -> tuple[int, Form] | None:
        """Return a table's descriptor and form; None: it is missing, old or damaged."""
        rows, text = self._path / f"{name}.rows", self._path / f"{name}.json"
        try:
            content = text.read_bytes()
            kept = json.loads(content)
            fd = os.open(rows, os.O_RDONLY | os.O_CLOEXEC)
        except (OSError, ValueError):
            return None
        try:
            count, fields, nbytes = kept["form"]
            fields = [
                Field(name, kind, dtype, tuple(shape), offset, step, categories)
                for name, kind, dtype, shape, offset, step, categories in fields
            ]
            is_whole = os.fstat(fd).st_size == nbytes + len(content)
            is_whole = is_whole and os.pread(fd, len(content), nbytes) == content
            if is_whole and kept["made_of"] == made_of:
                return fd, Form(count, fields, nbytes)
        except (KeyError, TypeError, ValueError):
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _make(self, name: str, made_of: dict[str, Any], make: Callable[[int], Form]) -> None:
        with self._written(name, "rows") as fd:
            form = make(fd)
            content = json.dumps({"made_of": made_of, "form": form}, indent=1).encode()
            os.ftruncate(fd, form.nbytes)
            write_at(fd, content, form.nbytes)
        with self._written(name, "json") as fd:
            write_at(fd, content, 0)

    @contextlib.contextmanager
    def _written(self, name: str, suffix: str) -> Iterator[int]:
        """Give a new file its name once it is written and on the disk."""
        part = self._path / f"{name}.{os.getpid()}.{suffix}.part"
        fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o666)
        try:
            yield fd
            os.fsync(fd)
            part.replace(self._path / f"{name}.{suffix}")
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[bool]:
        """Hold the folder's lock, or say that its file system has none: then each makes its own."""
        fd, is_alone = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC), False
        try:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_EX)
                is_alone = True
            yield is_alone
            os.fsync(fd)
        finally:
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)  # a process forked meanwhile has it, too
            os.close(fd)
