"""How Python values lie in shared memory: planned as parts, and opened as the core's values.

Imports the core's values and the parts of a file in memory. Keeps no state. Values of one type lie
side by side: numbers as arrays, strings as UTF-8 one after the other, tuples and dicts of one form
field by field. Values of other types are pickled one by one.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

import reader._core.shared.values as values
from reader.errors import ConfigError, got
from reader.sharing.memory_file import Bytes, Part, part_of

__all__ = ["Layout", "narrowest", "open_values", "plan_values"]

# argument of `open_values`: the name of a kind, numbers of parts, and layouts of nested values
Layout = tuple[Any, ...]
Numbers = npt.NDArray[Any]

_DEEPEST = 32  # deeper values are pickled: they may contain themselves
_FIELDS = 16  # tuples and lists of more items lie one after the other, not field by field
_KINDS = 255  # as many as a byte distinguishes
_SAMPLE = 1000
_MOST_PARTS = 2000  # of one object: repeated references to one list would never end
_PROTOCOL = 5


def plan_values(items: Sequence[Any], parts: list[Part], depth: int = 0) -> Layout:
    """Add parts that hold the items of a list or tuple; returns how they lie.

    Raises:
        ConfigError: an item of another type cannot be pickled.
    """
    if not items:
        return ("constant", None, 0)
    if len(parts) > _MOST_PARTS:
        return _plan_pickled(items, parts)
    kinds = set(map(type, items))
    is_flat = kinds <= {type(None), bool, int, float}
    if not is_flat and _repeats(items):
        return _plan_chosen(items, parts, depth)
    if dict in kinds and depth < _DEEPEST:
        return _plan_mixed(items, parts, [_form(item) for item in items], depth)
    if len(kinds) > 1:
        return _plan_mixed(items, parts, list(map(type, items)), depth)
    return _plan_one_kind(items, parts, kinds.pop(), depth)


def open_values(layout: Layout, parts: Sequence[Bytes]) -> Any:
    """Return the values that lie in some parts."""
    kind, *rest = layout
    if kind == "constant":
        return values.Constant(*rest)
    if kind == "numbers":
        code, number = rest
        return values.Numbers(code, parts[number])
    if kind in _SPANS:
        ends, number = rest
        return _SPANS[kind](_open_places(ends, parts), parts[number])
    if kind == "chosen":
        numbers, others = rest
        return values.Chosen(open_values(numbers, parts), open_values(others, parts))
    if kind == "mixed":
        number, numbers, forms = rest
        opened = tuple(open_values(each, parts) for each in forms)
        return values.Mixed(parts[number], open_values(numbers, parts), opened)
    if kind == "records":
        count, fields, keys, is_list = rest
        opened = tuple(open_values(each, parts) for each in fields)
        return values.Records(count, opened, keys, is_list)
    ends, items, is_list = rest
    return values.Ragged(_open_places(ends, parts), open_values(items, parts), is_list)


_SPANS = {
    "ascii": values.Ascii,
    "text": values.Text,
    "bytes": values.Bytes,
    "pickled": values.Pickled,
}


def narrowest(numbers: Numbers) -> Numbers:
    """Return ints in the narrowest signed type that holds them all."""
    low, high = (int(numbers.min()), int(numbers.max())) if numbers.size else (0, 0)
    for kind in (np.int8, np.int16, np.int32):
        if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max:
            return numbers.astype(kind)
    return numbers


def _plan_one_kind(items: Sequence[Any], parts: list[Part], kind: type, depth: int) -> Layout:
    if kind is type(None):
        return ("constant", None, len(items))
    if kind is bool:
        return _plan_numbers(np.fromiter(items, np.bool_, len(items)), parts)
    if kind is float:
        return _plan_numbers(np.fromiter(items, np.float64, len(items)), parts)
    if kind is int:
        try:
            found = np.fromiter(items, np.int64, len(items))
        except OverflowError:
            return _plan_pickled(items, parts)
        return _plan_numbers(narrowest(found), parts)
    if kind is str:
        ends = np.empty(len(items), np.int64)
        name = "ascii" if values.text_ends(items, ends) else "text"
        return _plan_spans(name, ends, lambda out: values.write_text(items, out), parts)
    if kind is bytes:
        ends = _ends_of(items)
        return _plan_spans("bytes", ends, lambda out: values.write_bytes(items, out), parts)
    if kind in (tuple, list) and depth < _DEEPEST:
        return _plan_sequences(items, parts, kind is list, depth)
    return _plan_pickled(items, parts)


def _plan_sequences(items: Sequence[Any], parts: list[Part], is_list: bool, depth: int) -> Layout:
    lengths = set(map(len, items))
    if len(lengths) == 1 and 0 < next(iter(lengths)) <= _FIELDS:
        fields = (
            [item[place] for item in items]
            for place in range(next(iter(lengths)))
        )  # fmt: skip
        return _plan_records(items, parts, fields, None, is_list, depth)
    ends = _plan_places(_ends_of(items), parts)
    inner = list(itertools.chain.from_iterable(items))
    return ("ragged", ends, plan_values(inner, parts, depth + 1), is_list)


def _plan_records(
    items: Sequence[Any],
    parts: list[Part],
    fields: Iterable[list[Any]],
    keys: tuple[Any, ...] | None,
    is_list: bool,
    depth: int,
) -> Layout:
    planned = tuple(plan_values(field, parts, depth + 1) for field in fields)
    return ("records", len(items), planned, keys, is_list)


def _plan_mixed(items: Sequence[Any], parts: list[Part], forms: list[Any], depth: int) -> Layout:
    """Plan items of several forms: a type, or the keys of a dict."""
    by_form: dict[Any, list[Any]] = {}
    numbers = np.empty(len(items), np.int64)
    kinds = np.empty(len(items), np.uint8)
    codes: dict[Any, int] = {}
    for place, (item, form) in enumerate(zip(items, forms)):
        alike = by_form.setdefault(form, [])
        code = codes.setdefault(form, len(codes))
        if code >= _KINDS:
            return _plan_pickled(items, parts)
        kinds[place], numbers[place] = code, len(alike)
        alike.append(item)
    planned = tuple(_plan_form(form, alike, parts, depth) for form, alike in by_form.items())
    if len(planned) == 1:
        return planned[0]
    parts.append(part_of(kinds))
    return ("mixed", len(parts) - 1, _plan_numbers(narrowest(numbers), parts), planned)


def _plan_form(form: Any, items: list[Any], parts: list[Part], depth: int) -> Layout:
    if isinstance(form, type):
        return plan_values(items, parts, depth + 1)
    keys = tuple(items[0])
    is_plain = all(type(key) in (str, int) for key in keys)
    # other values may look alike without being equal, such as NaN
    if not is_plain and any(key not in item for item in items for key in keys):
        return _plan_pickled(items, parts)
    fields = ([item[key] for item in items] for key in keys)
    return _plan_records(items, parts, fields, keys, False, depth)


def _form(item: Any) -> Any:
    """Return the form that items must share to lie side by side."""
    if type(item) is not dict:
        return type(item)
    # 1 and True are equal keys but not the same; neither are 0.0 and -0.0
    return tuple((type(key), key if type(key) in (str, int) else repr(key)) for key in item)


def _plan_chosen(items: Sequence[Any], parts: list[Part], depth: int) -> Layout:
    """Plan items of which many are the same object."""
    places: dict[int, int] = {}
    others: list[Any] = []
    numbers = np.empty(len(items), np.int64)
    for place, item in enumerate(items):
        number = places.setdefault(id(item), len(others))
        if number == len(others):
            others.append(item)
        numbers[place] = number
    planned = _plan_numbers(narrowest(numbers), parts)
    return ("chosen", planned, plan_values(others, parts, depth))


def _repeats(items: Sequence[Any]) -> bool:
    """Whether most of some sampled items are repeated objects."""
    if len(items) < 2:
        return False
    step = max(1, len(items) // _SAMPLE)
    seen = items[::step]
    return len(set(map(id, seen))) * 2 <= len(seen)


def _plan_numbers(numbers: Numbers, parts: list[Part]) -> Layout:
    parts.append(part_of(numbers))
    return ("numbers", numbers.dtype.str[1:], len(parts) - 1)


def _plan_pickled(items: Sequence[Any], parts: list[Part]) -> Layout:
    try:
        pickled = [pickle.dumps(item, _PROTOCOL) for item in items]
    except Exception as error:  # many types
        raise ConfigError(
            f"an item of {got(items)} cannot be shared, since it cannot be pickled: {error!r}."
            " Share what it is made of: numbers, strings, tuples, lists and dicts"
        ) from error
    ends = _ends_of(pickled)
    return _plan_spans("pickled", ends, lambda out: values.write_bytes(pickled, out), parts)


def _plan_spans(name: str, ends: Numbers, write: Any, parts: list[Part]) -> Layout:
    nbytes = int(ends[-1]) if len(ends) else 0
    places = _plan_places(ends, parts)
    parts.append(Part(nbytes, write))
    return (name, places, len(parts) - 1)


def _plan_places(ends: Numbers, parts: list[Part]) -> tuple[int, int]:
    """Add a part with the items' ends; returns its number, and the bytes of each end."""
    width = 4 if not len(ends) or ends[-1] <= np.iinfo(np.uint32).max else 8
    parts.append(part_of(ends.astype(np.uint32 if width == 4 else np.uint64)))
    return len(parts) - 1, width


def _open_places(places: tuple[int, int], parts: Sequence[Bytes]) -> Any:
    number, width = places
    return values.Places(parts[number], width)


def _ends_of(items: Sequence[Any]) -> Numbers:
    lengths = np.fromiter(map(len, items), np.int64, len(items))
    ends: Numbers = np.cumsum(lengths)
    return ends
