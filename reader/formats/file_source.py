"""Tables in files: Parquet, Arrow, CSV and JSON lines, read by pyarrow.

Imports the source's base class and what is known of files by name. A source holds no descriptor
between two calls; of texts it holds the rows, since their types are known once all are read.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from reader.errors import ConfigError, DatasetError
from reader.formats.arrow_source import ArrowSource, pyarrow
from reader.formats.arrow_types import asked_types, no_such_column, path_of, promoted, select
from reader.formats.json_lines import read_json_lines
from reader.formats.source_files import (
    ARROW,
    CSV,
    JSON,
    PARQUET,
    SourceFile,
    files_of,
    is_tabbed,
    unreadable,
)
from reader.stores.files import Files
from reader.stores.urls import is_url

__all__ = ["FileSource"]

_TEXT_BLOCK = 1 << 26  # bytes of a text that are parsed at a time: a line has no more
_INT32, _INT64 = range(-(2**31), 2**31), range(-(2**63), 2**63)


class FileSource(ArrowSource):
    """Files of a table, the rows of the first file first.

    Args:
        source: a file, a folder, or a list of files.
        asked: the names of the columns that are asked for; None: all. Others are not compared.
        stores: how files are found and read.

    Attributes:
        origin: what to pass for the same table: the source, or its files.
        paths: of the files.

    Raises:
        ConfigError: a file cannot be read, or differs from the first in a column.
    """

    def __init__(self, source: str | list[str], asked: Sequence[str] | None, stores: Files) -> None:
        self._stores = stores
        self._files = files_of(source, stores)
        self.paths = [file.path for file in self._files]
        has_keys = bool(self._files[0].keys)
        self.origin: str | list[str] = source if has_keys else self.paths
        self._keys = _typed_keys(self._files)
        self._counts: list[int] = []
        self._texts: dict[int, Any] = {}
        name = f"'{self.paths[0]}'" + (f" and {len(self.paths) - 1} more" if self.paths[1:] else "")
        pa, types, names = pyarrow(), {}, []
        for number, path in enumerate(self.paths):
            with _reading(self._files[number], ConfigError):
                schema, count = self._look_at(number)
                for key, (_, type_) in self._keys.items():
                    if key not in schema.names:
                        schema = schema.append(pa.field(key, type_))
                found = asked_types(pa, schema, asked, f"'{path}'")
            if not number:
                types, names = found, schema.names
                for missing in (each for each, type_ in found.items() if type_ is None):
                    raise no_such_column("columns", missing, f"'{path}'", names)
            else:
                for each in [*types, *found]:
                    types[each] = self._agreed(each, types.get(each), found.get(each), path)
            self._counts.append(count)
        super().__init__(name, names, types, sum(self._counts))

    def _agreed(self, name: str, one: Any, other: Any, path: str) -> Any:
        """Return the type of a column in all files. ConfigError: there is none."""
        type_ = None if one is None or other is None else promoted(pyarrow(), one, other)
        if type_ is None:
            remedy = "Write them with one schema, or name the columns that you want by columns="
            raise ConfigError(
                f"'{self.paths[0]}' and '{path}' differ in the column {name!r}: it is"
                f" {one or 'missing'} in the first and {other or 'missing'} in the second. {remedy}"
            )
        return type_

    def stamps(self) -> list[tuple[str, int, int]]:
        """Return the path, the bytes and the time of the last change in ns of each file."""
        found = []
        for file in self._files:
            with _reading(file, DatasetError):
                _, nbytes, mtime_ns = self._stores.file(file.path)
            path = file.path if is_url(file.path) else os.path.abspath(file.path)  # noqa: PTH100
            found.append((path, nbytes, mtime_ns))
        return found

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """See ArrowSource."""
        pa = pyarrow()
        for number, file in enumerate(self._files):
            rows = 0
            tables = self._tables_of(number, list(names))
            while True:
                with _reading(file, DatasetError):
                    table = next(tables, None)
                    table = None if table is None else select(pa, table, names)
                if table is None:
                    break
                rows += table.num_rows
                yield from table.to_batches(max_chunksize=most_rows)
            if rows != self._counts[number]:
                raise DatasetError(
                    f"'{file.path}' has {rows:,} rows, and had {self._counts[number]:,} when it was"
                    " opened: leave the file as it is while it is read"
                )

    def places(self, names: Sequence[str]) -> tuple[list[int], int] | None:
        """Return where in the file the values of fixed-width columns begin, in bytes, and its size.

        None: the file cannot be mapped. It can where it is one Arrow file with one record batch,
        neither compressed nor with nulls in these columns.
        """
        pa = pyarrow()
        if [(file.kind, file.keys) for file in self._files] != [(ARROW, {})]:
            return None
        path = self.paths[0]
        if not self._stores.is_here(path):
            return None
        with _reading(self._files[0], DatasetError), pa.memory_map(path) as file:
            whole = file.read_buffer()
            found = pa.ipc.open_file(file)
            if found.num_record_batches != 1:
                return None
            table, places = pa.Table.from_batches([found.get_batch(0)]), []
            table = select(pa, table, names)  # all of it lies within the file
            for name in names:
                chunks = table.column(name).chunks
                values = _values_of(chunks[0]) if len(chunks) == 1 else None
                memory = None if values is None or values.offset else values.buffers()[1]
                if memory is None:
                    return None
                place = memory.address - whole.address
                if not 0 <= place <= whole.size - memory.size:  # it was decompressed
                    return None
                places.append(place)
            return places, whole.size

    def _look_at(self, number: int) -> tuple[Any, int]:
        """Return a file's schema and how many rows it has."""
        pa, file = pyarrow(), self._files[number]
        if file.kind == PARQUET:
            with self._parquet(file.path) as found:
                return found.schema_arrow, found.metadata.num_rows
        if file.kind in (CSV, JSON):
            table = self._texts[number] = _text(pa, file, self._stores)
            return table.schema, table.num_rows
        with self._mapped(file.path) as mapped:
            schema = _arrow_schema(pa, file, mapped)
            # of compressed columns only the first is decompressed
            return schema, sum(
                each.num_rows for each in _arrow_batches(pa, file, mapped, [0][: len(schema)])
            )

    def _tables_of(self, number: int, names: list[str]) -> Iterator[Any]:
        """Yield the rows of a file as tables that have some columns, and perhaps more."""
        pa = pyarrow()
        for table in self._stored_tables(number, names):
            for key, (values, type_) in self._keys.items():
                if key not in table.schema.names:
                    scalar = pa.scalar(values[number], type_)
                    table = table.append_column(key, pa.repeat(scalar, table.num_rows))
            yield table

    def _stored_tables(self, number: int, names: list[str]) -> Iterator[Any]:
        pa, file = pyarrow(), self._files[number]
        if file.kind in (CSV, JSON):
            yield self._texts[number]
            return
        if file.kind == PARQUET:
            with self._parquet(file.path) as found:
                wanted = _parquet_names(pa, found.schema_arrow, names)
                for group in range(found.metadata.num_row_groups):
                    yield found.read_row_group(group, columns=wanted)
            return
        with self._mapped(file.path) as mapped:
            schema = _arrow_schema(pa, file, mapped)
            paths = [path_of(pa, schema, name) for name in names]
            # one at least, which says how many rows there are
            columns = sorted({path[0] for path in paths if path is not None}) or [0][: len(schema)]
            for batch in _arrow_batches(pa, file, mapped, columns):
                yield pa.Table.from_batches([batch])

    def _parquet(self, path: str) -> Any:
        """Return an open Parquet file; columns of one in a store are read together."""
        source = self._stores.source(path)
        return pyarrow().parquet.ParquetFile(source, pre_buffer=source is not path)

    def _mapped(self, path: str) -> Any:
        """Return an open file of Arrow's: mapped, or read from a store."""
        source = self._stores.source(path)
        pa = pyarrow()
        return pa.memory_map(source) if source is path else pa.PythonFile(source, mode="r")


