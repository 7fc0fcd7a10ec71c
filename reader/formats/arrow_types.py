"""Types of Arrow: which column a name means, which type holds two, what NumPy calls a number.

Imports nothing but NumPy and the errors; whoever calls has imported pyarrow. Functions alone, which
keep no state.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from reader.errors import ConfigError

__all__ = [
    "asked_types",
    "is_binary",
    "is_text",
    "no_such_column",
    "number_type",
    "of_nulls",
    "path_of",
    "promoted",
    "select",
]

_PICTURE = {"bytes", "path"}  # the fields of a picture, as the library `datasets` writes it


def path_of(pa: Any, schema: Any, name: str, *, is_whole: bool = False) -> list[int] | None:
    """Return where a column lies: its number, then those of fields in structs; None: nowhere.

    A column that has the name is meant first, then a field of a struct: "a.b" is field "b" of "a".
    A column of nulls alone, such as a struct that no row of one file has, has any field, of nulls.
    Of a picture, a struct of "bytes" and "path", the bytes are meant, unless it `is_whole`.

    Raises:
        ConfigError: several columns have the name.
    """
    found = _path_within(pa, list(schema), name)
    if found is None or is_whole:
        return found
    type_ = schema.field(found[0]).type
    for step in found[1:]:
        type_ = type_.field(step).type
    if pa.types.is_struct(type_):
        names = [type_.field(k).name for k in range(type_.num_fields)]
        if set(names) == _PICTURE and len(names) == len(_PICTURE):
            found.append(names.index("bytes"))
    return found


def _path_within(pa: Any, fields: Sequence[Any], name: str) -> list[int] | None:
    names = [field.name for field in fields]
    if names.count(name) > 1:
        raise ConfigError(f"there are two columns {name!r}: give each a name of its own")
    if name in names:
        return [names.index(name)]
    for number, field in enumerate(fields):
        begin = f"{field.name}."
        if pa.types.is_struct(field.type) and name.startswith(begin):
            within = [field.type.field(k) for k in range(field.type.num_fields)]
            found = _path_within(pa, within, name[len(begin) :])
            if found is not None:
                return [number, *found]
        if pa.types.is_null(field.type) and name.startswith(begin):
            return [number]
    return None


def asked_types(
    pa: Any, schema: Any, names: Iterable[str] | None, owner: str
) -> dict[str, Any | None]:
    """Return the types of the columns that are asked for, by name; None for a missing one.

    Args:
        pa: pyarrow.
        schema: of the table.
        names: of the columns; None: all.
        owner: of the schema, for messages.

    Raises:
        ConfigError: several columns have one of the names.
    """
    found: dict[str, Any | None] = {}
    for name in schema.names if names is None else names:
        try:
            path = path_of(pa, schema, name)
        except ConfigError:
            raise ConfigError(
                f"{owner} has two columns {name!r}: give each a name of its own, or leave them out"
                " by columns="
            ) from None
        found[name] = None
        if path is not None:
            type_ = schema.field(path[0]).type
            for step in path[1:]:
                type_ = type_.field(step).type
            found[name] = type_
    return found


def no_such_column(argument: str, name: str, owner: str, names: Sequence[str]) -> ConfigError:
    """Return the error of a name that no column has."""
    near = difflib.get_close_matches(str(name), names, 3) or names[:8]
    return ConfigError(
        f"{argument} names {name!r}, and {owner} has no such column: the nearest of its"
        f" {len(names)} are {', '.join(map(repr, near))}"
    )


def select(pa: Any, table: Any, names: Sequence[str]) -> Any:
    """Return a table of some columns, which are valid.

    What lengths and offsets say is compared with the memory that is there, before anything is read
    by them: they may come from a file. Of numbers that takes no time.

    Raises:
        pyarrow.ArrowInvalid: they are not.
    """
    from pyarrow import compute

    columns: list[Any] = []
    for name in names:
        path = path_of(pa, table.schema, name)
        if path is None:
            raise pa.ArrowInvalid(f"the column {name!r} is missing")
        column = table.column(path[0])
        column.validate(full=not _is_plain(pa.types, column.type))
        columns.append(compute.struct_field(column, path[1:]) if path[1:] else column)
    return pa.Table.from_arrays(columns, names=list(names))


def _is_plain(types: Any, type_: Any) -> bool:
    """Whether nothing in the values of a type is an offset, a place or text."""
    while True:
        if hasattr(type_, "storage_type"):
            type_ = type_.storage_type
        elif types.is_fixed_size_list(type_):
            type_ = type_.value_type
        else:
            break
    is_number = types.is_primitive(type_) or types.is_decimal(type_)
    return bool(is_number or types.is_fixed_size_binary(type_))


def promoted(pa: Any, one: Any, other: Any) -> Any | None:
    """Return the type that holds the values of two; None: there is none.

    Numbers become the wider type, a text or list the longer one, a time the finer unit; a column
    of nulls alone is as the other. Of codes the values must agree.
    """
    types = pa.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    values = [each.value_type if types.is_dictionary(each) else each for each in (one, other)]
    if types.is_dictionary(one) or types.is_dictionary(other):
        are_texts = all(is_text(types, each) for each in values)
        agree = values[0] == values[1] or are_texts or all(map(types.is_integer, values))
        return (one if types.is_dictionary(one) else other) if agree else None
    decimals = [each for each in values if types.is_decimal(each)]
    if len(decimals) == 1:
        rest = values[1] if values[0] is decimals[0] else values[0]
        return decimals[0] if types.is_integer(rest) or types.is_floating(rest) else None
    if is_text(types, one) != is_text(types, other):
        return None
    fields = [pa.schema([("", each)]) for each in values]
    try:
        return pa.unify_schemas(fields, promote_options="permissive").field(0).type
    except pa.ArrowException:
        return None


def of_nulls(pa: Any, type_: Any, leaf: Any) -> Any:
    """Return a type with `leaf` in the place of the type of nulls alone, within lists, too."""
    types, inner, sizes = pa.types, type_, []
    while types.is_list(inner) or types.is_large_list(inner) or types.is_fixed_size_list(inner):
        sizes.append(getattr(inner, "list_size", -1))  # -1: of any length
        inner = inner.value_type
    if not types.is_null(inner):
        return type_
    for size in reversed(sizes):
        leaf = pa.list_(leaf, size)
    return leaf


def number_type(types: Any, type_: Any) -> np.dtype[Any] | None:
    """Return the type of NumPy that holds the numbers of a type of Arrow; None: none does.

    Dates, times and durations are the integers that Arrow stores, in the unit of the column.
    """
    if types.is_boolean(type_):
        return np.dtype(np.bool_)
    if types.is_integer(type_):
        return np.dtype(str(type_))
    if types.is_floating(type_):
        return np.dtype(f"float{type_.bit_width}")
    if types.is_temporal(type_) and not types.is_interval(type_):
        return np.dtype(f"int{type_.bit_width}")
    return None


def is_text(types: Any, type_: Any) -> bool:
    """Whether values are strings."""
    if types.is_nested(type_):
        return False  # its name has those of all its levels
    is_view = str(type_) == "string_view"  # which older releases of pyarrow do not know
    return bool(types.is_string(type_) or types.is_large_string(type_) or is_view)


def is_binary(types: Any, type_: Any) -> bool:
    """Whether values are bytes that differ in length."""
    if types.is_nested(type_):
        return False
    is_view = str(type_) == "binary_view"
    return bool(types.is_binary(type_) or types.is_large_binary(type_) or is_view)
