"""What an exception holds comes back with it: values, causes, contexts, notes, groups."""

from __future__ import annotations

import sys
import threading
from typing import Any

import numpy as np
import pytest

from reader.exceptions.user_error import as_user_error, decode, encode, traceback_text, with_context
from tests.unit.exceptions import OddConstructor, carry, notes_of, raise_from, raised


class Hostile:
    def __repr__(self) -> str:
        raise KeyboardInterrupt

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise SystemExit(3)


class BreaksTrainer:
    def __repr__(self) -> str:
        return "BreaksTrainer()"

    def __reduce__(self) -> Any:
        return _raise, (SystemExit(1),)


def _raise(exc: BaseException) -> None:
    raise exc


def test_unpicklable_values_become_their_repr_with_a_note() -> None:
    lock = threading.Lock()
    exc = ValueError("text", lock)
    exc.lock = lock  # type: ignore[attr-defined]
    exc.fine = [1]  # type: ignore[attr-defined]
    back = carry(exc)
    assert back.args == ("text", repr(lock))
    assert (back.lock, back.fine) == (repr(lock), [1])
    note = "argument 1 of this exception (_thread.lock) cannot be pickled; its repr stands in"
    assert note in notes_of(back)
    assert "attribute 'lock' of this exception (_thread.lock) cannot be pickled" in notes_of(back)
    assert "fine" not in notes_of(back)


def test_lambdas_and_local_objects_go_by_value() -> None:
    back = carry(ValueError(lambda x: x + 1))
    assert back.args[0](2) == 3
    assert notes_of(back) == ""


def test_values_that_fail_in_every_way_are_survived() -> None:
    back = carry(ValueError(Hostile(), 5))
    assert back.args == (
        "<tests.unit.test_exception_chain.Hostile object; its text could not be made>",
        5,
    )


def test_value_that_cannot_be_unpickled_in_the_trainer_becomes_its_repr() -> None:
    back = carry(ValueError(BreaksTrainer()))
    assert back.args == ("BreaksTrainer()",)
    assert "cannot be unpickled in this process; its repr stands in" in notes_of(back)


def test_large_values_become_their_repr_within_a_bound() -> None:
    exc = AttributeError("no attribute", name="x", obj=np.zeros(10 << 20, np.uint8))
    exc.also = b"x" * (5 << 20)  # type: ignore[attr-defined]
    exc.too_much = b"y" * (5 << 20)  # type: ignore[attr-defined]
    data = encode(exc)
    assert len(data) < 6 << 20
    back: Any = decode(data)
    assert back.obj.startswith("array([0, 0, 0")
    assert (back.name, back.also) == ("x", b"x" * (5 << 20))
    assert back.too_much.startswith("b'yyy")
    assert len(back.too_much) <= 2000
    assert "attribute 'obj' of this exception (numpy.ndarray) is too large" in notes_of(back)


class HostileError(Exception):
    def __str__(self) -> str:
        raise KeyboardInterrupt

    def __repr__(self) -> str:
        raise SystemExit

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise GeneratorExit


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        if name in ("__module__", "__qualname__", "__mro__", "__flags__"):
            raise RuntimeError(name)
        return super().__getattribute__(name)


def test_hostile_exceptions_are_carried() -> None:
    back = carry(HostileError(1))
    assert (type(back), back.args) == (HostileError, (1,))
    assert as_user_error(HostileError(1)).args == (1,)
    exc = HostileError(2)
    assert traceback_text(exc)
    assert with_context(exc, where="w", traceback_text="") is exc


def test_class_that_hides_even_its_name_is_carried_as_text() -> None:
    class Nameless(Exception, metaclass=Meta): ...

    back = carry(Nameless("the text"))
    assert (type(back), back.args) == (Exception, ("the text",))
    assert "the worker raised <a class without a name>; all but its text is lost" in notes_of(back)


def test_attribute_that_names_nothing_is_left_out() -> None:
    exc = ValueError("x")
    exc.__dict__[5] = "five"  # type: ignore[index]
    assert carry(exc).__dict__ == {}


def test_chain_keeps_cause_context_and_suppression() -> None:
    def fail() -> None:
        try:
            {}["k"]
        except KeyError as key:
            try:
                raise_from(ValueError("v"), OSError(5, "io"))
            except ValueError:
                raise TypeError("t") from key

    exc = raised(fail)
    back = carry(exc)
    assert type(back) is TypeError
    assert (type(back.__cause__), back.__cause__.args) == (KeyError, ("k",))
    assert type(back.__context__) is ValueError
    assert type(back.__context__.__cause__) is OSError
    assert back.__context__.__context__ is back.__cause__
    assert back.__suppress_context__
    assert not back.__cause__.__suppress_context__

    hidden = raised(lambda: raise_from(ValueError(1), None))
    assert carry(hidden).__suppress_context__


