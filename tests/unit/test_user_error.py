"""Notes of an exception on its way to the user's loop, and exceptions that must be replaced."""

from __future__ import annotations

import asyncio
import pickle
import traceback
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reader
from reader.checks import as_int
from reader.errors import DatasetError, InternalError
from reader.exceptions import user_error
from reader.exceptions.user_error import (
    as_user_error,
    decode,
    from_user_code,
    traceback_text,
    with_context,
)
from tests.unit.exceptions import carry, notes_of, raise_from, raised


def test_traceback_text_is_what_python_prints() -> None:
    exc = raised(lambda: raise_from(ValueError("v"), KeyError("k")))
    text = traceback_text(exc)
    assert text.startswith("KeyError: 'k'")
    assert "in raise_from" in text
    assert text.endswith("ValueError: v\n")


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("kind", ["process", "thread"])
def test_traceback_begins_with_the_user_s_code(workers: int, kind: str) -> None:
    """The loader's own frames between the loop and the dataset would hide the user's line."""
    loader = reader.DataLoader(Breaks(), num_workers=workers, worker_type=kind)
    with loader, pytest.raises(KeyError) as caught:
        next(iter(loader))
    text = "".join(traceback.format_exception(caught.value))
    assert "in inner" in text
    between = text[text.index("__next__") :]
    assert "fetch.py" not in between
    assert ".pyx" not in between
    assert between.index("in __getitem__") < between.index("in inner")


class Breaks:
    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> int:
        return inner()


def inner() -> int:
    raise KeyError("mine")


def test_traceback_of_the_loader_s_own_error_stays_whole() -> None:
    exc = raised(lambda: as_int("x", "y", low=0, remedy="Give one."))
    assert "in as_int" in traceback_text(exc)
    assert from_user_code(None) is None


def test_traceback_that_cannot_be_formatted_is_survived(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_error.traceback, "format_exception", lambda *_: 1 / 0)
    assert traceback_text(ValueError()) == "(the traceback of ValueError could not be formatted)\n"


def test_same_note_is_added_once() -> None:
    exc = ValueError(1)
    for _ in range(3):
        with_context(exc, where="batch 1", traceback_text="")
    assert exc.__notes__ == ["reader: raised in batch 1"]
    with_context(exc, where="batch 2", traceback_text="")
    assert len(exc.__notes__) == 2


def test_odd_notes_attribute_is_survived() -> None:
    exc = ValueError(1)
    exc.__notes__ = "not a list"  # type: ignore[assignment]
    with_context(exc, where="batch 1", traceback_text="")
    assert exc.__notes__ == ["not a list", "reader: raised in batch 1"]


def test_python_without_notes_gets_a_remote_traceback(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(user_error, "_SHOWS_NOTES", False)
    exc = with_context(ValueError(1), where="batch 1", traceback_text="Traceback ...")
    assert isinstance(exc.__cause__, user_error.RemoteTraceback)
    assert "raised in batch 1" in str(exc.__cause__)
    assert "Traceback ..." in str(exc.__cause__)
    assert "reader: raised in batch 1" in notes_of(exc)
    cause = KeyError()
    chained = ValueError(2)
    chained.__cause__ = cause
    assert with_context(chained, where="b", traceback_text="").__cause__ is cause


class StopKind(StopIteration): ...


@pytest.mark.parametrize(
    ("exc", "match"),
    [
        (StopIteration(5), r"raised StopIteration\(5\), which is not .* end the loop over the bat"),
        (StopKind(), r"raised .*StopKind, which is not passed on as it is: it would end the loop"),
        (StopAsyncIteration(), r"raised StopAsyncIteration, which .* early and silently"),
        (
            GeneratorExit(),
            r"raised GeneratorExit, .* end of a generator .* Raise|raise an ordinary",
        ),
        (SystemExit(3), r"raised SystemExit\(3\), .* it would end the program"),
        (KeyboardInterrupt(), r"raised KeyboardInterrupt, .* `except Exception` does not catch it"),
        (asyncio.CancelledError("c"), r"raised asyncio\.exceptions\.CancelledError\(c\), which"),
    ],
    ids=repr,
)
def test_exception_that_would_pass_silently_becomes_a_dataset_error(
    exc: BaseException, match: str
) -> None:
    for original in (exc, carry(exc)):
        error = as_user_error(original)
        assert error.__cause__ is original
        with pytest.raises(DatasetError, match=match):
            raise error
    back = carry(as_user_error(exc))
    assert type(back) is DatasetError
    assert (type(back.__cause__), back.__cause__.args) == (type(exc), exc.args)


def test_ordinary_exceptions_are_passed_on_as_they_are() -> None:
    for exc in (ValueError(1), OSError(2, "x"), DatasetError("d"), RuntimeError()):
        assert as_user_error(exc) is exc


@pytest.mark.parametrize("data", [b"", b"garbage", pickle.dumps(5), pickle.dumps([]), b"\x80\x05"])
def test_garbage_gives_an_internal_error(data: bytes) -> None:
    back = decode(data)
    assert isinstance(back, InternalError)
    assert isinstance(back.__cause__, Exception)
    assert "the failure of a worker cannot be read" in str(back)


@given(data=st.binary(max_size=60))
def test_no_bytes_make_decode_raise(data: bytes) -> None:
    assert isinstance(decode(data), BaseException)


def test_carrying_keeps_nothing_of_the_original_alive() -> None:
    import gc
    import weakref

    class Held: ...

    def fail() -> None:
        held = Held()
        seen.append(weakref.ref(held))
        raise ValueError(lambda: None)

    seen: list[Any] = []
    gc.disable()
    try:
        exc = raised(fail)
        carry(exc)
        del exc
        assert seen[0]() is None
    finally:
        gc.enable()
