"""Signals while something must not be left half done: hold them back, and know what they raised.

Imports the standard library alone. Replaces the handlers of signals in the main thread while a
`with` block runs, and then restores them.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import threading
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

__all__ = ["came_in_callee", "interrupt_after", "is_interrupt"]

_NUMBERS = [int(number) for number in signal.Signals]
# that of the signal module makes an enum of each result, which takes ten times as long
_getsignal: Any = signal._signal.getsignal  # type: ignore[attr-defined]


@contextlib.contextmanager
def interrupt_after() -> Iterator[None]:
    """Hold signals back until the block is done: Ctrl-C, and those that a program handles itself.

    A signal that arrives during a fork is handled in the first Python code behind it, which is a
    callback of `os.register_at_fork`, and Python drops what those raise. It could also come between
    the start of a process and the note that it must be ended.

    In other threads than the main one nothing is done: handlers do not run there.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came: dict[int, FrameType | None] = {}
    handlers = dict(_handlers())
    try:
        for number in handlers:
            signal.signal(number, came.__setitem__)
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for number, frame in came.items():
            handlers[number](number, frame)


def is_interrupt(error: BaseException) -> bool:
    """Whether the handler of a signal raised `error`, in whatever code it came."""
    if isinstance(error, KeyboardInterrupt):
        return True
    codes = _handler_codes()
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code in codes:
            return True
        traceback = traceback.tb_next
    return False


def came_in_callee(error: BaseException) -> bool:
    """Whether `error`, of a signal, came in Python code that the frame which catches it called."""
    here = error.__traceback__
    inner = None if here is None else here.tb_next
    return inner is not None and inner.tb_frame.f_code not in _handler_codes()


def _handler_codes() -> set[CodeType]:
    return {code for _, handler in _handlers() if (code := _code_of(handler)) is not None}


def _handlers() -> list[tuple[int, Any]]:
    """The signals that Python code handles, with what does."""
    found = [(number, _getsignal(number)) for number in _NUMBERS]
    return [(number, handler) for number, handler in found if callable(handler)]


def _code_of(handler: Any) -> CodeType | None:
    """The code that runs first when a handler is called; None where it is not Python's."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    if not hasattr(handler, "__code__") and not hasattr(handler, "__func__"):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004
    return getattr(getattr(handler, "__func__", handler), "__code__", None)
