"""The rows of Parquet and Arrow files and of DataFrames as samples: the dataset, and its decoding.

Imports the dataset's base class, the source, the layout of rows, and where decoded rows are kept.
A dataset never changes; its rows are in one file that all workers map.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from reader.available_memory import available_bytes
from reader.checks import as_byte_count, as_folder, described
from reader.data.dataset import Dataset
from reader.errors import (
    ConfigError,
    ConfigTypeError,
    DatasetError,
    SampleIndexError,
    got,
    refusal,
)
from reader.files import open_regular
from reader.formats.arrow_source import pyarrow
from reader.formats.file_source import FileSource
from reader.formats.row_layout import RowLayout
from reader.formats.table_file import Form, TableFile, memory_file
from reader.formats.table_folder import TableFolder
from reader.formats.table_source import table_source
from reader.sharing.memory_file import seal
from reader.stores.files import Files
from reader.stores.remote_files import files_for
from reader.stores.shard_cache import ShardCache
from reader.stores.urls import as_path_or_url

__all__ = ["TableRows"]


class _Options(NamedTuple):
    """How a table is decoded. `fields`: the column of each field, or its columns; None: all."""

    fields: dict[str, Any] | None
    fill_null: dict[str, Any]
    as_dtype: dict[str, Any]
    categories: dict[str, list[Any]]
    fill_unknown: dict[str, Any]
    memory_limit: int | None
    disk: str | None
    files: Files


class TableRows(Dataset[dict[str, Any]]):
    """Hold the rows of a table: sample k is a dict with the values of row k.

    The table is decoded once, into one memory file that all workers of a loader map, or into a file
    in a folder. Where all columns are of fixed width, rows are gathered into the batch without
    Python code for each sample, and a batch is a dict of arrays.

    =========================================  =====================================================
    column of Arrow                            value in a sample
    =========================================  =====================================================
    integers, floats, bool                     a number of NumPy of that type
    dates, times, timestamps, durations        int32 or int64, as stored, in the column's unit
    decimals                                   float64, where `as_dtype` says so
    lists of one length, binary of one length  an array, of bytes as uint8
    dictionary (categories)                    a code, int32; `categories` has what it means
    strings, binary, lists of any length       str, bytes, an array; slower: fetched row by row
    lists of strings, of binary, of lists      a list of str, of bytes, of arrays; as slow
    struct of "bytes" and "path" (a picture)   bytes, which `reader.images` takes
    =========================================  =====================================================

    Args:
        source: the path of a Parquet, Arrow (Feather, IPC stream), CSV or JSON lines file, a list
            of such paths, a folder with such files, which are taken by name, a table of pyarrow, a
            list of its record batches, or a DataFrame. A frame's index is no column; its integer
            names become strings. CSV (.csv, .tsv) and JSON lines (.jsonl, .ndjson, .json) are known
            by name, also with .gz, .bz2, .zst or .lz4 behind it. In a folder they count where it
            has no Parquet or Arrow file. Folders NAME=VALUE within a folder give a column NAME.
            Paths may be addresses, such as "s3://bucket/folder" or "s3://bucket/a.parquet".
        columns: names of columns; None: all. Or the fields of a sample: a dict from a field's
            name to that of its column, or to a list of columns of numbers of one type, which are
            one array side by side. "a.b" is field "b" of the struct "a", unless a column has that
            name. Columns that are not named are not read: they may hold anything, and differ from
            file to file. Those that are have the wider type where files differ, such as int64 for
            int32 and int64.
        fill_null: by the name of a column or field what stands for nulls, of the type that values
            are given as. Nulls are NaN where those are floats, and refused elsewhere. Of a column
            with codes it is a code, such as -1. Of lists a number stands for nulls within them; a
            list that is null then is empty, or that number throughout where all have one length.
            A list, such as [] or [0, 0], stands for a list of any length that is null.
        as_dtype: by the name of a column or field the type that its numbers are given as, such as
            "float32". They are rounded to the nearest that it has; a number beyond its greatest is
            refused, and so is what is no integer where it has integers. "category" gives codes for
            strings and integers, which are numbered as they come.
        categories: by the name of a column or field the list of its values, whose codes are their
            places in it, such as `categories` of another table. Then all tables have the same
            codes.
        fill_unknown: by the name of a column or field with `categories` the code of a value that
            is not in the list, such as -1. Such a value is refused elsewhere.
        memory_limit: how many bytes the decoded rows may take in memory; None: what the machine and
            its memory groups can give.
        disk: a folder that decoded rows of files are kept in, for tables that are larger than the
            memory. What is there already is used, unless a file of the source has changed or
            checksums say that it is damaged. All of them are compared where the table takes up to 1
            GiB, and where its file was written to or copied since; else those of 1 GiB, in places
            that are others each time.
        cache: where bytes of a store are kept: see `reader.Shards`.
        store: options of the store's client: see `reader.Shards`.

    Attributes:
        fields: the names in a sample, in order.
        categories: by name of a field with codes the list of what they mean: `categories["x"][3]`
            is what code 3 stands for.

    One Arrow file that is neither compressed nor has several record batches, nulls or bools is used
    as it lies there, without decoding.

    Raises:
        ConfigError, ConfigTypeError: an argument that cannot be; pyarrow is missing; a file that is
            no table or differs from others; a column that arrays cannot hold, or that has nulls; a
            table without rows, or without space in the memory.
        DatasetError: a file is damaged.

    >>> import pyarrow
    >>> table = pyarrow.table({"size": [1.5, 2.5, 3.5], "sold": [1, 0, 1], "at": ["x", "y", "x"]})
    >>> rows = TableRows(table, ["size", "sold"])
    >>> len(rows), rows[2]
    (3, {'size': np.float64(3.5), 'sold': np.int64(1)})
    >>> rows = TableRows(table, {"inputs": ["size", "sold"], "at": "at"},
    ...                  as_dtype={"inputs": "float32", "at": "category"})
    >>> rows[1], rows.categories
    ({'inputs': array([2.5, 0. ], dtype=float32), 'at': np.int32(1)}, {'at': ['x', 'y']})
    """

    has_pure_samples = True

    __repr__ = described

    def __init__(
        self,
        source: Any,
        columns: Sequence[str] | Mapping[str, str | Sequence[str]] | None = None,
        *,
        fill_null: Mapping[str, Any] | None = None,
        as_dtype: Mapping[str, Any] | None = None,
        categories: Mapping[str, Sequence[Any]] | None = None,
        fill_unknown: Mapping[str, int] | None = None,
        memory_limit: int | None = None,
        disk: str | os.PathLike[str] | None = None,
        cache: ShardCache | None = None,
        store: Mapping[str, Any] | None = None,
    ) -> None:
        if memory_limit is not None:
            memory_limit = as_byte_count(
                "memory_limit", memory_limit, low=1, remedy="It is a number of bytes, or None."
            )
        options = _Options(
            _fields(columns),
            _by_name("fill_null", fill_null),
            _by_name("as_dtype", as_dtype),
            _lists_by_name("categories", categories),
            _by_name("fill_unknown", fill_unknown),
            memory_limit,
            None if disk is None else as_folder("disk", disk),
            files_for(_paths_in(source), cache, store),
        )
        self._file = _decoded(_located(source), options)
        self._set_arrays()

    def _set_arrays(self) -> None:
        form = self._file.form
        #: what the rows of samples are rows of, in the order of `fields`
        self.arrays: tuple[Any, ...] = tuple(self._file.columns())
        self.fields = tuple(field.name for field in form.fields)
        self.categories: dict[str, list[Any]] = {
            field.name: field.categories for field in form.fields if field.categories is not None
        }

    def __len__(self) -> int:
        return self._file.form.rows

    def __fingerprint__(self, samples: int | None) -> dict[str, Any]:
        """Return the fields' dtypes and shapes; see `fingerprint_of`."""
        fields = [
            f"{name}: {array.dtype} {list(array.shape[1:])}"
            for name, array in zip(self.fields, self.arrays, strict=True)
        ]
        count = len(self) if samples is None else samples
        return {"kind": "TableRows", "samples": count, "fields": fields}

    def __getitem__(self, index: int, /) -> dict[str, Any]:
        """Return the sample at `index`; a negative one counts from the end."""
        place, count = operator.index(index), self._file.form.rows
        if not -count <= place < count:
            raise SampleIndexError(
                f"index {index} is outside of {count} rows: take one in [{-count}, {count})"
            )
        return dict(zip(self.fields, [array[place] for array in self.arrays]))

    def __getstate__(self) -> dict[str, Any]:
        """Leave out what lies on the mapped file."""
        state = dict(vars(self))
        for name in ("arrays", "fields", "categories"):
            del state[name]
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._set_arrays()


