"""An exception of any class comes back as the class, arguments and attributes it had."""

from __future__ import annotations

import asyncio
import builtins
import os
import sys
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reader.errors import DatasetError, WorkerDied
from reader.exceptions import exception_codec
from reader.exceptions.user_error import with_context
from tests.unit.exceptions import (
    OddConstructor,
    carry,
    in_a_forked_worker,
    in_another_program,
    notes_of,
    raise_from,
    raised,
)

BUILTIN = [
    ValueError("text"),
    ValueError(),
    ValueError(1, (2, "x"), {"k": [None]}),
    KeyError("key"),
    IndexError(np.int64(3)),
    OSError(2, "No such file", "a.png"),
    OSError(18, "cross device", "a", None, "b"),
    OSError("only text"),
    FileNotFoundError(2, "No such file", b"bytes.png"),
    TimeoutError(110, "slow"),
    UnicodeDecodeError("utf-8", b"\xff\xfe", 0, 1, "invalid start byte"),
    UnicodeEncodeError("ascii", "é", 0, 1, "not in range"),
    UnicodeTranslateError("é", 0, 1, "why"),
    ImportError("cannot", name="mod", path="/p"),
    ModuleNotFoundError("none", name="mod"),
    SyntaxError("bad", ("f.py", 3, 5, "x = (", 3, 6)),
    AttributeError("no", name="attr", obj=[1, 2]),
    NameError("no", name="x"),
    StopIteration(42),
    SystemExit(3),
    MemoryError(),
    RecursionError("deep"),
    KeyboardInterrupt(),
    UnicodeError("odd"),
    Warning("w"),
    asyncio.CancelledError("c"),
]
FIELDS = """errno strerror filename filename2 encoding object start end reason name path msg
lineno offset text end_lineno end_offset obj value code args""".split()


@pytest.mark.parametrize("exc", BUILTIN, ids=repr)
def test_builtin_exception_keeps_type_args_text_and_fields(exc: BaseException) -> None:
    back = carry(exc)
    assert type(back) is type(exc)
    assert (str(back), repr(back)) == (str(exc), repr(exc))
    for name in FIELDS:
        assert getattr(back, name, "none") == getattr(exc, name, "none"), name
    assert notes_of(back) == ""


def test_every_builtin_exception_class_can_be_carried() -> None:
    classes = [c for c in vars(builtins).values() if isinstance(c, type)]
    for cls in classes:
        if not issubclass(cls, BaseException) or "Group" in cls.__name__:
            continue
        empty = cls.__new__(cls)
        assert type(carry(empty)) is cls


def test_fields_set_after_the_constructor_are_kept() -> None:
    error = OSError(2, "No such file")
    error.filename = "later.png"
    error.errno = 5
    back = carry(error)
    assert (back.errno, back.filename, back.args) == (5, "later.png", (2, "No such file"))
    assert str(back) == str(error)


def test_real_errors_are_carried() -> None:
    for make in (
        lambda: os.stat("/no/such/file"),
        lambda: b"\xff".decode(),
        lambda: {}["k"],
        lambda: np.zeros((2, 3)) @ np.zeros((2, 3)),
        lambda: np.zeros(3).sum(axis=5),
        lambda: int("x"),
    ):
        exc = raised(make)
        back = carry(exc)
        assert (type(back), str(back), back.args) == (type(exc), str(exc), exc.args)
        assert {**back.__dict__} == {**exc.__dict__}


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text()
    | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3)
    | st.tuples(inner, inner),
    max_leaves=8,
)  # fmt: skip


@given(args=st.lists(PLAIN, max_size=4), attributes=st.dictionaries(st.text(min_size=1), PLAIN))
def test_any_plain_args_and_attributes_are_kept(
    args: list[Any], attributes: dict[str, Any]
) -> None:
    exc = RuntimeError(*args)
    exc.__dict__.update(attributes)
    back = carry(exc)
    assert back.args == tuple(args)
    assert back.__dict__ == attributes