def _arrow_schema(pa: Any, file: SourceFile, mapped: Any) -> Any:
    mapped.seek(0)
    opened = pa.ipc.open_file if file.kind == ARROW else pa.ipc.open_stream
    return opened(mapped).schema


def _arrow_batches(pa: Any, file: SourceFile, mapped: Any, columns: list[int]) -> Iterator[Any]:
    """Yield the record batches of a file or stream, with some columns by number."""
    mapped.seek(0)
    options = pa.ipc.IpcReadOptions(included_fields=columns)
    if file.kind == ARROW:
        found = pa.ipc.open_file(mapped, options=options)
        yield from (found.get_batch(k) for k in range(found.num_record_batches))
    else:
        yield from pa.ipc.open_stream(mapped, options=options)


def _parquet_names(pa: Any, schema: Any, names: Sequence[str]) -> list[str]:
    """Return the columns of a Parquet file that hold some columns, as its reader names them."""
    found = []
    for name in names:
        path = path_of(pa, schema, name, is_whole=True)  # by both fields it is known as a picture
        if path is not None:
            field = schema.field(path[0])
            steps = [field.name]
            for step in path[1:]:
                field = field.type.field(step)
                steps.append(field.name)
            found.append(".".join(steps))
    return found


def _text(pa: Any, file: SourceFile, stores: Files) -> Any:
    """Return the rows of a CSV file or of JSON lines."""
    from pyarrow import csv

    with pa.input_stream(stores.source(file.path), compression=file.packed) as stream:
        if file.kind == JSON:
            return read_json_lines(stream, _TEXT_BLOCK)
        return csv.read_csv(
            stream,
            csv.ReadOptions(block_size=_TEXT_BLOCK),
            csv.ParseOptions(
                delimiter="\t" if is_tabbed(file.path) else ",", newlines_in_values=True
            ),
        )


