"""Encode and decode an exception as bytes: same class, arguments, attributes, notes and chain.

Any method of the user's exception may be broken, so every call of one is guarded, and fields are
read through the descriptors of `BaseException`. Imports `reader.errors` and the other modules of
this room; keeps no state, and the bytes belong to the caller.
"""

from __future__ import annotations

import builtins
import pickle
import reprlib
from dataclasses import dataclass, field
from typing import Any

from reader.errors import InternalError
from reader.exceptions.exception_class import (
    FROM_USER,
    MAX_TEXT,
    as_exception_class,
    attempt,
    descriptors,
    find_by_name,
    find_by_walk,
    guarded,
    is_unset,
    names,
    static_base,
    type_name,
    user_defines,
)
from reader.exceptions.exception_values import TooLarge, class_by_value, dump, load

__all__ = ["add_note", "cause_of", "decode", "encode"]

_MAX_NODES = 256  # exceptions in one chain; the others of a longer chain are lost
_MAX_BYTES = 8 << 20  # all values together: AttributeError.obj, for one, is often the dataset
_PLAIN = (str, bytes, int, float, bool, type(None))

_dict_of: Any = BaseException.__dict__["__dict__"]
_args_of: Any = BaseException.__dict__["args"]
cause_of: Any = BaseException.__dict__["__cause__"]  # read and write past any override
_context_of: Any = BaseException.__dict__["__context__"]
_suppress_of: Any = BaseException.__dict__["__suppress_context__"]
_Group: Any = getattr(builtins, "BaseExceptionGroup", ())  # from Python 3.11

_repr = reprlib.Repr()
_repr.maxstring = _repr.maxother = _repr.maxlong = MAX_TEXT
_repr.maxlist = _repr.maxtuple = _repr.maxdict = _repr.maxset = _repr.maxarray = 100


@dataclass(slots=True)
class _Value:
    """One pickled value, and the text that replaces it if it cannot be pickled or unpickled."""

    kind: str
    text: str
    pickled: bytes | None
    why: str = ""  # the reason, if it could not be pickled


@dataclass(slots=True)
class _Node:
    """One exception of the chain. Exceptions refer to each other by their position in the chain."""

    names: list[tuple[str, str]]  # (module, qualname) of its class and its bases
    is_importable: bool = True  # whether the worker can import it
    class_id: int = 0  # address of the class: the same in a trainer that forked the worker
    by_value: list[bytes] = field(default_factory=list)  # the class, if it is not importable
    whole: bytes | None = None  # the pickled exception, if its type is an extension type
    text: str = ""  # its str()
    args: list[_Value] = field(default_factory=list)
    members: list[tuple[str, _Value]] = field(default_factory=list)  # fields in C, and __slots__
    attributes: list[tuple[str, _Value]] = field(default_factory=list)
    state: _Value | None = None  # for the user's own __setstate__
    group: tuple[str, list[int]] | None = None  # message and exceptions of an exception group
    cause: int | None = None
    context: int | None = None
    suppress_context: bool = False
    notes: list[str] = field(default_factory=list)  # this package's: parts that are lost

    def fill(self, exc: BaseException, encoder: _Encoder) -> None:
        """Take all parts of `exc`; those that came before an error stay."""
        cls = type(exc)
        self.text = guarded(str, exc)
        self.class_id = id(cls)
        self.is_importable = find_by_name(*self.names[0], may_import=False) is cls
        if not self.is_importable:
            forms = attempt(class_by_value, cls) or []
            self.by_value = [form for form in forms if encoder.within_limit(form) is not None]
        if static_base(cls).__module__ != "builtins":
            self.whole = encoder.within_limit(attempt(pickle.dumps, exc))
        self.suppress_context = _suppress_of.__get__(exc)
        self.cause = encoder.link(self, "cause", cause_of.__get__(exc))
        self.context = encoder.link(self, "context", _context_of.__get__(exc))
        if isinstance(exc, _Group):
            members = [encoder.link(self, "part", e) for e in _Group.exceptions.__get__(exc)]
            message = str.__str__(_Group.message.__get__(exc))
            self.group = (message, [m for m in members if m is not None])
        else:
            self.args = [encoder.value(arg) for arg in _args_of.__get__(exc)]
        for name, descriptor in descriptors(cls).items():
            value, is_set = _read(descriptor, exc)
            if is_set:
                self.members.append((name, encoder.value(value)))
        for name, value in list(_dict_of.__get__(exc).items()):
            if type(name) is str:
                self.attributes.append((name, encoder.value(value)))
        if user_defines(cls, "__setstate__"):
            state: Any = _dict_of.__get__(exc)
            if user_defines(cls, "__getstate__"):
                state = exc.__getstate__()  # type: ignore[attr-defined,unused-ignore]
            self.state = encoder.value(state)


