"""Where tables come from: Parquet and Arrow files, and tables that are in memory already.

The one file that imports pyarrow, and it does so when a table is opened. A source holds no
descriptor between two calls, and reads no row before it is asked for batches.
"""

from __future__ import annotations

import difflib
import errno
import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reader.checks import has_method, refuse_url
from reader.errors import ConfigError, ConfigTypeError, DatasetError, got, remedy_for
from reader.files import open_regular

__all__ = ["ArrowSource", "FileSource", "TableSource", "arrow_source", "pyarrow"]

_SUFFIXES = (".parquet", ".pq", ".arrow", ".feather", ".ipc")
_LEAST = (14, 0, 1)  # before it, a type of an extension was unpickled
_PARQUET, _ARROW, _OLD_FEATHER = b"PAR1", b"ARROW1", b"FEA1"


def pyarrow() -> Any:
    """Return the module. ConfigError: it is not installed, or runs code that a file names."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise ConfigError(
            f"tables are read by pyarrow, which cannot be imported: {error}. Run: pip install"
            ' "lodreader[tables]"'
        ) from error
    version = pyarrow.__version__
    if tuple(map(int, re.findall(r"\d+", version)[:3])) < _LEAST:
        raise ConfigError(
            f"pyarrow {version} unpickles what an Arrow or Parquet file holds (CVE-2023-47248), and"
            f" so runs any code in it: install {'.'.join(map(str, _LEAST))} or a newer one"
        )
    return pyarrow


class ArrowSource:
    """A table: its columns' types, how many rows it has, and the rows in batches.

    Attributes:
        name: how messages call it.
        types: the Arrow type of each column, by name, in the order of the table.
        count: how many rows it has.
    """

    def __init__(self, name: str, types: dict[str, Any], count: int) -> None:
        self.name = name
        self.types = types
        self.count = count

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """Yield the rows of some columns, in order, as Arrow record batches.

        Raises:
            DatasetError: a file is damaged, or has changed since it was opened.
        """
        raise NotImplementedError

    def null_counts(self, name: str) -> tuple[int, int]:
        """Count the nulls of a column, and those within its lists, which reads it."""
        own = within = 0
        for batch in self.batches([name], 1 << 20):
            column = batch.column(0)
            own += column.null_count
            while True:
                if hasattr(column, "storage"):  # of an extension type
                    column = column.storage
                elif hasattr(column, "flatten") and hasattr(column.type, "value_type"):
                    column = column.flatten()
                    within += column.null_count
                else:
                    break
        return own, within

    def check_names(self, names: Sequence[str], argument: str) -> None:
        """Raise ConfigError for a name that no column has."""
        for name in names:
            if name not in self.types:
                near = difflib.get_close_matches(str(name), self.types, 3) or list(self.types)[:8]
                raise ConfigError(
                    f"{argument} names {name!r}, and {self.name} has no such column: the nearest"
                    f" of its {len(self.types)} are {', '.join(map(repr, near))}"
                )


class TableSource(ArrowSource):
    """A table in memory."""

    def __init__(self, table: Any) -> None:
        super().__init__("the table", _types(table.schema, "the table"), table.num_rows)
        self._table = table

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """See ArrowSource."""
        yield from self._table.select(list(names)).to_batches(max_chunksize=most_rows)


class FileSource(ArrowSource):
    """Parquet and Arrow files, the rows of the first file first.

    Attributes:
        paths: of the files.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = list(paths)
        self._kinds = [_kind(path) for path in self.paths]
        self._counts: list[int] = []
        types: dict[str, Any] = {}
        for number, path in enumerate(self.paths):
            with _reading(path, ConfigError):
                schema, count = self._look_at(number)
            found = _types(schema, f"'{path}'")
            if number:
                _compare(types, self.paths[0], found, path)
            else:
                types = found
            self._counts.append(count)
        name = f"'{self.paths[0]}'" + (f" and {len(self.paths) - 1} more" if self.paths[1:] else "")
        super().__init__(name, types, sum(self._counts))

    def stamps(self) -> list[tuple[str, int, int]]:
        """Return the path, the bytes and the time of the last change in ns of each file."""
        found = []
        for path in self.paths:
            with _reading(path, DatasetError):
                stat = Path(path).stat()
            found.append((os.path.abspath(path), stat.st_size, stat.st_mtime_ns))  # noqa: PTH100
        return found

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """See ArrowSource."""
        for number, path in enumerate(self.paths):
            rows = 0
            batches = self._batches_of(number, list(names), most_rows)
            while True:
                with _reading(path, DatasetError):
                    batch = next(batches, None)
                if batch is None:
                    break
                rows += batch.num_rows
                yield batch
            if rows != self._counts[number]:
                raise DatasetError(
                    f"'{path}' has {rows:,} rows, and had {self._counts[number]:,} when it was"
                    " opened: leave the file as it is while it is read"
                )

    def places(self, names: Sequence[str]) -> list[int] | None:
        """Return where in the file the values of fixed-width columns begin, in bytes.

        None: the file cannot be mapped. It can where it is one Arrow file with one record batch,
        neither compressed nor with nulls in these columns.
        """
        pa = pyarrow()
        if self._kinds != [_ARROW]:
            return None
        with _reading(self.paths[0], DatasetError), pa.memory_map(self.paths[0]) as file:
            whole = file.read_buffer()
            found = pa.ipc.open_file(file)
            if found.num_record_batches != 1:
                return None
            batch, places = found.get_batch(0), []
            for name in names:
                values = _values_of(batch.column(batch.schema.get_field_index(name)))
                memory = None if values is None else values.buffers()[1]
                if memory is None:
                    return None
                place = memory.address - whole.address
                if not 0 <= place < whole.size:  # it was decompressed
                    return None
                places.append(place)
            return places

    def _look_at(self, number: int) -> tuple[Any, int]:
        """Return a file's schema and how many rows it has."""
        pa, path = pyarrow(), self.paths[number]
        if self._kinds[number] == _PARQUET:
            with pa.parquet.ParquetFile(path) as file:
                return file.schema_arrow, file.metadata.num_rows
        with pa.memory_map(path) as mapped:
            schema = pa.ipc.open_file(mapped).schema
            # of compressed columns only the first is decompressed
            options = pa.ipc.IpcReadOptions(included_fields=[0])
            found = pa.ipc.open_file(mapped, options=options)
            count = sum(found.get_batch(i).num_rows for i in range(found.num_record_batches))
            return schema, count

    def _batches_of(self, number: int, names: list[str], most_rows: int) -> Iterator[Any]:
        pa, path = pyarrow(), self.paths[number]
        if self._kinds[number] == _PARQUET:
            with pa.parquet.ParquetFile(path) as file:
                for group in range(file.metadata.num_row_groups):
                    table = file.read_row_group(group, columns=names).select(names)
                    yield from table.to_batches(max_chunksize=most_rows)
            return
        with pa.memory_map(path) as mapped:
            schema = pa.ipc.open_file(mapped).schema
            wanted = [schema.get_field_index(name) for name in names]
            options = pa.ipc.IpcReadOptions(included_fields=wanted)
            found = pa.ipc.open_file(mapped, options=options)
            for i in range(found.num_record_batches):
                table = pa.Table.from_batches([found.get_batch(i)]).select(names)
                yield from table.to_batches(max_chunksize=most_rows)


