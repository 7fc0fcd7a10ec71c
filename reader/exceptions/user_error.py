"""Prepare an exception of a worker for the user's loop.

Adds a note of where it was raised, and replaces types that must not be raised unchanged. `encode`
(in the worker) and `decode` (in the trainer) come from `reader.exceptions.exception_codec`. Imports
that module, `exception_class` and `reader.errors`; keeps no state.
"""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from types import TracebackType

from reader.errors import DatasetError
from reader.exceptions.exception_class import guarded, type_name
from reader.exceptions.exception_codec import add_note, cause_of, decode, encode

__all__ = [
    "RemoteTraceback",
    "as_user_error",
    "decode",
    "encode",
    "from_user_code",
    "traceback_text",
    "with_context",
]

_PACKAGE = str(Path(__file__).parents[1])
# files of the core appear under their source names
_OWN_FILES = (f"{_PACKAGE}{os.sep}", "cython_ext/reader/_core/", "reader/_core/")
_SHOWS_NOTES = sys.version_info >= (3, 11)


class RemoteTraceback(Exception):
    """A worker's traceback, as the cause of its exception (Python 3.10 only)."""


def from_user_code(found: TracebackType | None) -> TracebackType | None:
    """Return a traceback without the loader's own frames before the first one of the user's.

    A traceback of only such frames is returned whole.
    """
    inner = found
    while inner is not None and inner.tb_frame.f_code.co_filename.startswith(_OWN_FILES):
        inner = inner.tb_next
    return found if inner is None else inner


def traceback_text(exc: BaseException) -> str:
    """Return the traceback of `exc` and its chain, as Python prints it; never raises.

    It begins with the user's code, which the loader called.
    """
    try:
        found = from_user_code(exc.__traceback__)
        return "".join(traceback.format_exception(type(exc), exc, found))
    except BaseException:
        return f"(the traceback of {type_name(type(exc))} could not be formatted)\n"


def with_context(exc: BaseException, *, where: str, traceback_text: str) -> BaseException:
    """Add a note of where `exc` was raised, and return `exc`.

    The same note is not added twice: with `num_workers=0` the dataset may raise the same object
    again and again, and its notes must not grow.

    Python 3.10 prints no notes: there the note is kept in `__notes__` as later versions do, and an
    exception without a cause gets a `RemoteTraceback` with the same text as its cause.

    Args:
        exc: any exception; it is changed in place.
        where: such as "batch 3 of epoch 0 (dataset index 97) by worker 1 (pid 4321)".
        traceback_text: the worker's traceback, made by `traceback_text`; "" to leave it out.
    """
    note = f"reader: raised in {where}"
    if traceback_text:
        note += f"\nThe traceback there:\n\n{traceback_text.rstrip()}"
    add_note(exc, note)
    if not _SHOWS_NOTES and cause_of.__get__(exc) is None:
        cause_of.__set__(exc, RemoteTraceback(f"\n\n{note}"))
    return exc


def as_user_error(exc: BaseException) -> BaseException:
    """Return an exception that may be raised in the user's loop for `exc`.

    StopIteration would silently end the loop, and SystemExit the program: such types become the
    `__cause__` of a `DatasetError`. Any other exception is returned unchanged.
    """
    if isinstance(exc, (StopIteration, StopAsyncIteration)):
        effect = "it would end the loop over the batches early and silently"
    elif isinstance(exc, GeneratorExit):
        effect = "Python takes it for the end of a generator and may drop it silently"
    elif not isinstance(exc, Exception):
        effect = "`except Exception` does not catch it, and it would end the program"
    else:
        return exc
    text = guarded(str, exc)
    error = DatasetError(
        f"code of the dataset raised {type_name(type(exc))}{f'({text})' if text else ''}, which is"
        f" not passed on as it is: {effect}. The original is the __cause__ of this error. Raise"
        " an ordinary exception to report an error of the dataset."
    )
    error.__cause__ = exc
    return error
