"""The open pools of this process, which are closed when the program ends.

Imports `reader.errors`. Any thread may open and close pools at any time, also while the
program ends and its pools are being closed.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import weakref
from collections.abc import Callable
from multiprocessing import util
from typing import Protocol

from reader.errors import ReaderError

__all__ = [
    "add",
    "await_closing",
    "check_interpreter",
    "keep_closer",
    "limit_closing",
    "remove",
    "snapshot",
    "start_closing",
    "stop_with_program",
]

_EXIT_S = 1.0  # time for workers to finish their samples when the program ends
_GRACE_S = 1.0  # time for the threads that close pools
_MOST_CLOSING = 4


class _Pool(Protocol):
    @property
    def is_closing(self) -> bool:
        """Whether it is being closed in the background."""

    def close_soon(self, grace_s: float | None = None) -> None:
        """Close it in the background; workers have `grace_s` seconds to finish their samples."""

    def close(self) -> None:
        """Close it, and wait until it is closed."""


# id -> pool. Listing a dict's values is atomic; a WeakSet may change while it is iterated over.
_pools: dict[int, weakref.ref[_Pool]] = {}
_closers: dict[int, threading.Thread] = {}  # threads that close pools, by id
_registered_in: int | None = None  # the process whose exit closes the pools
_leaving_in: int | None = None  # the process that is closing its pools because it ends


def add(pool: _Pool) -> None:
    """Close a pool when this process ends, before anything waits for its workers.

    A finalizer of multiprocessing runs also in its children, which run no atexit handlers; it runs
    before multiprocessing waits for the children of the process.
    """
    global _registered_in
    _pools[id(pool)] = weakref.ref(pool)
    if _registered_in != os.getpid():
        _registered_in = os.getpid()
        util.Finalize(None, _close_all, exitpriority=100)


def remove(pool: _Pool) -> None:
    """Remove a pool that was closed."""
    _pools.pop(id(pool), None)


def snapshot() -> list[_Pool]:
    """Return the pools that are open now."""
    return [pool for each in list(_pools.values()) if (pool := each()) is not None]


def await_closing() -> bool:
    """Wait until the pools that are closing are closed; return whether there were any."""
    closing = [pool for pool in snapshot() if pool.is_closing]
    for pool in closing:
        pool.close()
    return bool(closing)


def limit_closing() -> None:
    """Wait until at most 4 pools are closing: each keeps workers and memory until then.

    Otherwise a program that breaks out of loop after loop would pile them up.
    """
    closing = [pool for pool in snapshot() if pool.is_closing]
    for pool in closing[:-_MOST_CLOSING]:
        pool.close()


def start_closing(finish: Callable[[], None]) -> None:
    """Run a function that closes a pool in its own thread; see `keep_closer`.

    Raises:
        RuntimeError: the interpreter starts no more threads.
    """
    thread = threading.Thread(target=finish, name="reader-close", daemon=True)
    keep_closer(thread)
    thread.start()


def keep_closer(thread: threading.Thread) -> None:
    """Let the program wait at its end until a thread that closes a pool has ended.

    The thread may free objects of the user's with the pool, and its own after that.
    """
    for each in list(_closers.values()):
        if each.ident is not None and not each.is_alive():
            _closers.pop(id(each), None)
    _closers[id(thread)] = thread


def check_interpreter() -> None:
    """Refuse to work while the interpreter shuts down: imports and threads end before objects do.

    Raises:
        ReaderError: the interpreter is being taken apart; this runs in the `__del__` of an object.
    """
    if sys.is_finalizing():
        raise ReaderError(
            "a loader cannot be iterated over while the interpreter shuts down (in __del__ of an"
            " object): modules cannot be imported and workers cannot be started any more. Iterate"
            " before that, for example in a function that is passed to atexit.register"
        )


def stop_with_program() -> None:
    """Stop the calling thread if it is a daemon thread and the program is ending.

    Raises:
        SystemExit: in a daemon thread of such a program; it ends the thread and prints nothing.
    """
    thread = threading.current_thread()
    if _leaving_in != os.getpid() or not thread.daemon:
        return
    if not isinstance(thread, threading._DummyThread):  # Python started it, and stops it
        raise SystemExit


def _close_all() -> None:
    global _leaving_in
    _leaving_in = os.getpid()
    pools = snapshot()
    for pool in pools:
        pool.close_soon(0.0 if _has_failed() else _EXIT_S)
    for pool in pools:
        pool.close()
    deadline = time.monotonic() + _GRACE_S
    for closer in list(_closers.values()):
        if closer.is_alive():
            closer.join(max(0.0, deadline - time.monotonic()))


def _has_failed() -> bool:
    """Whether an exception, most often Ctrl-C, ends the program. False at a prompt."""
    is_prompt = hasattr(sys, "ps1") or sys.flags.interactive
    return getattr(sys, "last_value", None) is not None and not is_prompt