class KeepsNoArgs(Exception):
    def __init__(self, a: int, b: int) -> None:
        self.total = a + b


class OddNew(Exception):
    def __new__(cls, one: int, two: int) -> OddNew:
        made = super().__new__(cls, one)
        made.two = two
        return made

    def __init__(self, one: int, two: int) -> None: ...


class OddOSError(OSError):
    def __init__(self, path: str) -> None:
        super().__init__(2, "gone", path)
        self.extra = 1


class Slots(Exception):
    __slots__ = ("__hidden", "plain", "unset")

    def __init__(self) -> None:
        self.plain = 1
        self.__hidden = None

    @property
    def hidden(self) -> None:
        return self.__hidden


class Frozen(Exception):
    def __setattr__(self, name: str, value: object) -> None:
        raise TypeError("frozen")


class Shadows(Exception):
    errno = property(lambda self: 1 / 0)
    args = property(lambda self: 1 / 0)  # type: ignore[assignment]
    __cause__ = property(lambda self: 1 / 0)  # type: ignore[assignment]
    __dict__ = property(lambda self: 1 / 0)  # type: ignore[assignment]


class OwnState(Exception):
    def __init__(self) -> None:
        super().__init__("own")
        self.lock = threading.Lock()
        self.kept = 5

    def __getstate__(self) -> dict[str, Any]:
        return {"kept": self.kept}

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        assert state is not None
        self.kept = state["kept"]
        self.lock = threading.Lock()


class BadState(Exception):
    def __setstate__(self, state: object) -> None:
        raise RuntimeError("no")


class BadGetState(Exception):
    def __getstate__(self) -> object:
        raise RuntimeError("no")

    def __setstate__(self, state: object) -> None: ...


class Both(KeyError, OSError): ...


class LikeArena(DatasetError, MemoryError): ...


def test_constructor_of_the_user_is_not_called() -> None:
    back = carry(OddConstructor("a.png", line=3))
    assert type(back) is OddConstructor
    assert (back.args, back.path, back.line) == (("a.png:3",), "a.png", 3)
    assert carry(KeepsNoArgs(1, b=2)).total == 3
    back = carry(OddNew(1, 2))
    assert (type(back), back.args, back.two) == (OddNew, OddNew(1, 2).args, 2)
    back = carry(OddOSError("p"))
    assert (back.errno, back.filename, back.extra, str(back)) == (2, "p", 1, "[Errno 2] gone: 'p'")


def test_slots_are_kept_and_unset_ones_stay_unset() -> None:
    back = carry(Slots())
    assert (back.plain, back.hidden) == (1, None)
    assert not hasattr(back, "unset")


def test_overridden_attribute_access_is_bypassed() -> None:
    exc = Frozen(1)
    assert carry(exc).args == (1,)
    assert notes_of(with_context(carry(exc), where="x", traceback_text="")) == "reader: raised in x"
    cause = KeyError(5)
    shadows = raised(lambda: raise_from(Shadows(7), cause))
    back = carry(shadows)
    assert type(back) is Shadows
    assert BaseException.__dict__["args"].__get__(back) == (7,)
    assert BaseException.__dict__["__cause__"].__get__(back).args == (5,)


def test_own_getstate_and_setstate_are_used() -> None:
    exc = OwnState()
    exc.__notes__ = ["kept too"]
    back = carry(exc)
    assert (back.kept, back.args, back.__notes__) == (5, ("own",), ["kept too"])
    assert back.lock.acquire(blocking=False)


def test_failing_setstate_falls_back_to_the_attributes() -> None:
    exc = BadState("x")
    exc.a = 1  # type: ignore[attr-defined]
    assert (carry(exc).a, carry(exc).args) == (1, ("x",))


def test_failing_getstate_is_noted() -> None:
    exc = BadGetState("x")
    exc.a = 1  # type: ignore[attr-defined]
    back = carry(exc)
    assert (back.a, back.args) == (1, ("x",))
    assert "of this exception are lost, because pickling it raised RuntimeError" in notes_of(back)