def arrow_source(source: Any) -> ArrowSource:
    """Return where the rows of `source` come from.

    Args:
        source: a path, a folder, a list of paths, a table of pyarrow, a list of its record batches,
            or what gives itself as an Arrow stream, such as a DataFrame.

    Raises:
        ConfigError, ConfigTypeError: it is none of these, or cannot be read.
    """
    pa = pyarrow()
    for each in source if isinstance(source, (list, tuple)) else (source,):
        refuse_url("source", each)
    if isinstance(source, (str, os.PathLike)):
        return _checked(FileSource(_files(os.fsdecode(source))))
    if isinstance(source, (list, tuple)):
        if not source:
            raise ConfigError("source is an empty list: pass one file or record batch at least")
        if all(isinstance(each, (str, os.PathLike)) for each in source):
            return _checked(FileSource([os.fsdecode(each) for each in source]))
        if not all(isinstance(each, pa.RecordBatch) for each in source):
            wrong = next(each for each in source if not isinstance(each, pa.RecordBatch))
            raise ConfigTypeError(
                f"a list as source holds paths, or record batches of pyarrow alone, got"
                f" {got(wrong)} in it"
            )
    else:
        is_series = has_method(source, "to_frame") and not hasattr(type(source), "columns")
        is_column = is_series or isinstance(source, (pa.Array, pa.ChunkedArray))
        if is_column or not (
            isinstance(source, (pa.Table, pa.RecordBatch))
            or has_method(source, "__arrow_c_stream__")
        ):
            way = "to_frame() of it" if is_series else 'pyarrow.table({"name": values})'
            raise ConfigTypeError(
                "source must be a path, a list of paths, a table of pyarrow or a DataFrame, got"
                f" {got(source)}: of {'one column' if is_column else 'columns'} pass {way}"
            )
    try:
        table = _as_table(pa, source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = "; ".join(map(str, error.args))
        raise ConfigError(
            f"source cannot be read as a table of Arrow: {why}. Give each column a name and values"
            " of one type"
        ) from error
    return _checked(TableSource(table))


def _checked(source: ArrowSource) -> ArrowSource:
    if not source.count:
        raise ConfigError(f"{source.name} has 0 rows: pass a table with one at least")
    return source


def _as_table(pa: Any, source: Any) -> Any:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, (list, tuple)):
        return pa.Table.from_batches(list(source))
    if type(source).__module__.partition(".")[0] == "pandas":
        return pa.Table.from_pandas(source, preserve_index=False)
    return pa.table(source)


