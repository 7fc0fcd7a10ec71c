"""A list or tuple whose items lie in shared memory.

Imports the core's sequence and the layout. A SharedList owns its memory together with all its
copies, in any process.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from multiprocessing import reduction
from typing import Any, SupportsIndex, cast

import numpy as np

from reader._core.shared.value_sequence import ValueSequence
from reader.sharing.layout import Layout, open_values, plan_values
from reader.sharing.memory_file import MemoryFile, Part

__all__ = ["SharedList", "share_list"]

_SHOWN = 6  # items of a repr


class SharedList(ValueSequence, Sequence[Any]):
    """A list or tuple that cannot be changed; each access makes the item anew.

    Made by `reader.share`. Slices, sums and products are lists or tuples, as of the original; it
    equals a list or tuple of the same items.
    """

    def __init__(self, memory: MemoryFile, layout: Layout, is_tuple: bool) -> None:
        super().__init__(open_values(layout, memory.parts), is_tuple)
        self._memory, self._layout = memory, layout

    __iter__ = ValueSequence.__iter__

    def tolist(self) -> list[Any]:
        """Return the items as a plain list."""
        return list(self)

    def copy(self) -> list[Any]:
        """Return the items as a plain list."""
        return list(self)

    @property
    def nbytes(self) -> int:
        """How many bytes of memory the items take, once for all processes."""
        return self._memory.nbytes

    def _own(self) -> Any:
        return self[:]

    def _is_kin(self, other: Any) -> bool:
        """Whether another sequence may be equal, or be added."""
        if isinstance(other, SharedList):
            return other.is_tuple == self.is_tuple
        return isinstance(other, tuple if self.is_tuple else list)

    def __eq__(self, other: object) -> bool:
        if not self._is_kin(other):
            return NotImplemented
        theirs = cast(Sequence[Any], other)
        return len(self) == len(theirs) and all(map(_is_equal, self, theirs))

    def __hash__(self) -> int:
        return hash(self._own())  # a tuple has one, a list raises

    def __lt__(self, other: Any) -> bool:
        return self._own() < _owned(other) if self._is_kin(other) else NotImplemented

    def __le__(self, other: Any) -> bool:
        return self._own() <= _owned(other) if self._is_kin(other) else NotImplemented

    def __gt__(self, other: Any) -> bool:
        return self._own() > _owned(other) if self._is_kin(other) else NotImplemented

    def __ge__(self, other: Any) -> bool:
        return self._own() >= _owned(other) if self._is_kin(other) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._own() + _owned(other) if self._is_kin(other) else NotImplemented

    def __radd__(self, other: Any) -> Any:
        return _owned(other) + self._own() if self._is_kin(other) else NotImplemented

    def __mul__(self, times: SupportsIndex) -> Any:
        return self._own() * times

    __rmul__ = __mul__

    def __setitem__(self, index: Any, value: Any) -> None:
        raise TypeError(_fixed(self))

    def __delitem__(self, index: Any) -> None:
        raise TypeError(_fixed(self))

    def __getattr__(self, name: str) -> Any:
        """Raise an error with the remedy for methods that would change it."""
        if name in _CHANGING:
            raise AttributeError(_fixed(self))
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """Return a new array of the items. ValueError with `copy=False`."""
        if copy is False:
            raise ValueError("items are made anew: an array of them is always a copy")
        return np.array(self._own(), dtype)

    def __copy__(self) -> SharedList:
        return self

    def __deepcopy__(self, memo: Any) -> SharedList:
        return self  # it is immutable

    def __reduce__(self) -> Any:
        return share_list, (self._own(),)

    def __repr__(self) -> str:
        first = [repr(item) for item in itertools.islice(self, _SHOWN)]
        if len(self) > _SHOWN:
            first.append("...")
        return f"<shared {self.kind} of {len(self):,} items: {', '.join(first)}>"


_CHANGING = ("append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort")


def share_list(items: Sequence[Any]) -> SharedList:
    """Return a shared copy of a list or tuple."""
    is_tuple = isinstance(items, tuple)
    items = items if is_tuple else list(items)  # a copy: another thread may change it
    parts: list[Part] = []
    layout = plan_values(items, parts)
    return SharedList(MemoryFile.made_of(parts), layout, is_tuple)


def _is_equal(one: Any, other: Any) -> bool:
    return one is other or bool(one == other)


def _owned(value: Any) -> Any:
    return value[:] if isinstance(value, SharedList) else value


def _fixed(shared: SharedList) -> str:
    return (
        f"a shared {shared.kind} cannot be changed: other processes read it. Change a list, and"
        " pass it to reader.share"
    )


def _sent(shared: SharedList) -> Any:
    return SharedList, (shared._memory, shared._layout, shared.is_tuple)


# another process gets its memory, plain pickle its items
reduction.ForkingPickler.register(SharedList, _sent)
