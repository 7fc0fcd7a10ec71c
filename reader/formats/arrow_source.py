"""Where tables come from: what any source offers, and tables that are in memory already.

pyarrow is imported here, when a table is opened. A source reads no row before it is asked for
batches, and never changes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from reader.errors import ConfigError
from reader.formats.arrow_types import asked_types, no_such_column, select

__all__ = ["ArrowSource", "TableSource", "pyarrow"]

_LEAST = (14, 0, 1)  # before it, a type of an extension was unpickled


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
    """A table: the types of the columns that are asked for, how many rows it has, and the rows.

    Attributes:
        name: how messages call it.
        names: of all its columns.
        types: the Arrow type of each column that is asked for, by name, in their order.
        count: how many rows it has.

    Raises:
        ConfigError: a column that is asked for is missing.
    """

    def __init__(
        self, name: str, names: Sequence[str], types: dict[str, Any | None], count: int
    ) -> None:
        self.name = name
        self.names = list(names)
        for column, type_ in types.items():
            if type_ is None:
                raise no_such_column("columns", column, name, self.names)
        self.types: dict[str, Any] = types
        self.count = count

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """Yield the rows of some columns, in order, as valid record batches of Arrow.

        Raises:
            DatasetError: a file is damaged, or has changed since it was opened.
            ConfigError: a table in memory is not valid.
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
            if name not in self.types and name not in self.names:
                raise no_such_column(argument, name, self.name, list({*self.types, *self.names}))


class TableSource(ArrowSource):
    """A table in memory.

    Args:
        table: of Arrow.
        asked: the names of the columns that are asked for; None: all.
        names: of all columns, where the table has fewer of them; None: as the table's.
    """

    def __init__(
        self, table: Any, asked: Sequence[str] | None, names: Sequence[str] | None = None
    ) -> None:
        types = asked_types(pyarrow(), table.schema, asked, "the table")
        super().__init__("the table", names or table.schema.names, types, table.num_rows)
        self._table = table

    def batches(self, names: Sequence[str], most_rows: int) -> Iterator[Any]:
        """See ArrowSource."""
        pa = pyarrow()
        try:
            selected = select(pa, self._table, names)
        except pa.ArrowException as error:
            raise ConfigError(f"the table is not valid: {error}. Make it anew") from error
        yield from selected.to_batches(max_chunksize=most_rows)
