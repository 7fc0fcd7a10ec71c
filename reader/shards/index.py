"""The index of a set of shards: which files it has, and which samples are in each.

Imports the formats and the sharing of arrays. Of formats whose shards have to be read to know their
samples the index is kept in a file, beside the shards or in a folder of yours. It holds numbers and
text alone, and is compared with the files' sizes and times when it is read.
"""

from __future__ import annotations

import bisect
import os
import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError, DatasetError, got
from reader.shards.formats import FORMATS, Format, find_format, format_by_name, read_index
from reader.shards.formats.compression import stored_bytes
from reader.shards.formats.shard import UNIT_ENDS, Arrays, ListedShard, Options
from reader.sharing.share import share
from reader.stores.files import Files, StoredFile
from reader.stores.kept_arrays import COUNT, KeptArrays, kept_in_memory
from reader.stores.kept_index import kept_for
from reader.stores.paths import folder_key, parts_of, require_all, warn_of_splits
from reader.stores.urls import is_url

__all__ = ["SetIndex", "counts_of", "files_of", "find_set", "listed_shards", "refuse_twice"]

_COLUMNS = "columns"  # an array that must be the same in all shards


class SetIndex:
    """A set of shards of one format.

    Args:
        kind: the name of the format.
        files: of the shards.
        counts: how many samples each shard has.
        notes: what an index.json says of each; none: there is no index.json.
        kept: the arrays of each shard.
        options: how files are found and read, where a shard has to be read for its arrays.

    Attributes:
        nbytes: of all files.
        is_remote: whether some of them lie in a store.
        starts: the first sample of each shard, and how many samples there are.
        unit_starts: the first sample of each part of a shard that is read as one, such as a row
            group of Parquet, and how many samples there are.

    Raises:
        ConfigError: there is no sample.
    """

    def __init__(
        self,
        kind: str,
        files: Sequence[StoredFile],
        counts: Sequence[int],
        notes: Sequence[str],
        kept: KeptArrays,
        options: Options,
    ) -> None:
        self.kind = kind
        self.files = share([tuple(file) for file in files])
        self.is_remote = any(is_url(file.path) for file in files)
        self.nbytes = sum(nbytes for _, nbytes, _ in files)
        self._kept, self._options = kept, options
        starts = np.cumsum([0, *counts], dtype=np.int64)
        if not starts[-1]:
            raise ConfigError(f"the shards have no sample: '{files[0].path}' and others are empty")
        self._count = int(starts[-1])
        self.starts = self.unit_starts = share(starts)
        self.notes = share(list(notes))
        if UNIT_ENDS in (name for name, _ in kept.types):
            ends = [
                start + self.arrays(number)[UNIT_ENDS]
                for number, start in enumerate(starts[:-1].tolist())
            ]
            self.unit_starts = share(np.unique(np.concatenate([[0], *ends])))

    def __len__(self) -> int:
        return self._count

    @property
    def place(self) -> str | None:
        """The path of the file that keeps this index; None: no file does."""
        return self._kept.place or None

    @property
    def is_in_file(self) -> bool:
        """Whether the arrays of a shard are read from the file when they are asked for."""
        return self._kept.content is None

    @property
    def counts(self) -> list[int]:
        """How many samples each shard has."""
        found: list[int] = np.diff(self.starts).tolist()
        return found

    def locate(self, indices: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the shard that has each sample, and its position there."""
        starts, wanted = self.starts.view(np.ndarray), np.asarray(indices, np.int64)
        shards = np.searchsorted(starts, wanted, "right") - 1
        return shards.tolist(), (wanted - starts[shards]).tolist()

    def place_of(self, index: int) -> tuple[int, int]:
        """Return the shard that has a sample, and its position there."""
        shard = bisect.bisect_right(self.starts, index) - 1
        return shard, index - int(self.starts[shard])

    def file(self, shard: int) -> StoredFile:
        """Return the file of a shard."""
        return StoredFile(*self.files[shard])

    def note(self, shard: int) -> str:
        """Return what the index.json of the format says of a shard."""
        return str(self.notes[shard]) if len(self.notes) else ""

    def arrays(self, shard: int) -> Arrays:
        """Return the arrays of a shard."""
        found = self._kept.arrays(shard)
        if found is None:
            warnings.warn(
                f"the index '{self.place}' is no longer what it was when the dataset was made, so"
                " shards are read anew for it, which is slow: leave it where it is",
                stacklevel=2,
            )
            found = _scan(FORMATS[self.kind], self.file(shard), self._options)
        return found


def find_set(path: Any, kind: str | None, folder: str | None, options: Options) -> SetIndex:
    """Return the index of the shards that a path names.

    Args:
        path: as for `named`.
        kind: the name of the format; None: what is found.
        folder: where the index is kept; None: beside the shards, if that folder is writable.
        options: how samples are decoded.

    Raises:
        ConfigError, ConfigTypeError: there are none, they are of several formats, or one is
            damaged.
    """
    form, shards = listed_shards(path, kind, options)
    files = files_of(shards, options.files)
    if form.scan is None:
        counts, notes = counts_of(shards), [each.note for each in shards]
        arrays = [
            {COUNT: np.array([count]), **each.arrays}
            for count, each in zip(counts, shards, strict=True)
        ]
        kept = kept_in_memory(form.name, files, arrays)
        return SetIndex(form.name, files, counts, notes, kept, options)
    found = _scanned(form, files, folder, options)
    for listed, count in zip(shards, found.counts, strict=True):
        if listed.samples not in (None, count):
            raise ConfigError(
                f"the shard '{listed.path}' has {count:,} samples, and the list of its set says"
                f" {listed.samples:,}: they are of different versions. Make the list anew, or"
                " remove it"
            )
    return found


def listed_shards(
    path: Any, kind: str | None, options: Options
) -> tuple[Format, list[ListedShard]]:
    """Return the format of the shards that a path names, and the shards; opens none of them.

    Raises:
        ConfigError, ConfigTypeError: there are none, they are of several formats, or one file is
            named twice.
    """
    entries = [name for part in parts_of(path) for name in options.files.named(part)]
    if not entries:
        raise ConfigError("path is an empty list: pass the files of the shards")
    found = _listed(entries, kind, options)
    if not found:
        raise ConfigError(f"the index that path names, {got(path)}, has no shard: pass another one")
    kinds = {each.name: file for each, file in reversed(found)}
    if len(kinds) > 1:
        told = " and ".join(f"'{file.path}' of {name}" for name, file in sorted(kinds.items()))
        raise ConfigError(
            f"the shards have several formats, such as {told}: pass those of one, or format="
        )
    shards = [listed for _, listed in found]
    refuse_twice([each.path for each in shards])
    return found[0][0], shards


def refuse_twice(paths: list[str]) -> None:
    """Raise ConfigError where two paths are of one file."""
    folders = {each: os.path.realpath(each) for each in set(map(os.path.dirname, paths))}
    seen: dict[str, str] = {}
    for path in paths:
        folder, name = os.path.split(path)
        place = os.path.join(folders[folder], name)  # noqa: PTH118
        if os.path.islink(place):  # noqa: PTH114
            place = os.path.realpath(place)
        if place in seen:
            told = "" if seen[place] == path else f", also as '{path}'"
            raise ConfigError(
                f"path, or an index that it names, names '{seen[place]}' twice{told}: its samples"
                " would come twice"
            )
        seen[place] = path


def counts_of(found: Iterable[ListedShard]) -> list[int]:
    """Return how many samples each shard has. ConfigError: its file does not say it."""
    counts = []
    for listed in found:
        if listed.samples is None:
            raise ConfigError(_of_a_set(listed.path))
        counts.append(listed.samples)
    return counts


def _of_a_set(path: str) -> str:
    return f"'{path}' is a file of a set that its folder describes: pass the folder"


def _listed(
    entries: list[str], kind: str | None, options: Options
) -> list[tuple[Format, ListedShard]]:
    """Return the format and the shards of each file or folder."""
    if kind is not None and (not isinstance(kind, str) or kind not in FORMATS):
        raise ConfigError(f"format must be one of {', '.join(FORMATS)}, got {got(kind)}")
    found: list[tuple[Format, ListedShard]] = []
    said: dict[tuple[Format, str], dict[str, int]] = {}  # counts, by the folder
    for entry in entries:
        if options.files.is_folder(entry):
            inner = _in_folder(entry, kind, options)
            if not inner:
                raise _no_shards(entry, options.files)
            found += inner
            continue
        indexed = _indexed(entry, kind, options) if entry.endswith(".json") else None
        if indexed is not None:
            found += indexed
            continue
        form = FORMATS[kind] if kind else find_format(entry, options.files)
        if form is None and options.files.has(os.path.join(os.path.dirname(entry), "index.json")):  # noqa: PTH118, PTH120
            raise ConfigError(_of_a_set(entry))
        if form is None:
            raise ConfigError(
                f"'{entry}' is a shard of none of the formats {', '.join(FORMATS)}, by its name"
                " and its first bytes: pass format= if it is"
            )
        if form.counts is None:
            found.append((form, ListedShard(entry)))
            continue
        place = form, os.path.dirname(entry)  # noqa: PTH120
        if place not in said:
            said[place] = form.counts(place[1], False, options.files)
        found.append((form, ListedShard(entry, said[place].get(entry))))
    return found


def _in_folder(folder: str, kind: str | None, options: Options) -> list[tuple[Format, ListedShard]]:
    """Return the shards of a folder: those of its index.json, or its files of a known format."""
    lists = FORMATS[kind].list_folder if kind else None
    if kind and lists:
        return [(FORMATS[kind], each) for each in lists(folder, options.files)]
    indexed = _indexed(folder, kind, options)
    if indexed is not None:
        return indexed
    if kind and FORMATS[kind].scan is None:  # nothing but an index says what its samples are
        return []
    for form in [FORMATS[kind]] if kind else FORMATS.values():
        said = {} if form.counts is None else form.counts(folder, True, options.files)
        if said:
            return [(form, ListedShard(path, count)) for path, count in said.items()]
    files = [each for each in options.files.entries(folder) if not each.endswith("/index.json")]
    files = [each for each in files if options.files.is_file(each) or _lacks_file(each)]
    kinds = [(find_format(each, options.files), each) for each in files]
    found = [(form, each) for form, each in kinds if form and kind in (None, form.name)]
    if kind and not found:
        found = [(FORMATS[kind], each) for each in files]
    require_all([each for _, each in found])
    warn_of_splits(folder, [each for _, each in found])
    return [(form, ListedShard(each)) for form, each in found]


def _lacks_file(path: str) -> bool:
    """Whether what is no file has a shard's name, such as a link to a file that was removed."""
    return format_by_name(path) is not None and not os.path.isdir(path)  # noqa: PTH112


def _indexed(
    path: str, kind: str | None, options: Options
) -> list[tuple[Format, ListedShard]] | None:
    """Return the shards that an index names; None: there is none, or none is to be read."""
    if kind and FORMATS[kind].read is None:
        return None
    indexed = read_index(path, options)
    if indexed is None:
        return None
    form, listed = indexed
    if kind not in (None, form.name):
        raise ConfigError(
            f"the index of '{path}' is of the format {form.name!r}, and format={kind!r} is asked"
            " for: leave it out"
        )
    return [(form, each) for each in listed]


def _no_shards(folder: str, files: Files) -> ConfigError:
    """Return the error of a folder without shards."""
    inner = files.indexed_folders(folder)
    if inner:
        return ConfigError(
            f"the folder '{folder}' has no index.json, and {len(inner)} folders in it have one:"
            f" pass one of them, or a list of those that you want, such as {inner[:3]}"
        )
    folders = files.folders(folder)
    if any(map(folder_key, folders)):
        return ConfigError(
            f"the folder '{folder}' has folders NAME=VALUE, and no shard: pass"
            f" '{os.path.join(folder, '*', '*.parquet')}', whose samples lack these columns, or the"  # noqa: PTH118
            " folder to reader.TableRows, whose rows have them"
        )
    there = f", and it has the folders {', '.join(folders[:3])}" if folders else ""
    return ConfigError(
        f"the folder '{folder}' has no shard of the formats {', '.join(FORMATS)}{there}: pass the"
        " folder or the files that have them. Those of MDS and LitData need their index.json"
    )


def files_of(shards: Sequence[ListedShard], files: Files) -> list[StoredFile]:
    """Return the files of shards as they are now.

    Raises:
        ConfigError: one cannot be read, or has not the size that a list of its set says.
    """
    try:
        found = files.found([each.path for each in shards])
    except OSError as error:
        raise ConfigError(str(error)) from error
    for listed, file in zip(shards, found, strict=True):
        if listed.nbytes not in (None, file.nbytes):
            raise ConfigError(
                f"the shard '{listed.path}' has {file.nbytes:,} bytes, and the list of its set says"
                f" {listed.nbytes:,}: they are of different versions. Fetch them again, or make the"
                " list anew"
            )
    return found


def _scanned(
    form: Format, files: list[StoredFile], folder: str | None, options: Options
) -> SetIndex:
    """Return the index of shards that have to be read, or of those that have changed."""
    kept = kept_for(form.name, files, folder, lambda file: _scan(form, file, options))
    found = SetIndex(form.name, files, kept.samples().tolist(), [], kept, options)
    _check_columns(found)
    return found


def _scan(form: Format, file: StoredFile, options: Options) -> Arrays:
    """Return the arrays of a shard, which is read for them."""
    for is_last in (False, True):
        try:
            return form.scan(stored_bytes(file, options.files), options.check)  # type: ignore[misc]
        except DatasetError as error:
            if is_last or not options.files.is_given_anew(file, [(0, -1)], error):
                raise ConfigError(str(error)) from error
    raise AssertionError("unreachable")


def _check_columns(found: SetIndex) -> None:
    """Raise ConfigError where the columns of two shards differ, of formats that have columns."""
    first = found.arrays(0).get(_COLUMNS)
    if first is None:
        return
    columns = first.tobytes().decode().split("\0")
    _warn_of_folders([found.file(k).path for k in range(len(found.files))], columns)
    for number in range(1, len(found.files)):
        other = found.arrays(number)[_COLUMNS]
        if np.array_equal(first, other):
            continue
        one, two = (set(each.tobytes().decode().split("\0")) for each in (first, other))
        told = ", ".join(sorted(one ^ two)) or "their order"
        raise ConfigError(
            f"'{found.file(0).path}' and '{found.file(number).path}' differ in their columns:"
            f" {told}. Write them with one schema, or pass those that agree"
        )


def _warn_of_folders(paths: Iterable[str], columns: list[str]) -> None:
    """Warn where folders NAME=VALUE of differing values hold files without a column NAME.

    Args:
        paths: of the files.
        columns: of them: "name: type".
    """
    values: dict[str, set[str | None]] = {}
    for folder in set(map(os.path.dirname, paths)):
        for name, value in filter(None, map(folder_key, folder.split("/"))):
            values.setdefault(name, set()).add(value)
    named = {name for name, found in values.items() if len(found) > 1}
    names = sorted(name for name in named if not any(c.startswith(f"{name}: ") for c in columns))
    if names:
        warnings.warn(
            f"the names of folders say {', '.join(names)}, which samples of Shards do not have:"
            " reader.TableRows reads such folders with these columns",
            stacklevel=2,
        )
