"""A lock on the global random state, which one worker thread at a time holds.

Imports `reader.random.seeds` and `reader.errors`. One condition guards all holds of the process;
each pool of threads has a GlobalRngLock. A thread holds the state while it runs the user's code.
Signals are held back while the condition is locked: an interrupted Condition may stay locked.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from reader._core.interpreter.signals import SafeExit, interrupt_after
from reader.errors import ReaderError
from reader.random import seeds

__all__ = ["GlobalRngLock"]


_LOOK_S = 0.2  # in the main thread, a wait for a hold checks for signals at this interval


class _Thread(threading.local):
    hold: _Hold | None = None  # this thread's hold


_thread = _Thread()
# Guards _held; the thread with the last hold owns the global random state. Reentrant, because
# garbage collection may close a pool in a thread that has locked it.
_changed = threading.Condition(threading.RLock())
_held: list[_Hold] = []  # each hold was asked for by code that runs within the one before it


def _renew() -> None:
    """Renew the lock and drop the holds in a forked child: their threads do not exist there."""
    global _changed
    _changed = threading.Condition(threading.RLock())
    _held.clear()


os.register_at_fork(after_in_child=_renew)


class GlobalRngLock:
    """The holds of the worker threads of one pool.

    The consumer calls `ask` before it sends a task, and `await_end` when it has the batch. A worker
    thread makes the batch within `hold`, with the state seeded. If a dataset itself iterates over a
    loader with such threads, their holds nest within the hold of the dataset's worker.
    """

    def __init__(self) -> None:
        self._caller: _Hold | None = None
        self._is_closed = False

    def ask(self) -> None:
        """Note the hold of the calling thread, which will wait for the next task's batch."""
        self._caller = _thread.hold

    def hold(self, seed: int | None) -> AbstractContextManager[Any]:
        """Return a context that seeds the global generators, and restores them on leaving.

        Entering it waits until other threads have released their holds. None leaves the generators
        alone: the hold then guards another state that the threads share.
        """
        return _Hold(self, self._caller, seed)

    def await_end(self) -> None:
        """Wait until no thread of the pool has a hold.

        A worker sends its batch within its hold: the batch may arrive before the state is restored.
        """
        if not _held:
            return
        with interrupt_after(), _changed:  # short: the user's code has ended
            _changed.wait_for(lambda: self._is_closed or not self._places())

    def stop(self) -> None:
        """Let no further hold begin."""
        with _changed:
            self._is_closed = True
            _changed.notify_all()

    def release(self) -> None:
        """Restore the state that an unfinished hold has changed; the holds within it end too."""
        with _changed:
            places = self._places()
            if places:
                _held[places[0]].put_back()
                del _held[places[0] :]
            _changed.notify_all()

    def _places(self) -> list[int]:
        return [place for place, hold in enumerate(_held) if hold.lock is self]

    @property
    def is_closed(self) -> bool:
        """Whether `stop` was called."""
        return self._is_closed


class _Hold(SafeExit):
    """The hold of one batch. `restore` is called once, while `_changed` is locked."""

    put_back: Callable[[], object]

    def __init__(self, lock: GlobalRngLock, caller: _Hold | None, seed: int | None) -> None:
        self.lock = lock
        self._caller = caller
        self._seed = seed

    def __enter__(self) -> _Hold:
        try:
            while not self._begin():
                pass  # signals are handled here
            if self._seed is not None:
                seeds.seed_known_libraries(self._seed)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _begin(self) -> bool:
        """Wait for the hold; False: it has not come, and signals must be checked for."""
        is_main = threading.current_thread() is threading.main_thread()
        with interrupt_after(), _changed:
            _changed.wait_for(
                lambda: self.lock.is_closed or self._is_next(), _LOOK_S if is_main else None
            )
            if self.lock.is_closed:
                raise ReaderError("the loader was closed before this batch was begun")
            if not self._is_next():
                return False
            self.put_back = bool if self._seed is None else seeds.CapturedState().put_back
            _held.append(self)
            _thread.hold = self
        return True

    def _is_next(self) -> bool:
        return not _held or _held[-1] is self._caller

    def close(self) -> None:
        """Restore the random state, and let the next hold begin."""
        _thread.hold = None
        with _changed:
            if self in _held:  # otherwise it never began, or the pool was closed meanwhile
                self.put_back()
                del _held[_held.index(self) :]
            _changed.notify_all()