def encode(exc: BaseException) -> bytes:
    """Turn `exc`, with its arguments, attributes, notes, causes and contexts, into bytes.

    Never raises, whatever `exc` is. It calls the user's `__str__` and `__reduce__`, guarded. An
    argument or attribute becomes its `repr` if it cannot be pickled, or if the sum would exceed 8
    MiB.
    """
    try:
        return pickle.dumps(_Encoder(exc).nodes)
    except BaseException as failure:
        text = guarded(str, exc)
        note = (
            f"reader: the worker raised {type_name(type(exc))}; all but its text is lost, because"
            f" pickling it raised {type_name(type(failure))}"
        )
        name = "Exception" if isinstance(exc, Exception) else "BaseException"
        args = [_Value("str", text, pickle.dumps(text))]
        node = _Node([("builtins", name)], text=text, args=args, notes=[note])
        return pickle.dumps([node])


def decode(data: bytes) -> BaseException:
    """Rebuild an exception from `encode`.

    Its class is found by import, or among the classes in this process, or by value. If all fail,
    the nearest base class replaces it, and a note names the type. The user's `__init__` and
    `__new__` are not called; the user's `__setstate__` is.

    Never raises, whatever the user's exception does. Bytes that are not from `encode` give an
    `InternalError`.
    """
    try:
        return _Decoder(pickle.loads(data)).exceptions[0]
    except FROM_USER as failure:
        error = InternalError(f"the failure of a worker cannot be read: {guarded(repr, failure)}")
        error.__cause__ = failure
        return error


def add_note(exc: BaseException, note: str) -> None:
    """Add a note as `BaseException.add_note` does (Python 3.11), once, and past any override."""
    attributes = _dict_of.__get__(exc)
    notes = attributes.get("__notes__", ())
    if not isinstance(notes, (list, tuple)):
        notes = [guarded(str, notes)]
    if not any(type(known) is str and known == note for known in notes):
        attributes["__notes__"] = [*notes, note]


class _Encoder:
    """Walks the chain of an exception breadth first; `nodes[0]` is the exception itself."""

    def __init__(self, root: BaseException) -> None:
        self.nodes: list[_Node] = []
        self._bytes_left = _MAX_BYTES
        self._positions: dict[int, int] = {}
        self._found: list[BaseException] = []  # keep them alive, so that ids stay unique
        self._position(root)
        for exc in self._found:  # the list grows meanwhile
            node = _Node(names(type(exc)))
            self.nodes.append(node)
            try:
                node.fill(exc, self)
            except BaseException as failure:
                kind = type_name(type(failure))
                node.notes.append(
                    f"reader: parts of this exception are lost, because pickling it raised {kind}"
                )

    def _position(self, exc: BaseException) -> int | None:
        """Return the position of `exc` among the nodes; None if there are too many."""
        position = self._positions.get(id(exc))
        if position is None and len(self._found) < _MAX_NODES:
            position = self._positions[id(exc)] = len(self._found)
            self._found.append(exc)
        return position

    def within_limit(self, pickled: bytes | None) -> bytes | None:
        if pickled is None or len(pickled) > self._bytes_left:
            return None
        self._bytes_left -= len(pickled)
        return pickled

    def link(self, node: _Node, what: str, other: BaseException | None) -> int | None:
        position = None if other is None else self._position(other)
        if other is not None and position is None:
            kind = type_name(type(other))
            node.notes.append(f"reader: its {what} ({kind}) is lost: the chain is too long")
        return position

    def value(self, value: object) -> _Value:
        kind = type_name(type(value))
        text = "" if type(value) in _PLAIN else guarded(_repr.repr, value)
        try:
            pickled = dump(value, self._position, self._bytes_left)
            self._bytes_left -= len(pickled)
            return _Value(kind, text, pickled)
        except TooLarge:
            why = f"is too large: an exception may carry {_MAX_BYTES:,} bytes"
        except BaseException:
            why = "cannot be pickled"
        return _Value(kind, text or guarded(_repr.repr, value), None, why)


