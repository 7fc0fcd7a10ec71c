"""A file that names the samples that failed: a line of JSON for each.

Imports the errors and how files are opened. The file is opened for each line that is added, so that
it may be moved, and a line is one write: ranks may share a file.
"""

from __future__ import annotations

import errno
import json
import os
import warnings
from typing import Any

from reader.errors import ConfigError
from reader.files import open_regular

__all__ = ["Quarantine"]

_LONGEST = 1 << 20  # bytes of a line that is read; a longer line is none of ours


class Quarantine:
    """Adds lines to a file.

    A sample that fails in the same way again, in a later epoch or in a run that was resumed, is not
    added again: the file is a list of samples, however long a training is.

    Args:
        path: of a regular file, which is read, too; a missing one is created.
        is_stream: the index is the number of a draw, and names another sample in each epoch.

    Raises:
        ConfigError: the file cannot be written.
    """

    def __init__(self, path: str, is_stream: bool) -> None:
        self._is_stream = is_stream
        self._path = os.path.abspath(path)  # noqa: PTH100  the program may change its folder
        self._known: set[str] | None = None
        self._has_warned = False
        try:
            os.close(self._open())
        except OSError as error:
            raise ConfigError(
                f"quarantine='{path}' cannot be written: {error}. Pass a regular file in a folder"
                " that is there, and that this process may write to"
            ) from error

    def add(self, sample: dict[str, Any]) -> None:
        """Add a line, unless it is there. The first failure to write is logged."""
        key = self._key_of(sample)
        try:
            if self._known is None:
                self._known = self._read_keys()
            if key in self._known:
                return
            line = json.dumps(sample, ensure_ascii=True).encode() + b"\n"
            fd = self._open()
            try:
                size = os.fstat(fd).st_size
                if size and os.pread(fd, 1, size - 1) != b"\n":
                    line = b"\n" + line  # a process was killed while it wrote, or the disk was full
                if os.write(fd, line) < len(line):
                    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            finally:
                os.close(fd)
            self._known.add(key)
        except OSError as error:
            if not self._has_warned:
                self._has_warned = True
                warnings.warn(
                    f"quarantine='{self._path}' cannot be written any more: {error}. The samples"
                    " that failed are in loader.errors",
                    stacklevel=2,
                )

    def _open(self) -> int:
        return open_regular(self._path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)

    def _key_of(self, sample: dict[str, Any]) -> str:
        """Return the identity of a line, as JSON: tuples and lists are equal there."""
        names = ("epoch", "batch", "index") if self._is_stream else ("index", "error")
        return json.dumps([sample.get(name) for name in names])

    def _read_keys(self) -> set[str]:
        found: set[str] = set()
        try:
            fd = open_regular(self._path)
        except FileNotFoundError:  # it was moved: a new file begins
            return found
        with open(fd, "rb") as file:  # noqa: PTH123
            while line := file.readline(_LONGEST):
                try:
                    found.add(self._key_of(json.loads(line)))
                except (ValueError, AttributeError, RecursionError):  # cut off, or not ours
                    continue
        return found

    def __reduce__(self) -> Any:
        return Quarantine, (self._path, self._is_stream)
