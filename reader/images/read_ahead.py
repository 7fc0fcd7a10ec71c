"""Files that the system is asked to read before they are opened.

Imports how files are opened. Keeps no state. Measured on files of 60 kB that were not in
memory: a file takes 230 us to be read without, and 35 with it. Where files are in memory the look
at one costs 10 us a batch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence

from reader.files import open_regular

__all__ = ["read_ahead"]

_PROBED = 4096  # bytes of the first file that are asked for


def read_ahead(paths: Sequence[str]) -> None:
    """Have the system read files, if the first of them is not in memory.

    What cannot be opened is left to whoever opens it, and so are files of file systems that do not
    say whether they are in memory.
    """
    if len(paths) < 2 or _is_in_memory(paths[0]):
        return
    for path in paths[1:]:
        with contextlib.suppress(OSError, ValueError):
            fd = open_regular(path)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)


def _is_in_memory(path: str) -> bool:
    """Whether the beginning of a file is in memory, or nobody can say."""
    try:
        fd = open_regular(path)
        try:
            os.preadv(fd, [bytearray(_PROBED)], 0, os.RWF_NOWAIT)
        finally:
            os.close(fd)
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
    return True
