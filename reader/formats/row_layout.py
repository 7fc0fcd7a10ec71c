"""How the rows of a table lie in a file: a record for each, and behind them what differs in length.

Imports NumPy, the columns and the file. A batch takes rows from all over the table: in a record the
values of a row lie side by side, and come in one or two lines of the processor's cache.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from reader.errors import ConfigError
from reader.formats.arrow_column import ArrowColumn
from reader.formats.arrow_source import ArrowSource
from reader.formats.file_source import FileSource
from reader.formats.table_file import Field, Form, write_at

__all__ = ["RowLayout"]

_SLICE = 1 << 20  # bytes of records that are made at a time, so that they stay in the cache
_STEP = 8  # what differs in length begins at a multiple of it


class _Part(NamedTuple):
    """A field of the samples, and the columns that it is made of."""

    field: str
    columns: list[ArrowColumn]
    is_joined: bool  # columns of single numbers side by side

    @property
    def shape(self) -> tuple[int, ...]:
        return (len(self.columns),) if self.is_joined else self.columns[0].shape


class RowLayout:
    """The records of a table.

    Args:
        source: of the rows.
        fields: by name of each field the name of its column, or those of its columns.
        fill_null: what stands for nulls, by the name of a column or field.
        as_dtype: what values are given as, by the name of a column or field.
        categories: what codes mean, by the name of a column or field.
        fill_unknown: the codes of other values, by the name of a column or field.

    Raises:
        ConfigError: columns that arrays cannot hold, or that do not fit together in a field.
    """

    def __init__(
        self,
        source: ArrowSource,
        fields: Mapping[str, str | Sequence[str]],
        fill_null: Mapping[str, Any],
        as_dtype: Mapping[str, Any],
        categories: Mapping[str, Sequence[Any]],
        fill_unknown: Mapping[str, Any],
    ) -> None:
        self._source = source
        options = (fill_null, as_dtype, categories, fill_unknown)
        self._parts = []
        for field, names in fields.items():
            columns = [
                ArrowColumn(source, name, *(given.get(name, given.get(field)) for given in options))
                for name in ([names] if isinstance(names, str) else names)
            ]
            part = _Part(field, columns, not isinstance(names, str))
            if part.is_joined:
                _check_joined(part)
            self._parts.append(part)
        self._names = list(
            dict.fromkeys(each.name for part in self._parts for each in part.columns)
        )
        # the widest first, so that nothing lies between them
        kinds = [(str(number), *_in_record(part)) for number, part in enumerate(self._parts)]
        kinds.sort(key=lambda kind: -kind[1].itemsize)
        try:
            self._record = np.dtype(kinds, align=True)
        except ValueError as error:  # a list may say to have 2**31 items
            raise ConfigError(
                f"a row of {source.name} is too large for an array: {error}. Leave the widest"
                " columns out by columns="
            ) from error
        self._size = max(1, self._record.itemsize)  # no file has no bytes

    @property
    def nbytes(self) -> int:
        """How many bytes the records take, without what differs in length."""
        return self._source.count * self._size

    def mapped(self) -> Form | None:
        """Return how the rows lie in the source's own file; None: it cannot be used as it is."""
        if not isinstance(self._source, FileSource):
            return None
        if any(part.is_joined or not part.columns[0].is_plain for part in self._parts):
            return None
        found = self._source.places([part.columns[0].name for part in self._parts])
        if found is None:
            return None
        places, nbytes = found
        fields = [
            self._field(part, place, part.columns[0].dtype.itemsize * math.prod(part.shape))
            for part, place in zip(self._parts, places)
        ]
        return Form(self._source.count, fields, nbytes)

    def write(
        self,
        fd: int,
        check_room: Callable[[int], None] | None = None,
        note: Callable[[int, int], None] | None = None,
    ) -> Form:
        """Write all rows into an empty file, and return how they lie there.

        Args:
            fd: of the file.
            check_room: called with the bytes of the file before it has that many; raises where
                there is no space. None: nothing is called.
            note: called with where bytes that are written begin and end. None: nothing is called.
        """
        size = self._size
        most = max(1, min(1 << 16, _SLICE // size))
        memory = np.zeros(most * size, np.uint8)
        records = np.ndarray(most, self._record, memory)
        row, end = 0, self.nbytes
        for batch in self._source.batches(self._names, most):
            found = dict(zip(self._names, batch.columns))
            rows = records[: batch.num_rows]
            for number, part in enumerate(self._parts):
                target = rows[str(number)]
                if part.columns[0].kind == "numbers":
                    for place, column in enumerate(part.columns):
                        into = target[:, place] if part.is_joined else target
                        into[...] = column.numbers(found[column.name])
                    continue
                pieces, begins, lengths = part.columns[0].pieces(found[part.columns[0].name])
                target[:, 1] = lengths
                for place, content in zip((0, *range(2, target.shape[1])), pieces):
                    before, end = end, -(-end // _STEP) * _STEP
                    if check_room is not None:
                        check_room(end + len(content))
                    write_at(fd, content, end)
                    target[:, place] = end if place else begins + end
                    end += len(content)
                    if note is not None:
                        note(before, end)
            write_at(fd, memory[: batch.num_rows * size], row * size)
            if note is not None:
                note(row * size, (row + batch.num_rows) * size)
            row += batch.num_rows
        return Form(self._source.count, self._fields(), end)

    def form_of(self, told: Any) -> Form | None:
        """Return the form that a file says to have; None: this layout writes no such form.

        Nothing of it is believed but what codes mean, and how many bytes rows of differing length
        take: all else is known.
        """
        fields = self._fields()
        try:
            count, told_fields, nbytes = told
            categories = [field[-1] for field in told_fields]
            # as texts, in which 1, 1.0 and true differ
            is_known = json.dumps([field[:-1] for field in told_fields]) == json.dumps(
                [field[:-1] for field in fields]
            )
        except (LookupError, RecursionError, TypeError, ValueError):
            return None
        are_numbers = type(nbytes) is int and type(count) is int
        if not (is_known and are_numbers and count == self._source.count and nbytes >= self.nbytes):
            return None
        if not all(part.columns[0].holds(each) for part, each in zip(self._parts, categories)):
            return None
        made = [field._replace(categories=each) for field, each in zip(fields, categories)]
        return Form(count, made, nbytes)

    def _fields(self) -> list[Field]:
        known: Any = self._record.fields
        places = [known[str(number)][1] for number in range(len(self._parts))]
        return [self._field(part, place, self._size) for part, place in zip(self._parts, places)]

    def _field(self, part: _Part, offset: int, step: int) -> Field:
        first = part.columns[0]
        return Field(
            part.field, first.kind, first.dtype.name, part.shape, offset, step, first.categories
        )


def _in_record(part: _Part) -> tuple[np.dtype[Any], tuple[int, ...]]:
    """Return the type of a field's values in the record, and how many it has."""
    first = part.columns[0]
    if first.kind != "numbers":
        return np.dtype(np.int64), (2 + first.kind.count(" of "),)
    return first.dtype, part.shape


def _check_joined(part: _Part) -> None:
    """Raise ConfigError where the columns of a field are not single numbers of one type."""
    for column in part.columns:
        if column.kind != "numbers" or column.shape or column.categories is not None:
            raise ConfigError(
                f"the field {part.field!r} has several columns, which must be single numbers, and"
                f" {column.name!r} is not: make it a field of its own"
            )
    first = part.columns[0]
    for column in part.columns:
        if column.dtype != first.dtype:
            raise ConfigError(
                f"the columns of the field {part.field!r} must have one type, and {first.name!r} is"
                f" {first.dtype} and {column.name!r} {column.dtype}: pass"
                f' as_dtype={{{part.field!r}: "float32"}} or another'
            )