def test_exceptions_with_several_builtin_bases() -> None:
    for exc in (Both(1, "x", "file"), LikeArena("full"), WorkerDied(pid=3, exitcode=-9)):
        back = carry(exc)
        assert (type(back), back.args, str(back)) == (type(exc), exc.args, str(exc))
        assert back.__dict__ == exc.__dict__


def local_class() -> type[Exception]:
    class Local(Exception):
        def __reduce__(self) -> Any:
            raise TypeError("cannot pickle Local")

    return Local


def test_local_class_known_to_the_trainer_comes_back_as_that_very_class() -> None:
    first, second = local_class(), local_class()
    for cls in (first, second):
        back = in_a_forked_worker(lambda: cls("text", 5))  # noqa: B023 (called at once)
        assert type(back) is cls
        assert back.args == ("text", 5)
        assert notes_of(back) == ""


def test_local_class_unknown_to_the_trainer_comes_by_value() -> None:
    code = """
    def make():
        class Local(ValueError):
            def __str__(self):
                return "said " + self.args[0]
        return Local
    exc = make()("this")
    exc.n = 3
    """
    back = in_another_program(code)
    assert type(back).__qualname__ == "make.<locals>.Local"
    assert isinstance(back, ValueError)
    assert (str(back), back.args, vars(back)) == ("said this", ("this",), {"n": 3})


def test_local_class_made_in_the_worker_keeps_the_trainers_bases(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OfMain(Exception): ...

    OfMain.__module__, OfMain.__qualname__ = "__main__", "OfMain"
    monkeypatch.setattr(sys.modules["__main__"], "OfMain", OfMain, raising=False)

    def make() -> BaseException:
        class OnlyThere(OfMain): ...

        return OnlyThere(1)

    first, second = in_a_forked_worker(make), in_a_forked_worker(make)
    assert isinstance(first, OfMain)
    assert type(first) is type(second)
    assert type(first).__qualname__.endswith("make.<locals>.OnlyThere")


def test_class_nobody_can_rebuild_is_replaced_by_its_base() -> None:
    code = """
    import sys, threading
    class Base(KeyError): pass
    def make():
        lock = threading.Lock()
        class Unique(Base):
            held = lock
            __slots__ = ("slot",)
            def __str__(self):
                return "special text"
        return Unique
    exc = make()("k")
    exc.slot = 8
    exc.n = 3
    """
    back = in_another_program(code)
    assert type(back) is KeyError
    assert (back.args, vars(back)["n"], vars(back)["slot"]) == (("k",), 3, 8)
    assert "the worker raised __main__.make.<locals>.Unique: special text" in notes_of(back)
    assert "its base KeyError stands in for it" in notes_of(back)


def test_class_with_a_hostile_metaclass_does_not_disturb_others() -> None:
    class Meta(type):
        def __getattribute__(cls, name: str) -> Any:
            if name in ("__module__", "__qualname__"):
                raise RuntimeError(name)
            return super().__getattribute__(name)

    class Hidden(Exception, metaclass=Meta): ...

    local = local_class()
    assert type(carry(local(1))) is local
    del Hidden


def test_class_is_imported_where_only_the_worker_had_imported_it() -> None:
    back = in_another_program("import xml.parsers.expat as e, tarfile\nexc = tarfile.ReadError(1)")
    assert (type(back).__name__, back.args) == ("ReadError", (1,))


def test_extension_type_that_only_unpickles_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    # Any class may stand for one whose layout no builtin base can make.
    monkeypatch.setattr(exception_codec, "static_base", lambda cls: Whole)
    back = carry(Whole(4))
    assert (type(back), back.number, back.remade) == (Whole, 4, True)


class Whole(Exception):
    remade = False

    def __init__(self, number: int, remade: bool = False) -> None:
        super().__init__("whole")
        self.number = number
        if remade:
            self.remade = True

    def __reduce__(self) -> Any:
        return Whole, (self.number, True)