def _files(path: str) -> list[str]:
    """Return a file, or the files of a folder, by name."""
    if not os.path.isdir(path):  # noqa: PTH112  # raises nothing: what is no path is refused later
        return [path]
    try:
        names = sorted(os.listdir(path))  # noqa: PTH208
    except OSError as error:
        raise _unreadable(path, error) from error
    found = [name for name in names if name.endswith(_SUFFIXES) and not name.startswith((".", "_"))]
    if not found:
        raise ConfigError(
            f"the folder '{path}' has no file that ends in {', '.join(_SUFFIXES)}, but"
            f" {len(names)} other entries: pass a folder with such files in it, or a list of files"
        )
    return [os.path.join(path, name) for name in found]  # noqa: PTH118


def _kind(path: str) -> bytes:
    """Return how a file begins. ConfigError: it is no file of a table."""
    try:
        # an empty path is no file
        with open(path, "rb", opener=open_regular) as file:
            begin = file.read(8)
    except (OSError, ValueError) as error:  # ValueError: no path has a null byte
        raise _unreadable(path, error) from error
    for kind in (_PARQUET, _ARROW):
        if begin.startswith(kind):
            return kind
    if begin.startswith(_OLD_FEATHER):
        raise ConfigError(f"'{path}' is a Feather file of version 1: write it anew as version 2")
    raise ConfigError(
        f"'{path}' is neither a Parquet nor an Arrow file: it begins with {begin!r}, and those"
        f" begin with {_PARQUET!r} and {_ARROW!r}"
    )


def _unreadable(path: str, error: Exception) -> ConfigError:
    remedy = "pass the path of a Parquet or Arrow file that you may read, or a folder of them"
    if not isinstance(error, PermissionError):  # whose usual remedy is of system calls
        remedy = remedy_for(error, remedy)
    return ConfigError(f"{path!r} cannot be read as a table: {error}; {remedy}")


@contextmanager
def _reading(path: str, kind: type[Exception]) -> Iterator[None]:
    """Raise `kind`, which names the file, where pyarrow cannot read it."""
    pa = pyarrow()
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
            raise _unreadable(path, error) from error
        raise kind(
            f"'{path}' is damaged, or has changed while it was read: {error}. Write it anew"
        ) from error


def _types(schema: Any, name: str) -> dict[str, Any]:
    types = {field.name: field.type for field in schema}
    if len(types) < len(schema.names):
        twice = next(each for each in schema.names if schema.names.count(each) > 1)
        raise ConfigError(f"{name} has two columns {twice!r}: give each a name of its own")
    return types


def _compare(first: dict[str, Any], first_path: str, types: dict[str, Any], path: str) -> None:
    """Raise ConfigError where two files have other columns."""
    for name in [*first, *types]:
        one, other = (_value_type(each.get(name)) for each in (first, types))
        if one != other:
            raise ConfigError(
                f"'{first_path}' and '{path}' differ in the column {name!r}: it is"
                f" {one or 'missing'} in the first and {other or 'missing'} in the second. Write"
                " them with one schema"
            )


def _value_type(type_: Any) -> Any:
    """Return the type of a dictionary's values: how codes are stored says nothing of the column."""
    return type_.value_type if hasattr(type_, "index_type") else type_


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
