"""Arrays of files that have to be read for them, kept in a file beside them or in a folder.

Imports the file that keeps arrays, and files by their paths. What is kept is compared with the
sizes and times of the files when it is read, and made anew for those that have changed.
"""

from __future__ import annotations

import hashlib
import os
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from reader.errors import ConfigError
from reader.files import replacing
from reader.stores.files import StoredFile
from reader.stores.kept_arrays import (
    COUNT,
    Arrays,
    KeptArrays,
    Stamp,
    kept_in,
    kept_in_memory,
    write_arrays,
)
from reader.stores.urls import is_url

__all__ = ["kept_for"]

_THREADS = 8
_MOST_OTHERS = 32  # indices of other sets that are looked into
Scan = Callable[[StoredFile], Arrays]


def kept_for(kind: str, files: Sequence[StoredFile], folder: str | None, scan: Scan) -> KeptArrays:
    """Return the arrays of files, those that were kept or, of files that have changed, new ones.

    Args:
        kind: names what the arrays are, and all that they depend on but the files.
        files: in their order.
        folder: where the arrays are kept; None: beside the first file, if that folder is writable
            and no file lies in a store, else in memory alone.
        scan: reads a file and returns its arrays, in one of several threads.

    Raises:
        ConfigError: `folder` cannot be written to, or what `scan` raises.
    """
    stamps = list(map(_stamp, files))
    if folder is None and any(is_url(file.path) for file in files):
        with ThreadPoolExecutor(_THREADS) as pool:
            return kept_in_memory(kind, stamps, _in_turn(pool, scan, files))
    place = _place_of(kind, files, folder)
    known = _known(place, kind)
    if known is not None and known[0] == stamps:
        return known[1]
    return _made_anew(kind, files, place, folder is not None, scan)


def _made_anew(
    kind: str, files: Sequence[StoredFile], place: str, is_asked: bool, scan: Scan
) -> KeptArrays:
    """Return the arrays of files, kept in a file if it can be written; else in memory.

    What other indices of the folder say of a file is taken from there.
    """
    base = os.path.dirname(place)  # noqa: PTH120
    said = _said_of(set(map(_stamp, files)), place, kind)

    def arrays_of(file: StoredFile) -> Arrays:
        kept, row = said.get(_stamp(file), (None, 0))
        arrays = None if kept is None else kept.arrays(row)
        if kept is None or arrays is None:
            return scan(file)
        return {COUNT: kept.samples()[row : row + 1], **arrays}

    stamps = [
        (path if is_url(path) else os.path.relpath(path, base), nbytes, mtime_ns)
        for path, nbytes, mtime_ns in map(_stamp, files)
    ]
    with ThreadPoolExecutor(_THREADS) as pool:
        try:
            if is_asked:
                os.makedirs(base, exist_ok=True)  # noqa: PTH103
            with replacing(place) as file:
                write_arrays(file, kind, stamps, _in_turn(pool, arrays_of, files))
        except OSError as error:
            if is_asked:
                raise ConfigError(f"index='{base}' cannot be written to: {error}") from error
            return kept_in_memory(kind, stamps, _in_turn(pool, arrays_of, files))
    found = kept_in(place, kind)
    if found is None or found[0] != stamps:  # another process has just written its own
        return kept_in_memory(kind, stamps, map(arrays_of, files))
    return found[1]


def _in_turn(
    pool: ThreadPoolExecutor, function: Scan, files: Sequence[StoredFile]
) -> Iterator[Arrays]:
    """Yield what a function makes of each file, in their order; few are waiting in memory."""
    waiting: deque[Future[Arrays]] = deque()
    try:
        for file in files:
            waiting.append(pool.submit(function, file))
            if len(waiting) > 2 * _THREADS:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        for each in waiting:
            each.cancel()


def _stamp(file: StoredFile) -> Stamp:
    """Return what names a file, whatever the folder that this process works in."""
    path = file.path if is_url(file.path) else os.path.abspath(file.path)  # noqa: PTH100
    return path, file.nbytes, file.mtime_ns


def _place_of(kind: str, files: Sequence[StoredFile], folder: str | None) -> str:
    """Return the path of the file that keeps the index of some files."""
    first = _stamp(files[0])[0]
    base = os.path.dirname(first)  # noqa: PTH120
    paths = [_stamp(each)[0] for each in files]
    names = [path if is_url(path) else os.path.relpath(path, base) for path in paths]
    content = "\0".join([kind, *([] if folder is None else [base]), *names])
    digest = hashlib.blake2b(content.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
    where = base if folder is None else os.path.abspath(folder)  # noqa: PTH100
    return os.path.join(where, f".reader-{digest}.index")  # noqa: PTH118


def _known(place: str, kind: str) -> tuple[list[Stamp], KeptArrays] | None:
    """Return the stamps of the files whose arrays a file keeps, and these. See `kept_in`."""
    found = kept_in(place, kind)
    if found is None:
        return None
    base = os.path.dirname(place)  # noqa: PTH120
    stamps = [
        (
            path if is_url(path) else os.path.normpath(os.path.join(base, path)),  # noqa: PTH118
            nbytes,
            mtime_ns,
        )
        for path, nbytes, mtime_ns in found[0]
    ]
    return stamps, found[1]


def _said_of(wanted: set[Stamp], place: str, kind: str) -> dict[Stamp, tuple[KeptArrays, int]]:
    """Return which indices of the folder have the arrays of some files, and in which row."""
    try:
        with os.scandir(os.path.dirname(place)) as entries:  # noqa: PTH120
            ages = {
                each.path: each.stat().st_mtime_ns
                for each in entries
                if each.name.startswith(".reader-") and each.name.endswith(".index")
            }
    except OSError:  # it is not made yet, or one was just removed
        ages = {}
    newest = sorted(ages, key=lambda path: (path == place, ages[path]), reverse=True)
    found: dict[Stamp, tuple[KeptArrays, int]] = {}
    for path in newest[:_MOST_OTHERS]:
        if len(found) == len(wanted):
            break
        known = _known(path, kind)
        if known is not None:
            rows = {stamp: (known[1], row) for row, stamp in enumerate(known[0])}
            found = {**{stamp: rows[stamp] for stamp in wanted & rows.keys()}, **found}
    return found
