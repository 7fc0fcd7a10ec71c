"""A DataFrame or Series of pandas whose columns lie in shared memory.

Imports the file in memory, and pandas when a table is shared. A shared table refers to its memory;
so do tables that are computed from it without a copy.
"""

from __future__ import annotations

import functools
import io
import pickle
import sys
from multiprocessing import reduction
from typing import Any

import numpy as np

from reader.errors import ConfigError
from reader.sharing.fixed_table import as_it_is, fix, fixed_class
from reader.sharing.memory_file import MemoryFile, part_of

__all__ = ["is_shared_table", "share_table", "table_class"]

_PROTOCOL = 5


def table_class(value: Any) -> Any:
    """Return the class of pandas that a value is an instance of, DataFrame or Series; or None."""
    pandas = sys.modules.get("pandas")
    kinds = () if pandas is None else (pandas.DataFrame, pandas.Series)
    return next((kind for kind in kinds if isinstance(value, kind)), None)


def is_shared_table(table: Any) -> bool:
    """Whether a table lies in shared memory already."""
    return isinstance(table.__dict__.get("_memory"), MemoryFile)


def share_table(table: Any) -> Any:
    """Return a shared copy of a DataFrame or Series.

    Columns of numbers, times and categories keep their types. Strings that are Python objects
    become Arrow strings, which lie in memory one after the other.

    Raises:
        ConfigError: a column holds other Python objects, or pyarrow is missing.
    """
    buffers: list[Any] = []
    plain = _without_objects(table)
    try:
        pickled = _pickled(plain, buffers)
    except Exception as error:  # many types
        raise ConfigError(
            f"a {type(table).__name__} cannot be shared, since its index or attrs cannot be"
            f" pickled: {error!r}. Drop what cannot: reset_index(drop=True), attrs.clear()"
        ) from error
    parts = [np.frombuffer(pickled, np.uint8)]
    parts += [np.frombuffer(buffer.raw(), np.uint8) for buffer in buffers]
    memory = MemoryFile.made_of([part_of(part) for part in parts])
    return _opened(memory)


class _Pickler(pickle.Pickler):
    """Leaves arrays of times out of the pickle, as NumPy does only with numbers."""

    def reducer_override(self, value: Any) -> Any:
        if type(value) is np.ndarray and value.dtype.kind in "mM":
            return np.ndarray.view, (value.view(np.int64), value.dtype)
        return NotImplemented


def _pickled(table: Any, buffers: list[Any]) -> bytes:
    file = io.BytesIO()
    _Pickler(file, _PROTOCOL, buffer_callback=buffers.append).dump(table)
    return file.getvalue()


def _opened(memory: MemoryFile) -> Any:
    """Return the table in some memory."""
    pickled, *buffers = memory.parts
    table = pickle.loads(pickled.data, buffers=buffers)
    shared = _class_of("DataFrame" if table.ndim > 1 else "Series")(table, copy=False)
    shared.attrs.update(table.attrs)
    fix(shared, memory)
    return shared


def _without_objects(table: Any) -> Any:
    """Return a table with strings of Arrow in place of Python's."""
    if table.ndim == 1:
        return _column_without_objects(table, table.name)
    made = table.copy(deep=False)
    for place, name in enumerate(table.columns):
        column = table.iloc[:, place]
        if column.dtype == object:
            made.isetitem(place, _column_without_objects(column, name))
    made.index = _index_without_objects(table.index)
    return made


def _column_without_objects(column: Any, name: Any) -> Any:
    if column.dtype != object:
        return column
    if not _is_text(column):
        raise ConfigError(
            f"column {name!r} holds Python objects that are no strings, which each process would"
            " copy: make it numbers or strings, or share it by itself as a list"
        )
    try:
        return column.astype(_text_type())
    except UnicodeEncodeError as error:
        raise ConfigError(
            f"column {name!r} holds a string that Arrow has no form for: {error}. Share it by"
            " itself as a list"
        ) from error


def _index_without_objects(index: Any) -> Any:
    is_plain = index.nlevels > 1 or index.dtype != object or not _is_text(index)
    return index if is_plain else index.astype(_text_type())


def _is_text(values: Any) -> bool:
    """Whether values are strings, or missing."""
    missing = (None, sys.modules["pandas"].NA)
    return all(
        isinstance(item, str)
        or any(item is each for each in missing)
        or (isinstance(item, float) and item != item)
        for item in values
    )


def _text_type() -> Any:
    import pandas

    try:
        return pandas.StringDtype("pyarrow", na_value=np.nan)
    except ImportError as error:
        raise ConfigError(
            f"a table with strings is shared by pyarrow, which cannot be imported: {error}. Run:"
            ' pip install "lodreader[tables]"'
        ) from error
    except TypeError:  # before pandas 2.3: missing values are pandas.NA
        return pandas.StringDtype("pyarrow")


@functools.cache
def _class_of(name: str) -> Any:
    """Return a subclass of pandas' class that is passed to another process by reference."""
    import pandas

    base = getattr(pandas, name)

    def reduce(self: Any, _: Any = _PROTOCOL) -> Any:
        return as_it_is, (base(self, copy=False),)

    options = {
        "__reduce_ex__": reduce,
        "__module__": __name__,
        "__doc__": f"A {name} in shared memory; what is computed of it is a plain {name}.",
    }
    kind: Any = fixed_class(base, options)
    reduction.ForkingPickler.register(kind, _sent)
    return kind


def _sent(table: Any) -> Any:
    memory = table.__dict__.get("_memory")
    return (_opened, (memory,)) if memory is not None else table.__reduce_ex__(_PROTOCOL)
