"""A dict whose keys and values lie in shared memory.

Imports the core's mapping and table of keys, and the layout. A SharedDict owns its memory together
with all its copies, in any process.
"""

from __future__ import annotations

import decimal
import itertools
import numbers
import struct
import sys
from collections.abc import ItemsView, Iterator, KeysView, Mapping, ValuesView
from multiprocessing import reduction
from typing import Any

import numpy as np

from reader._core.shared.key_table import KeyTable, slots_for
from reader._core.shared.value_mapping import ValueMapping
from reader.errors import ConfigTypeError, got
from reader.sharing.layout import Layout, open_values, plan_values
from reader.sharing.memory_file import Bytes, MemoryFile, Part, part_of

__all__ = ["SharedDict", "share_dict"]

_SHOWN = 4  # items of a repr
_LIMITS = np.iinfo(np.int64)
_KEYS = "Keys are strings, bytes, ints, floats, None, and tuples of those"


class SharedDict(ValueMapping, Mapping[Any, Any]):
    """A dict that cannot be changed; each access makes the value anew.

    Made by `reader.share`. Keys have the original dict's order, and it equals a dict of the same
    keys and values.
    """

    def __init__(self, memory: MemoryFile, key_kind: str, keys: Layout, values: Layout) -> None:
        parts = memory.parts
        slots, content, *ends = parts[: _KEY_PARTS[key_kind]]
        table = KeyTable(
            slots.view(np.uint32),
            content,
            ends[0].view(np.uint64) if ends else None,
            0 if ends else _INT,
        )
        self._keys: Any = open_values(keys, parts)
        super().__init__(key_kind, table, open_values(values, parts), _STANDS_FOR[key_kind])
        self._memory, self._sent = memory, (memory, key_kind, keys, values)

    __getitem__ = ValueMapping.__getitem__
    __contains__ = ValueMapping.__contains__
    get = ValueMapping.get
    __hash__ = None  # type: ignore[assignment]  # as a dict

    def __iter__(self) -> Iterator[Any]:
        return map(self._keys.__getitem__, range(len(self)))

    def __reversed__(self) -> Iterator[Any]:
        return map(self._keys.__getitem__, reversed(range(len(self))))

    def keys(self) -> KeysView[Any]:
        """Return a view of the keys, as a dict does."""
        return _Keys(self)

    def values(self) -> ValuesView[Any]:
        """Return a view of the values, as a dict does."""
        return _Values(self)

    def items(self) -> ItemsView[Any, Any]:
        """Return a view of the pairs, as a dict does."""
        return _Items(self)

    @property
    def nbytes(self) -> int:
        """How many bytes of memory it takes, once for all processes."""
        return self._memory.nbytes

    def copy(self) -> dict[Any, Any]:
        """Return a plain dict with the items."""
        return dict(self.items())

    def __or__(self, other: Any) -> dict[Any, Any]:
        return self.copy() | dict(other) if isinstance(other, Mapping) else NotImplemented

    def __ror__(self, other: Any) -> dict[Any, Any]:
        return dict(other) | self.copy() if isinstance(other, Mapping) else NotImplemented

    def __setitem__(self, key: Any, value: Any) -> None:
        raise TypeError(_FIXED)

    def __delitem__(self, key: Any) -> None:
        raise TypeError(_FIXED)

    def __getattr__(self, name: str) -> Any:
        """Raise an error with the remedy for methods that would change it."""
        if name in ("clear", "pop", "popitem", "setdefault", "update"):
            raise AttributeError(_FIXED)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __copy__(self) -> SharedDict:
        return self

    def __deepcopy__(self, memo: Any) -> SharedDict:
        return self  # it is immutable

    def __reduce__(self) -> Any:
        return share_dict, (self.copy(),)

    def __repr__(self) -> str:
        first = [f"{key!r}: {self[key]!r}" for key in itertools.islice(self, _SHOWN)]
        if len(self) > _SHOWN:
            first.append("...")
        return f"<shared dict of {len(self):,} items: {', '.join(first)}>"


class _View:
    """Methods of a shared dict's views besides those of any mapping."""

    _mapping: Any

    def __reversed__(self) -> Iterator[Any]:
        return map(self._item, reversed(self._mapping))

    def _item(self, key: Any) -> Any:
        return key


