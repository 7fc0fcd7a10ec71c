"""Which files a path, a pattern, a folder or a list of these names.

Imports the errors and the checks. Reads folders, and no file.
"""

from __future__ import annotations

import glob
import itertools
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

from reader.checks import refuse_url
from reader.errors import ConfigError, ConfigTypeError, got
from reader.stores.urls import local_path

__all__ = [
    "by_number",
    "expanded",
    "files_in",
    "folder_key",
    "identities_above",
    "is_folder",
    "named",
    "names_below",
    "parts_of",
    "require_all",
    "warn_of_splits",
]

_RANGE = re.compile(
    r"(?:(-?\d{1,18})\.\.(-?\d{1,18})|([A-Za-z])\.\.([A-Za-z]))(?:\.\.(-?\d{1,18}))?", re.ASCII
)
_NUMBER = re.compile(r"([0-9]+)")
_OF_MANY = re.compile(  # "train-00001-of-00003.parquet", and also with the hash of its content
    r"(?P<before>.*(?<!\d))(?P<number>\d{1,9})-of-(?P<count>\d{1,9})(?:-[0-9a-f]{8,})?"
    r"(?P<after>\.[^/]*)?",
    re.ASCII | re.DOTALL,
)
_SPLIT = re.compile(r"(?<![a-z])(train|val|dev|test)(?:ing|id|idation)?(?![a-z])", re.IGNORECASE)
_MOST_FILES = 10_000_000
_NO_VALUE = "__HIVE_DEFAULT_PARTITION__"  # of a folder NAME=VALUE
_Identity = tuple[int, int]  # of a folder: device, inode


def parts_of(path: Any) -> list[str]:
    """Return the paths and patterns that a path, several with "::" between them, or a list is.

    Raises:
        ConfigTypeError: it is none of these.
    """
    given = [path] if isinstance(path, (str, os.PathLike)) else path
    if not isinstance(given, (list, tuple)) or not all(
        isinstance(each, (str, os.PathLike)) for each in given
    ):
        raise ConfigTypeError(
            "path must be a path, a pattern such as 'train-{000..099}.tar', or a list of these,"
            f" got {got(path)}"
        )
    parts = [part for each in given for part in os.fsdecode(each).split("::")]
    return [local_path(part) for part in parts]


def named(part: str) -> list[str]:
    """Return the absolute paths of the files and folders that a path names, in their order.

    Args:
        part: the path of a file or folder; or a pattern: with braces ("{000..099}", "{a,b}") or
            wildcards ("*", "?", "[]"). What braces name comes in their order, what wildcards name
            by name and number.

    Raises:
        ConfigError: it names nothing, or wildcards some of numbered files alone.
    """
    refuse_url("path", part)
    return [_absolute(name) for name in _named(part)]


def folder_key(name: str) -> tuple[str, str | None] | None:
    """Return the column that a folder NAME=VALUE names, and its value; None: it names none.

    Spark and Hive write such folders. A value that is None is a null.
    """
    key, is_key, value = name.partition("=")
    if not (key and is_key):
        return None
    return unquote(key), None if value == _NO_VALUE else unquote(value)


def _absolute(path: str) -> str:
    """Return a path that stays right when the process changes its folder."""
    if ".." in path.split("/"):  # behind a link it is another folder than the text says
        return os.path.join(os.getcwd(), path)  # noqa: PTH109, PTH118
    return os.path.abspath(path)  # noqa: PTH100


def expanded(pattern: str) -> Iterator[str]:
    """Yield what a pattern with braces names, as bash does; one without braces is itself."""
    begin = end = pattern.find("{")
    while begin >= 0 and (end := _end_of(pattern, begin)) < 0:  # a brace that is never closed
        begin = pattern.find("{", begin + 1)
    if begin < 0:
        yield pattern
        return
    for choice in _choices(pattern[begin + 1 : end], pattern[begin : end + 1]):
        for rest in expanded(pattern[end + 1 :]):
            yield f"{pattern[:begin]}{choice}{rest}"


def _end_of(pattern: str, begin: int) -> int:
    """Return the place of the brace that closes the one at `begin`; -1: none does."""
    depth = 0
    for at in range(begin, len(pattern)):
        depth += {"{": 1, "}": -1}.get(pattern[at], 0)
        if not depth:
            return at
    return -1


def _parts(inner: str) -> list[str]:
    """Return what commas separate that stand in no inner braces."""
    parts, depth = [""], 0
    for each in inner:
        depth += {"{": 1, "}": -1}.get(each, 0)
        if each == "," and not depth:
            parts.append("")
        else:
            parts[-1] += each
    return parts


def _choices(inner: str, whole: str) -> Iterator[str]:
    """Yield what stands for one pair of braces."""
    numbers = _RANGE.fullmatch(inner)
    if numbers is None:
        parts = _parts(inner)
        if len(parts) == 1:
            raise ConfigError(
                f"the pattern has {whole}, which is neither a range, such as {{000..099}}, nor a"
                " choice, such as {a,b}"
            )
        yield from itertools.chain.from_iterable(map(expanded, parts))
        return
    first, last, low, high, step = numbers.groups()
    by = abs(int(step or 1)) or 1
    if low is not None:
        way = by if low <= high else -by
        yield from map(chr, range(ord(low), ord(high) + (1 if way > 0 else -1), way))
        return
    begin, end = int(first), int(last)
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
    if "**" in plain.split("/"):
        raise ConfigError(
            f"the pattern '{plain}' has '**', which is not supported: name each folder, such as"
            " 'data/*/*.tar'"
        )
    numbered: list[str] = []
    for name in expanded(plain):
        if os.path.lexists(name):
            yield name
            continue
        found = sorted(glob.glob(name), key=by_number) if glob.has_magic(name) else []  # noqa: PTH207
        if not found:
            what = "the pattern" if glob.has_magic(name) else "there is no file"
            ends = " names no file" if glob.has_magic(name) else ""
            raise ConfigError(f"{what} '{name}'{ends}{_near(name)}")
        numbered += found
        yield from found
    require_all(numbered)