def _located(source: Any) -> Any:
    """Return a source whose paths are of this machine, or addresses. ConfigError: one is not."""
    if isinstance(source, (list, tuple)):
        return [as_path_or_url("source", each) for each in source]
    return as_path_or_url("source", source)


def _paths_in(source: Any) -> list[str]:
    """Return the paths among what is given as a source."""
    given = source if isinstance(source, (list, tuple)) else [source]
    return [os.fsdecode(each) for each in given if isinstance(each, (str, os.PathLike))]


def _decoded(source: Any, options: _Options) -> TableFile:
    """Return the file with the rows of a table, made where there is none."""
    fields = options.fields
    asked = None
    if fields is not None:
        asked = list(dict.fromkeys(name for names in fields.values() for name in _listed(names)))
    table = table_source(source, asked, options.files)
    fields = dict(zip(table.types, table.types)) if fields is None else fields
    by_name = (options.fill_null, options.as_dtype, options.categories, options.fill_unknown)
    for argument, given in zip(("fill_null", "as_dtype", "categories", "fill_unknown"), by_name):
        table.check_names([name for name in given if name not in fields], argument)
    layout = RowLayout(table, fields, *by_name)
    if not isinstance(table, FileSource):
        if options.disk is not None:
            raise ConfigError(
                "disk is for tables in files, and source is in memory: write it to a Parquet file"
                " and pass that, or leave disk out"
            )
        return _in_memory(layout, options, None)
    remake = (_decoded, (table.origin, options))
    form = layout.mapped()
    if form is not None:
        return _mapped(table.paths[0], form, remake)
    if options.disk is None:
        return _in_memory(layout, options, remake)
    made_of = {
        "sources": table.stamps(),
        "options": [fields, *map(_shown, by_name)],
        "schema": [f"{name}: {type_}" for name, type_ in table.types.items()],
    }
    name = Path(table.paths[0]).stem
    try:
        with TableFolder(options.disk) as folder:
            fd, form = folder.open(
                name, made_of, lambda fd, note: layout.write(fd, None, note), layout.form_of
            )
        return TableFile(fd, form, remake)
    except PermissionError as error:
        raise ConfigError(
            f"the decoded table in '{options.disk}' cannot be written: {error}; name a folder by"
            " disk= that you may write to"
        ) from error
    except OSError as error:
        raise refusal(
            f"the decoded table in '{options.disk}'", "cannot be written", error, "make room there"
        ) from error


