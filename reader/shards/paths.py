"""Which files a path, a pattern, a folder or a list of these names.

Imports the errors and the checks. Reads folders, and no file.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from reader.checks import refuse_url
from reader.errors import ConfigError, ConfigTypeError, got

__all__ = ["expanded", "files_in", "named"]

_BRACES = re.compile(r"\{([^{}]*)\}")  # the innermost
_RANGE = re.compile(r"(-?\d+)\.\.(-?\d+)(?:\.\.(-?\d+))?|([A-Za-z])\.\.([A-Za-z])")
_MOST_FILES = 10_000_000


def named(path: Any) -> list[str]:
    """Return the files and folders that a path names, in their order.

    Args:
        path: of a file or folder; a pattern: with braces ("{000..099}", "{a,b}") or wildcards
            ("*", "?", "[]"), several with "::" between them; or a list of these. What braces and
            lists name comes in their order, what wildcards name by name.

    Raises:
        ConfigError, ConfigTypeError: it names nothing, or one file twice.
    """
    given = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(each, (str, os.PathLike)) for each in given
    ):
        raise ConfigTypeError(
            "path must be a path, a pattern such as 'train-{000..099}.tar', or a list of these,"
            f" got {got(path)}"
        )
    for each in given:
        refuse_url("path", each)
    parts = [part for each in given for part in os.fsdecode(each).split("::")]
    found = [name for part in parts for name in _named(part)]
    if not found:
        raise ConfigError("path is an empty list: pass the files of the shards")
    counts = Counter(map(os.path.abspath, found))
    if len(counts) < len(found):
        twice = counts.most_common(1)[0][0]
        raise ConfigError(f"path names '{twice}' twice: its samples would come twice")
    return found


def expanded(pattern: str) -> Iterator[str]:
    """Yield what a pattern with braces names, as shells do; one without braces is itself."""
    found = _BRACES.search(pattern)
    if found is None:
        yield pattern
        return
    before, after = pattern[: found.start()], pattern[found.end() :]
    for choice in _choices(found[1], found[0]):
        yield from expanded(f"{before}{choice}{after}")


def _choices(inner: str, whole: str) -> Iterator[str]:
    """Yield what stands for one pair of braces."""
    numbers = _RANGE.fullmatch(inner)
    if numbers is None:
        if "," not in inner:
            raise ConfigError(
                f"the pattern has {whole}, which is neither a range, such as {{000..099}}, nor a"
                " choice, such as {a,b}"
            )
        yield from inner.split(",")
        return
    first, last, step, low, high = numbers.groups()
    if low is not None:
        way = 1 if low <= high else -1
        yield from map(chr, range(ord(low), ord(high) + way, way))
        return
    begin, end = int(first), int(last)
    by = abs(int(step or 1)) or 1
    digits = [each.lstrip("-") for each in (first, last)]
    is_padded = any(len(each) > 1 and each.startswith("0") for each in digits)
    width = max(len(first), len(last)) if is_padded else 0
    if abs(end - begin) // by >= _MOST_FILES:
        raise ConfigError(f"the pattern has {whole}, of more than {_MOST_FILES:,} files")
    for number in range(begin, end + (1 if begin <= end else -1), by if begin <= end else -by):
        yield f"{number:0{width}d}"


def _named(part: str) -> Iterator[str]:
    """Yield what one path or pattern names."""
    plain = os.path.expanduser(part)  # noqa: PTH111
    if os.path.lexists(plain):  # a name may have braces in it
        yield plain
        return
    for name in expanded(plain):
        if os.path.lexists(name):
            yield name
            continue
        found = sorted(glob.glob(name)) if glob.has_magic(name) else []  # noqa: PTH207
        if not found:
            what = "the pattern" if glob.has_magic(name) else "there is no file"
            ends = " names no file" if glob.has_magic(name) else ""
            raise ConfigError(f"{what} '{name}'{ends}{_near(name)}")
        yield from found


def _near(name: str) -> str:
    """Return what the folder of a missing file has, in words."""
    folder = os.path.dirname(name) or "."  # noqa: PTH120
    try:
        found = sorted(itertools.islice(os.listdir(folder), 10_000))  # noqa: PTH208
    except OSError:
        return f": there is no folder '{folder}', or it cannot be read"
    if not found:
        return f": the folder '{folder}' is empty"
    return f": the folder '{folder}' has {len(found):,} entries, such as {', '.join(found[:3])}"


def files_in(folder: str) -> list[str]:
    """Return the files of a folder, by name, without hidden ones."""
    try:
        with os.scandir(folder) as entries:
            found = sorted(
                each.path for each in entries if not each.name.startswith(".") and each.is_file()
            )
    except OSError as error:
        raise ConfigError(f"the folder '{folder}' cannot be read: {error}") from error
    return found