@contextmanager
def _reading(file: SourceFile, kind: type[Exception]) -> Iterator[None]:
    """Raise `kind`, which names the file, where pyarrow cannot read it."""
    pa = pyarrow()
    try:
        yield
    except (ConfigError, DatasetError):
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise unreadable(file.path, error) from error
        if "ncrypt" in str(error) or "ecrypt" in str(error):
            raise ConfigError(
                f"'{file.path}' has encrypted columns: {error}. Read it with its keys by"
                " pyarrow.parquet.ParquetFile(path, decryption_properties=...).read(), and pass"
                " that table"
            ) from error
        if file.kind in (CSV, JSON):
            raise kind(
                f"'{file.path}' cannot be read as {file.kind}: {error}. Read it by pandas or"
                " pyarrow, with the options that it needs, and pass that table"
            ) from error
        raise kind(
            f"'{file.path}' is damaged, or has changed while it was read: {error}. Write it anew"
        ) from error


def _typed_keys(files: Sequence[SourceFile]) -> dict[str, tuple[list[Any], Any]]:
    """Return the values of each column that folders name, one for each file, and their type."""
    pa, found = pyarrow(), {}
    for key in files[0].keys:
        values: list[Any] = [file.keys[key] for file in files]
        texts = [value for value in values if value is not None]
        type_ = pa.string() if texts else pa.null()
        if texts and all(each.removeprefix("-").isdecimal() for each in texts):
            numbers = [None if value is None else int(value) for value in values]
            for limits, narrow in ((_INT64, pa.int64()), (_INT32, pa.int32())):
                if all(number is None or number in limits for number in numbers):
                    values, type_ = numbers, narrow
        found[key] = (values, type_)
    return found


def _values_of(column: Any) -> Any:
    """Return the numbers of a column that lie in one piece; None where it has nulls."""
    while not column.null_count:
        if hasattr(column, "storage"):  # of an extension type
            column = column.storage
        elif hasattr(column.type, "list_size"):
            column = column.values
        else:
            return column
    return None