class _Decoder:
    """Makes all exceptions of a chain, then fills them, so that a chain may have cycles."""

    def __init__(self, nodes: list[_Node]) -> None:
        self._nodes = nodes
        self._made: dict[int, BaseException] = {}
        self._complete: set[int] = set()  # exceptions that were unpickled whole
        for position in reversed(range(len(nodes))):  # members usually come before their group
            self._shell(position)
        self.exceptions = [self._made[position] for position in range(len(nodes))]
        for position in range(len(nodes)):
            self._fill(position)

    def _shell(self, position: int) -> BaseException:
        if position not in self._made:
            node = self._nodes[position]
            cls = _find_class(node)
            exc = None
            if cls is not None and node.whole is not None:
                exc = attempt(pickle.loads, node.whole)
            if cls is not None and type(exc) is cls:
                self._complete.add(position)
            else:
                exc = None if cls is None else attempt(self._empty, node, cls)
            self._made[position] = self._stand_in(node) if exc is None else exc
        return self._made[position]

    def _empty(self, node: _Node, cls: type[BaseException]) -> BaseException:
        """Make an exception of `cls` by the constructor of its C base only."""
        base = static_base(cls)
        if node.group is not None and issubclass(cls, _Group):
            message, members = node.group
            exc: Any = base.__new__(cls, message, [self._shell(member) for member in members])
        else:
            exc = base.__new__(cls)
        if not isinstance(exc, cls):
            raise TypeError(f"{base} made no {cls}")
        return exc

    def _stand_in(self, node: _Node) -> BaseException:
        name = ".".join(node.names[0])
        for module, qualname in node.names[1:]:
            cls = find_by_name(module, qualname)
            exc = None if cls is None else attempt(self._empty, node, cls)
            if exc is not None:
                text = f": {node.text}" if node.text else ""
                node.notes.append(
                    f"reader: the worker raised {name}{text}\n(that class cannot be found or"
                    f" rebuilt in this process; its base {type_name(type(exc))} stands in for it)"
                )
                return exc
        raise TypeError(f"neither {name} nor a base of it can be made")

    def _fill(self, position: int) -> None:
        node, exc = self._nodes[position], self.exceptions[position]
        attributes = _dict_of.__get__(exc)
        if position not in self._complete:
            if node.group is not None and not isinstance(exc, _Group):  # a stand-in
                message, members = node.group
                _args_of.__set__(exc, (message, [self.exceptions[m] for m in members]))
            elif node.group is None:
                values = [self._load(node, f"argument {i}", v) for i, v in enumerate(node.args)]
                _args_of.__set__(exc, tuple(values))
            slots = descriptors(type(exc))
            for name, value in node.members:
                loaded = self._load(node, f"attribute {name!r}", value)
                if name in slots:
                    attempt(slots[name].__set__, exc, loaded)
                else:  # its class is lost: a plain attribute replaces the slot
                    attributes[name] = loaded
        is_set = self._set_state(node, exc)
        for name, value in node.attributes:
            if not is_set or name == "__notes__":  # else the state has them
                attributes[name] = self._load(node, f"attribute {name!r}", value)
        for link, other in ((cause_of, node.cause), (_context_of, node.context)):
            if other is not None:
                link.__set__(exc, self.exceptions[other])
        _suppress_of.__set__(exc, node.suppress_context)
        for note in node.notes:
            add_note(exc, note)

    def _set_state(self, node: _Node, exc: BaseException) -> bool:
        """Pass the state to the user's own `__setstate__`; return whether that succeeded."""
        if node.state is None or node.state.pickled is None:
            return False
        if not user_defines(type(exc), "__setstate__"):
            return False
        try:
            exc.__setstate__(load(node.state.pickled, self.exceptions))
        except FROM_USER:
            return False
        return True

    def _load(self, node: _Node, what: str, value: _Value) -> Any:
        why = value.why
        if value.pickled is not None:
            try:
                return load(value.pickled, self.exceptions)
            except FROM_USER:
                why = "cannot be unpickled in this process"
        node.notes.append(
            f"reader: {what} of this exception ({value.kind}) {why}; its repr stands in for it"
        )
        return value.text


def _find_class(node: _Node) -> type[BaseException] | None:
    module, qualname = node.names[0]
    found = find_by_name(module, qualname) if node.is_importable else None
    if found is None:
        found = find_by_walk(module, qualname, node.class_id) or find_by_name(module, qualname)
    for form in node.by_value if found is None else ():
        found = found or as_exception_class(attempt(pickle.loads, form))
        if found is not None:  # the next exception of this class is found by name
            attempt(setattr, found, "__module__", module)
            attempt(setattr, found, "__qualname__", qualname)
    return found


def _read(descriptor: Any, exc: BaseException) -> tuple[Any, bool]:
    """Return the value of a field or slot, and whether it has one."""
    try:
        value = descriptor.__get__(exc)
    except BaseException:
        return None, False
    return value, not is_unset(descriptor, value)