def by_number(path: str) -> list[Any]:
    """Return the key by which paths are sorted: numbers in them by their value."""
    parts: list[Any] = _NUMBER.split(path)
    parts[1::2] = map(int, parts[1::2])
    return [parts, path]


def require_all(paths: list[str]) -> None:
    """Raise ConfigError where files are numbered as of so many, and some of these are missing.

    Their numbers begin at 0, or at 1 where the last one is there and none is 0.
    """
    sets: dict[tuple[Any, ...], dict[int, re.Match[str]]] = {}
    for path in paths:
        found = _OF_MANY.fullmatch(path)
        if found is not None:
            key = found["before"], int(found["count"]), found["after"]
            sets.setdefault(key, {})[int(found["number"])] = found
    for (before, count, after), there in sets.items():
        first = int(count in there and 0 not in there)
        missing = (number for number in range(first, count + first) if number not in there)
        some = list(itertools.islice(missing, 3))
        if some:
            one = next(iter(there.values()))
            of = f"-of-{one['count']}{after or ''}"
            told = ", ".join(f"'{before}{each:0{len(one['number'])}d}{of}'" for each in some)
            raise ConfigError(
                f"{len(there):,} of {count:,} files '{before}*{of}' are there, and others are"
                f" missing, such as {told}: fetch them, or name those that you want by a list"
            )


def warn_of_splits(folder: str, paths: list[str]) -> None:
    """Warn where files of a folder are named as parts for training and for testing."""
    found: dict[str, tuple[str, str]] = {}
    for path in paths:
        name = os.path.basename(path)  # noqa: PTH119
        words = {match[1] for match in _SPLIT.finditer(name)}
        if len(words) == 1:
            (word,) = words
            found.setdefault(word.lower().replace("dev", "val"), (word, name))
    if len(found) > 1:
        (word, one), (_, other), *_ = found.values()
        warnings.warn(
            f"the folder '{folder}' has files of several splits, such as '{one}' and '{other}', and"
            " all of them are taken as one set: pass the files of one split, such as those of"
            f" '{os.path.join(folder, f'*{word}*')}'",  # noqa: PTH118
            stacklevel=2,
        )


def _near(name: str) -> str:
    """Return what the folder of a missing file has, in words."""
    folder = os.path.dirname(name) or "."  # noqa: PTH120
    try:
        names = itertools.islice(os.listdir(folder), 10_000)  # noqa: PTH208
        found = sorted(name for name in names if not name.startswith("."))
    except OSError:
        return f": there is no folder '{folder}', or it cannot be read"
    if not found:
        return f": the folder '{folder}' is empty"
    return f": the folder '{folder}' has {len(found):,} entries, such as {', '.join(found[:3])}"


def files_in(folder: str) -> list[str]:
    """Return the files, links and other entries of a folder, by name and number.

    Folders and hidden entries are left out.
    """
    try:
        with os.scandir(folder) as entries:
            found = [
                each.path
                for each in entries
                if not each.name.startswith(".") and not each.is_dir(follow_symlinks=False)
            ]
    except OSError as error:
        raise ConfigError(f"the folder '{folder}' cannot be read: {error}") from error
    return sorted(found, key=by_number)


def names_below(
    folder: str, above: frozenset[_Identity] | None = None
) -> tuple[dict[str, list[str]], list[str]]:
    """Find the files in a folder and in those below it; links are followed.

    Args:
        folder: to begin with.
        above: the identities of the folders that it lies in; None: they are found.

    Returns:
        The names of the files in each folder, and the links that are not followed, since they lead
        back to a folder that they lie in.

    Raises:
        ConfigError: a folder cannot be read.
    """
    names: dict[str, list[str]] = {}
    loops: list[str] = []
    waiting = [(folder, identities_above(folder) if above is None else above)]
    while waiting:
        folder, above = waiting.pop()
        try:
            here = above | {_identity(Path(folder).stat())}
            files = names[folder] = []
            with os.scandir(folder) as entries:
                for entry in entries:
                    if not is_folder(entry):
                        files.append(entry.name)
                    elif entry.is_symlink() and _identity(entry.stat()) in here:
                        loops.append(entry.path)
                    else:
                        waiting.append((entry.path, here))
        except OSError as error:
            raise ConfigError(
                f"'{folder}' cannot be read: {error}. Its files would be missing"
            ) from error
    return names, loops


def _identity(found: os.stat_result) -> _Identity:
    return found.st_dev, found.st_ino


def identities_above(folder: str) -> frozenset[_Identity]:
    """Return the identities of a folder and of all folders above it."""
    path = Path(folder).resolve()
    return frozenset(_identity(each.stat()) for each in (path, *path.parents))


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether an entry is a folder, or a link to one."""
    try:
        return entry.is_dir()
    except OSError:
        return False  # a link to itself: reading it as a file raises