def _mapped(path: str, form: Form, remake: Any) -> TableFile:
    try:
        return TableFile(open_regular(path), form, remake)
    except OSError as error:
        raise refusal(f"'{path}'", "cannot be mapped", error) from error
    except ValueError as error:  # it is shorter than before
        raise DatasetError(
            f"'{path}' has changed while it was opened: {error}. Leave the file as it is"
        ) from error


def _in_memory(layout: RowLayout, options: _Options, remake: Any) -> TableFile:
    available = available_bytes()
    limit = min(available, options.memory_limit or available)

    def check_room(nbytes: int) -> None:
        if nbytes > limit:
            why = "memory_limit allows" if limit < available else "the machine can give"
            raise ConfigError(
                f"the decoded table takes {nbytes:,} bytes or more, and {why} {limit:,}: choose"
                " fewer by columns=, smaller types by as_dtype=, or keep it in a folder by disk="
            )

    check_room(layout.nbytes)
    fd = memory_file()
    try:
        form = layout.write(fd, check_room)
        os.ftruncate(fd, form.nbytes)
        seal(fd)
    except OSError as error:
        os.close(fd)
        raise refusal("the decoded table", "cannot be written to memory", error) from error
    except BaseException:
        os.close(fd)
        raise
    pyarrow().default_memory_pool().release_unused()
    try:
        return TableFile(fd, form, remake)
    except OSError as error:
        raise refusal("the decoded table", "cannot be mapped", error) from error


