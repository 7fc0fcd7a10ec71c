"""Immutable subclasses of pandas' classes, for tables in shared memory.

Imports pandas when a class is made. Keeps the classes that it made. A table is fixed once it has
its memory: until then pandas uses the same methods to make it as to change it.
"""

from __future__ import annotations

import copy
import functools
import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

__all__ = ["as_it_is", "fix", "fixed_class"]

# pandas' methods that change a table in place, besides those that take `inplace`
_CHANGING = (
    *("__setitem__", "__delitem__", "insert", "isetitem", "pop", "update", "_update_inplace"),
    *("_set_axis", "_set_value", "_set_item_mgr", "_iset_item_mgr", "__delattr__"),
    "_inplace_method",  # for operators such as +=
)
# attributes that pandas sets while a table is read
_KEPT = ("_cacher", "_item_cache", "_cache", "_is_copy")


def fix(table: Any, memory: Any) -> None:
    """Make a table of a fixed class, and its arrays, refuse changes from now on."""
    name = type(table).__name__.removeprefix("Shared")
    for array in (*table._mgr.arrays, *(vars(axis).get("_data") for axis in table._mgr.axes)):
        if hasattr(array, "_pa_array"):  # the table's columns have this array
            kind: Any = type(array)
            array.__class__ = _fixed_array(name, kind)
        elif isinstance(getattr(array, "_ndarray", None), np.ndarray):
            array._ndarray.setflags(write=False)  # arrays of objects are in the pickle
    object.__setattr__(table, "_memory", memory)


def fixed_class(base: Any, options: dict[str, Any]) -> Any:
    """Return a subclass of DataFrame or Series whose tables can be fixed.

    Args:
        base: the class of pandas.
        options: attributes of the subclass, besides its guards.
    """
    name = base.__name__
    methods = {method: inspect.getattr_static(base, method) for method in dir(base)}
    attributes: dict[str, Any] = {
        method: _guarded(name, found)
        for method, found in methods.items()
        if method in _CHANGING or (method[0] != "_" and _takes_inplace(found))
    }
    for indexer in ("loc", "iloc", "at", "iat"):
        attributes[indexer] = property(_indexer(name, getattr(base, indexer)))
    for axis in base._AXIS_ORDERS:
        plain = inspect.getattr_static(base, axis)
        attributes[axis] = property(_axis(name, plain), plain.__set__)

    def set_attribute(self: Any, attribute: str, value: Any) -> None:
        if _is_fixed(self) and attribute not in _KEPT:
            _refuse(name)
        base.__setattr__(self, attribute, value)

    def get_attrs(self: Any) -> Any:
        found = base.attrs.fget(self)
        return _FixedDict(name, found) if _is_fixed(self) else found

    def get_flags(self: Any) -> Any:
        found = base.flags.fget(self)
        if _is_fixed(self):
            found = type(found)(self, allows_duplicate_labels=found.allows_duplicate_labels)
            found._obj = lambda: _refuse(name)  # the setter asks it for its table
        return found

    def consolidate(self: Any) -> None:
        if not _is_fixed(self):  # the blocks of a fixed table stay where they are
            base._consolidate_inplace(self)

    def finalize(self: Any, *args: Any, **options: Any) -> Any:
        if _is_fixed(self):
            return self  # it already has attrs and flags
        return base.__finalize__(self, *args, **options)

    def construct(*args: Any, **options: Any) -> Any:
        made = base(*args, **options)
        axes = made._mgr.axes
        axes[:] = [axis.view() if _is_nameless(axis) else axis for axis in axes]
        return made

    attributes["_constructor"] = property(lambda _: construct)  # for results of computations
    attributes["__finalize__"] = finalize
    attributes["__setattr__"] = set_attribute
    attributes["attrs"] = property(get_attrs, base.attrs.fset)
    attributes["flags"] = property(get_flags)
    attributes["_consolidate_inplace"] = consolidate
    return type(f"Shared{name}", (base,), {**attributes, **options})


def _is_fixed(table: Any) -> bool:
    return "_memory" in table.__dict__


def _refuse(name: str) -> None:
    raise TypeError(
        f"a shared {name} cannot be changed: other processes read it. Change a {name}, and pass it"
        " to reader.share"
    )


def _takes_inplace(method: Any) -> bool:
    return inspect.isfunction(method) and "inplace" in inspect.signature(method).parameters


def _guarded(name: str, method: Any) -> Any:
    """Return a method that refuses to change a fixed table."""
    changes_always = not _takes_inplace(method)

    @functools.wraps(method)
    def guard(self: Any, *args: Any, **options: Any) -> Any:
        # pandas has its own object for a missing argument
        inplace = changes_always or options.get("inplace")
        if _is_fixed(self) and isinstance(inplace, (bool, np.bool_)) and inplace:
            _refuse(name)
        return method(self, *args, **options)

    return guard


def _indexer(name: str, plain: Any) -> Callable[[Any], Any]:
    """Return a getter of an indexer, such as `loc`, that refuses to write into a fixed table."""

    def get(self: Any) -> Any:
        found = plain.fget(self)
        if _is_fixed(self):
            kind: Any = type(found)
            found = _fixed_indexer(name, kind)(found.name, self)
        return found

    return get


@functools.cache
def _fixed_indexer(name: str, kind: Any) -> Any:
    def refuse(*_: Any) -> None:
        _refuse(name)

    return type(f"Fixed{kind.__name__}", (kind,), {"__setitem__": refuse, "__module__": __name__})


@functools.cache
def _fixed_array(name: str, kind: Any) -> Any:
    """Return a class of Arrow arrays that refuse writes; their copies do not."""

    def make(_: Any, *args: Any, **options: Any) -> Any:
        made = object.__new__(kind)
        if args or options:  # pandas makes an empty one too
            made.__init__(*args, **options)
        return made

    def refuse(*_: Any) -> None:
        _refuse(name)

    def reduce(self: Any, _: Any = None) -> Any:
        return as_it_is, (self.view(),)

    methods = {"__new__": make, "__setitem__": refuse, "__reduce_ex__": reduce}
    return type(f"Fixed{kind.__name__}", (kind,), {**methods, "__module__": __name__})


def _axis(name: str, plain: Any) -> Callable[[Any], Any]:
    """Return a getter of an axis: for a fixed table, a view that takes no name."""

    def get(self: Any) -> Any:
        found = plain.__get__(self, type(self))
        if _is_fixed(self):
            found = found.view()
            # the setter of a name asks the first, renaming in place calls the second; the setter of
            # `names` does neither, and renames only the view
            found._no_setting_name = _Refusal(name)
            found._set_names = lambda *_, **__: _refuse(name)
        return found

    return get


def _is_nameless(axis: Any) -> bool:
    return isinstance(vars(axis).get("_no_setting_name"), _Refusal)


class _Refusal:
    """Refuses a change when pandas asks whether it may be made."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __bool__(self) -> bool:
        _refuse(self._name)
        return True


def as_it_is(value: Any) -> Any:
    """Return the value: a pickled table calls this with the plain table."""
    return value


class _FixedDict(dict[Any, Any]):
    """A dict that cannot be changed; copies of it can."""

    def __init__(self, name: str, items: dict[Any, Any]) -> None:
        super().__init__(items)
        self._name = name

    def _fixed(self, *_: Any, **__: Any) -> Any:
        _refuse(self._name)

    __setitem__ = __delitem__ = update = setdefault = pop = popitem = clear = __ior__ = _fixed

    def __reduce__(self) -> Any:
        return dict, (dict(self),)

    def __deepcopy__(self, memo: Any) -> Any:
        return copy.deepcopy(dict(self), memo)