class _Keys(_View, KeysView[Any]):
    pass


class _Values(_View, ValuesView[Any]):
    def _item(self, key: Any) -> Any:
        return self._mapping[key]


class _Items(_View, ItemsView[Any, Any]):
    def _item(self, key: Any) -> Any:
        return key, self._mapping[key]


_FIXED = (
    "a shared dict cannot be changed: other processes read it. Change a dict, and pass it to"
    " reader.share"
)


def share_dict(items: Mapping[Any, Any]) -> SharedDict:
    """Return a shared copy of a dict.

    Raises:
        ConfigTypeError: a key has an unsupported type.
    """
    pairs = list(items.items())  # a copy: another thread may change the dict
    keys, values = [key for key, _ in pairs], [value for _, value in pairs]
    key_kind = _kind_of(keys)
    slots = slots_for(len(keys))
    parts: list[Part] = []
    if key_kind == "ints":
        content = np.fromiter(keys, np.int64, len(keys)).view(np.uint8)
        ends = None
    else:
        stands_for: Any = _as_text if key_kind == "text" else _described
        stand_ins = [stands_for(key) for key in keys]
        content = np.frombuffer(b"".join(stand_ins), np.uint8)
        lengths = np.fromiter(map(len, stand_ins), np.uint64, len(keys))
        ends = np.cumsum(lengths, dtype=np.uint64)

    def write(out: Bytes) -> None:
        KeyTable.fill(out.view(np.uint32), content, ends, 0 if ends is not None else _INT)

    parts += [Part(slots * 4, write), part_of(content)]
    if ends is not None:
        parts.append(part_of(ends))
    planned = plan_values(keys, parts), plan_values(values, parts)
    return SharedDict(MemoryFile.made_of(parts), key_kind, *planned)


def _kind_of(keys: list[Any]) -> str:
    kinds = set(map(type, keys))
    if kinds == {int} and all(_LIMITS.min <= key <= _LIMITS.max for key in keys):
        return "ints"
    return "text" if kinds <= {str} else "any"


def _as_text(key: Any) -> bytes | None:
    return str.encode(key, "utf-8", "surrogatepass") if isinstance(key, str) else None


def _as_int(key: Any) -> bytes | None:
    number = _whole(key)
    if number is None or not _LIMITS.min <= number <= _LIMITS.max:
        return None
    return number.to_bytes(_INT, sys.byteorder, signed=True)


def _as_any(key: Any) -> bytes | None:
    """Return bytes that are equal exactly for equal keys."""
    try:
        return _described(key)
    except ConfigTypeError:
        return None


def _described(key: Any) -> bytes:
    if isinstance(key, str):
        return b"s" + str.encode(key, "utf-8", "surrogatepass")
    if isinstance(key, bytes):
        return b"b" + bytes(key)
    if key is None:
        return b"n"
    number = _whole(key)
    if number is not None:
        return b"i%x" % number
    as_float = _as_float(key)
    if as_float is not None:
        return b"f" + struct.pack("d", as_float)
    if isinstance(key, tuple):
        found = [_described(item) for item in key]
        return b"t" + b"".join(b"%d:" % len(each) + each for each in found)
    raise ConfigTypeError(f"a key of the dict cannot be shared: {got(key)}. {_KEYS}")


def _whole(key: Any) -> int | None:
    """Return the int that equals a number; None: there is none."""
    if isinstance(key, (int, np.integer, np.bool_)):
        return int(key)
    number = _as_float(key)
    return int(number) if number is not None and number.is_integer() else None


def _as_float(key: Any) -> float | None:
    """Return the float that equals a number; None: there is none."""
    if isinstance(key, numbers.Complex) and key.imag == 0:
        key = key.real
    if not isinstance(key, (numbers.Real, np.floating, decimal.Decimal)):
        return None
    try:
        number = float(key)
    except (OverflowError, ValueError):
        return None
    return number if number == key else None


_INT = 8  # bytes of an int
_STANDS_FOR: dict[str, Any] = {"text": _as_text, "ints": _as_int, "any": _as_any}
_KEY_PARTS = {"text": 3, "ints": 2, "any": 3}


def _sent(shared: SharedDict) -> Any:
    return SharedDict, shared._sent


# another process gets its memory, plain pickle its items
reduction.ForkingPickler.register(SharedDict, _sent)