def _fields(columns: Any) -> dict[str, Any] | None:
    """Return the column, or the columns, of each field; None: all columns are fields."""
    if columns is None:
        return None
    is_named = isinstance(columns, Mapping)
    if not is_named and not (isinstance(columns, (list, tuple))):
        raise ConfigTypeError(
            f"columns must be a list of names, or a dict of fields, got {got(columns)}: pass"
            " [name] of one column, list(names) of others"
        )
    if not is_named:
        columns = list(map(_name, columns))
    wrong = [] if is_named else [name for name in columns if not isinstance(name, str)]
    if wrong:
        raise ConfigTypeError(
            f"columns must name columns by strings, got {got(wrong[0])}: for columns side by side"
            " pass a dict, such as {'inputs': ['a', 'b']}"
        )
    found = dict(columns) if is_named else dict(zip(columns, columns))
    if not found or (not is_named and len(found) < len(columns)):
        raise ConfigError(f"columns must name each column once, and one at least, got {columns!r}")
    fields: dict[str, Any] = {}
    for field, names in found.items():
        listed = list(map(_name, _listed(names)))
        if not isinstance(field, str) or not all(isinstance(name, str) for name in listed):
            raise ConfigTypeError(f"columns must name columns by strings, got {got(names)}")
        if not listed:
            raise ConfigError(f"columns gives the field {field!r} no column: name one at least")
        fields[field] = listed if isinstance(names, (list, tuple)) else listed[0]
    return fields


def _name(name: Any) -> Any:
    """Return the name of a column: integers of a frame as Arrow names such columns."""
    is_number = isinstance(name, (int, np.integer)) and not isinstance(name, bool)
    return str(name) if is_number else name


def _listed(names: Any) -> list[Any]:
    return list(names) if isinstance(names, (list, tuple)) else [names]


def _by_name(argument: str, given: Any) -> dict[str, Any]:
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise ConfigTypeError(
            f"{argument} must be a dict by the names of columns or fields, got {got(given)}"
        )
    return {_name(name): value for name, value in given.items()}


def _lists_by_name(argument: str, given: Any) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for name, values in _by_name(argument, given).items():
        try:
            if not isinstance(values, (str, bytes, Mapping)):
                found[name] = list(values)
        except TypeError:
            pass
        if name not in found:
            raise ConfigTypeError(
                f"{argument} of {name!r} must be a list of values, got {got(values)}"
            )
    return found


def _shown(given: dict[str, Any]) -> dict[str, str]:
    """Return options as texts, the same for the same meaning."""

    def text(value: Any) -> str:
        if isinstance(value, (type, np.dtype)):
            return str(np.dtype(value).name)
        return repr(value.tolist()) if isinstance(value, np.ndarray) else repr(value)

    return {name: text(value) for name, value in sorted(given.items())}
