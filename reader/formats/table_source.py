"""What people pass as a table: paths and folders, tables of pyarrow, DataFrames.

Imports the sources. One function, which finds out what it was given.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Any

from reader.checks import has_method
from reader.errors import ConfigError, ConfigTypeError, got
from reader.formats.arrow_source import ArrowSource, TableSource, pyarrow
from reader.formats.file_source import FileSource
from reader.stores.files import Files

__all__ = ["table_source"]


def table_source(source: Any, asked: Sequence[str] | None, files: Files) -> ArrowSource:
    """Return where the rows of `source` come from.

    Args:
        source: a path, a folder, a list of paths, a table of pyarrow, a list of its record batches,
            or what gives itself as an Arrow stream, such as a DataFrame.
        asked: the names of the columns that are asked for; None: all. The others are neither
            compared nor converted.
        files: how files are found and read.

    Raises:
        ConfigError, ConfigTypeError: it is none of these, cannot be read, or lacks a column.
    """
    pa = pyarrow()
    if isinstance(source, (str, os.PathLike)):
        return _checked(FileSource(os.fsdecode(source), asked, files))
    if isinstance(source, (list, tuple)):
        if not source:
            raise ConfigError("source is an empty list: pass one file or record batch at least")
        if all(isinstance(each, (str, os.PathLike)) for each in source):
            return _checked(FileSource([os.fsdecode(each) for each in source], asked, files))
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
    names = None
    try:
        if asked is not None and _is_frame(source):
            names, source = _selected(source, asked)
        table = _as_table(pa, source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        why = "; ".join(map(str, error.args))
        raise ConfigError(
            f"source cannot be read as a table of Arrow: {why}. Give each column a name and values"
            " of one type, or leave the column out by columns="
        ) from error
    return _checked(TableSource(table, asked, names))


def _checked(source: ArrowSource) -> ArrowSource:
    if not source.types:
        raise ConfigError(f"{source.name} has no columns: pass a table with one at least")
    if not source.count:
        raise ConfigError(f"{source.name} has 0 rows: pass a table with one at least")
    return source


def _is_frame(source: Any, libraries: Sequence[str] = ("pandas", "polars")) -> bool:
    modules = [sys.modules.get(library) for library in libraries]
    return any(isinstance(source, getattr(module, "DataFrame", ())) for module in modules)


def _selected(frame: Any, asked: Sequence[str]) -> tuple[list[str], Any]:
    """Return the names of a frame's columns, and a frame of those that are asked for.

    The others may hold what Arrow does not, such as objects.
    """
    names = [str(name) for name in frame.columns]
    wanted: set[str] = set()  # "a.b" may be a column, or a field of a column "a"
    for name in asked:
        parts = name.split(".")
        wanted.update(".".join(parts[:end]) for end in range(1, len(parts) + 1))
    places = [place for place, name in enumerate(names) if name in wanted]
    if _is_frame(frame, ["pandas"]):
        return names, frame.iloc[:, places]
    return names, frame.select([names[place] for place in places])


def _as_table(pa: Any, source: Any) -> Any:
    if isinstance(source, pa.Table):
        return source
    if isinstance(source, pa.RecordBatch):
        return pa.Table.from_batches([source])
    if isinstance(source, (list, tuple)):
        return pa.Table.from_batches(list(source))
    if _is_frame(source, ["pandas"]):
        return pa.Table.from_pandas(source, preserve_index=False)
    return pa.table(source)