def test_cycle_in_the_chain_comes_out_as_the_same_cycle() -> None:
    first, second = ValueError(1), KeyError(2)
    first.__cause__, second.__cause__ = second, first
    back = carry(first)
    assert back.__cause__.args == (2,)
    assert back.__cause__.__cause__ is back


def test_exceptions_inside_args_and_attributes_keep_their_identity() -> None:
    inner = OddConstructor("a", line=1)
    exc = RuntimeError([inner], {"it": inner})
    exc.inner = inner  # type: ignore[attr-defined]
    exc.itself = exc  # type: ignore[attr-defined]
    exc.__cause__ = inner
    back = carry(exc)
    assert back.itself is back
    assert type(back.inner) is OddConstructor
    assert back.args == ([back.inner], {"it": back.inner})
    assert back.__cause__ is back.inner
    assert back.inner.line == 1


def test_endless_chain_is_cut_with_a_note() -> None:
    exc: BaseException = ValueError(0)
    for i in range(1, 5000):
        later = ValueError(i)
        later.__context__ = exc
        exc = later
    back = carry(exc)
    length, last = 1, back
    while last.__context__ is not None:
        last, length = last.__context__, length + 1
    assert (back.args, length) == ((4999,), 256)
    assert "its context (ValueError) is lost: the chain is too long" in notes_of(last)


def test_notes_of_the_user_are_kept_before_ours() -> None:
    exc = ValueError(1)
    exc.__notes__ = ["mine"]  # what add_note does, on every version of Python
    back = with_context(carry(exc), where="batch 3", traceback_text="Traceback ...\n")
    assert back.__notes__ == [
        "mine",
        "reader: raised in batch 3\nThe traceback there:\n\nTraceback ...",
    ]
    assert exc.__notes__ == ["mine"]


groups = pytest.mark.skipif(sys.version_info < (3, 11), reason="exception groups are of 3.11")


@groups
def test_exception_groups_are_kept_whole() -> None:
    inner = OddConstructor("a", line=1)
    group = ExceptionGroup("many", [inner, ExceptionGroup("few", [KeyError("k")])])  # noqa: F821
    group.__notes__ = ["note"]
    group.extra = inner  # type: ignore[attr-defined]
    back = carry(group)
    assert type(back) is ExceptionGroup  # noqa: F821
    assert (back.message, back.__notes__, str(back)) == ("many", ["note"], str(group))
    assert [type(e) for e in back.exceptions] == [OddConstructor, ExceptionGroup]  # noqa: F821
    assert back.extra is back.exceptions[0]
    assert back.exceptions[1].exceptions[0].args == ("k",)
    matched, rest = back.split(KeyError)
    assert matched is not None
    assert rest is not None


@groups
def test_exception_group_of_the_users_class() -> None:
    class Mine(ExceptionGroup):  # type: ignore[type-arg] # noqa: F821
        def __new__(cls, number: int) -> Any:
            return super().__new__(cls, f"number {number}", [ValueError(number)])

        def __init__(self, number: int) -> None:
            self.number = number

    back = carry(Mine(4))
    assert type(back) is Mine
    assert (back.number, back.message, back.exceptions[0].args) == (4, "number 4", (4,))


@groups
def test_deeply_nested_and_oversized_groups_are_survived() -> None:
    nested: BaseException = ValueError(0)
    for _ in range(200):
        nested = ExceptionGroup("n", [nested])  # type: ignore[list-item] # noqa: F821
    back = carry(nested)
    for _ in range(200):
        (back,) = back.exceptions
    assert back.args == (0,)
    wide = ExceptionGroup("wide", [ValueError(i) for i in range(1000)])  # noqa: F821
    back = carry(wide)
    assert len(back.exceptions) == 255
    assert "its part (ValueError) is lost: the chain is too long" in notes_of(back)
    assert notes_of(back).count("too long") == 1
    deep: BaseException = ValueError(0)
    for _ in range(400):
        deep = ExceptionGroup("n", [deep])  # type: ignore[list-item] # noqa: F821
    assert type(carry(deep)) is ExceptionGroup  # noqa: F821
