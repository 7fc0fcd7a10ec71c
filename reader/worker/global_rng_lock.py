"""A lock on the global random state: worker threads that seed it take turns.

Imports `reader.random.seeds` and `reader.errors`. One lock guards all turns of the process; each
pool of threads has a GlobalRngLock. A thread holds its turn while it runs the user's code. Signals
are held back while the lock is: a Condition that is interrupted may stay locked.
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


_LOOK_S = 0.2  # in the main thread, a wait for a turn ends after that to look for signals


class _Thread(threading.local):
    turn: _Turn | None = None  # the turn that this thread holds


_thread = _Thread()
# Guards _held; the thread with the last turn owns the global random state. Reentrant, because
# garbage collection may close a pool in a thread that holds the lock.
_changed = threading.Condition(threading.RLock())
_held: list[_Turn] = []  # code that runs in one turn asked for the turn after it


def _renew() -> None:
    """Free the lock and the turns in a forked child: their threads do not exist there."""
    global _changed
    _changed = threading.Condition(threading.RLock())
    _held.clear()


os.register_at_fork(after_in_child=_renew)


class GlobalRngLock:
    """The turns of the worker threads of one pool.

    The consumer calls `ask` before it sends a task, and `await_end` when it has the batch. A worker
    thread makes the batch within `turn`, with the state seeded. If a dataset itself iterates over a
    loader with such threads, these take turns within the turn of the dataset's worker.
    """

    def __init__(self) -> None:
        self._caller: _Turn | None = None
        self._is_closed = False

    def ask(self) -> None:
        """Note the turn of the calling thread, which will wait for the next task's batch."""
        self._caller = _thread.turn

    def turn(self, seed: int | None) -> AbstractContextManager[Any]:
        """Return a context that seeds the global generators, and restores them on leaving.

        Entering it waits until other threads have ended their turns. None leaves the generators
        alone: what is seeded in this turn is something else that the threads share.
        """
        return _Turn(self, self._caller, seed)

    def await_end(self) -> None:
        """Wait until no thread of the pool has a turn.

        A worker sends its batch within its turn: the batch may arrive before the state is restored.
        """
        if not _held:
            return
        with interrupt_after(), _changed:  # the user's code has ended: it takes a moment
            _changed.wait_for(lambda: self._is_closed or not self._places())

    def stop(self) -> None:
        """Let no further turn begin."""
        with _changed:
            self._is_closed = True
            _changed.notify_all()

    def abandon(self) -> None:
        """Restore the state that an unfinished turn has changed; the turns within it end too."""
        with _changed:
            places = self._places()
            if places:
                _held[places[0]].put_back()
                del _held[places[0] :]
            _changed.notify_all()

    def _places(self) -> list[int]:
        return [place for place, turn in enumerate(_held) if turn.lock is self]

    @property
    def is_closed(self) -> bool:
        """Whether `stop` was called."""
        return self._is_closed


class _Turn(SafeExit):
    """The turn of one batch. `put_back` is called once, while `_changed` is held."""

    put_back: Callable[[], object]

    def __init__(self, lock: GlobalRngLock, caller: _Turn | None, seed: int | None) -> None:
        self.lock = lock
        self._caller = caller
        self._seed = seed

    def __enter__(self) -> _Turn:
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
        """Wait for the turn; False: it has not come, and a signal may have to be handled."""
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
            _thread.turn = self
        return True

    def _is_next(self) -> bool:
        return not _held or _held[-1] is self._caller

    def end(self) -> None:
        """Put the random state back, and let the next turn begin."""
        _thread.turn = None
        with _changed:
            if self in _held:  # else it never began, or the pool was closed meanwhile
                self.put_back()
                del _held[_held.index(self) :]
            _changed.notify_all()
