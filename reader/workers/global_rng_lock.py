"""Turns at the global random state: worker threads that seed it do so one at a time.

Imports `reader.data.seeds` and `reader.errors`. The turns are the process's, under one lock; each
pool of threads has a GlobalRngLock. A thread holds its turn while it runs the user's code.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from reader.data import seeds
from reader.errors import ReaderError

__all__ = ["GlobalRngLock"]


class _Thread(threading.local):
    turn: _Turn | None = None  # the one that this thread has


_thread = _Thread()
# Guards _held; the global random state itself belongs to whoever has the last of the turns. It is
# reentrant, because garbage collection may close a pool while the same thread has it.
_changed = threading.Condition(threading.RLock())
_held: list[_Turn] = []  # each but the first was asked for by code that runs in the one before


def _renew() -> None:
    """A child of a fork is alone, whoever had a turn or the lock."""
    global _changed
    _changed = threading.Condition(threading.RLock())
    _held.clear()


os.register_at_fork(after_in_child=_renew)


class GlobalRngLock:
    """The turns of the worker threads of one pool.

    The consumer calls `ask` before it sends a task, and `await_end` when it has the batch; a worker
    thread enters `turn`, and with it the seeded state, while it makes the batch. A loader that is
    iterated over by the dataset of another, in that one's turn, gets its turn within.
    """

    def __init__(self) -> None:
        self._caller: _Turn | None = None
        self._is_closed = False

    def ask(self) -> None:
        """The calling thread waits for the batch that is asked for next."""
        self._caller = _thread.turn

    def turn(self, seed: int) -> AbstractContextManager[Any]:
        """Enter with the global generators seeded, and leave with them as they were before.

        Waits for turns that others have.
        """
        return _Turn(self, self._caller, seed)

    def await_end(self) -> None:
        """Wait until no thread of the pool has a turn.

        A batch is sent in its turn: whoever takes it may be there before the state is put back.
        """
        with _changed:
            _changed.wait_for(lambda: self._is_closed or not self._places())

    def stop(self) -> None:
        """No turn begins any more."""
        with _changed:
            self._is_closed = True
            _changed.notify_all()

    def abandon(self) -> None:
        """Put back what a turn has changed that does not end; what was asked for in it ends too."""
        with _changed:
            places = self._places()
            if places:
                first = _held[places[0]]
                del _held[places[0] :]
                first.put_back()
            _changed.notify_all()

    def _places(self) -> list[int]:
        return [place for place, turn in enumerate(_held) if turn.turns is self]

    @property
    def is_closed(self) -> bool:
        """Whether the pool ends."""
        return self._is_closed


class _Turn(AbstractContextManager["_Turn"]):
    """One batch's turn. `put_back` is called once, with the lock."""

    put_back: Callable[[], None]

    def __init__(self, turns: GlobalRngLock, caller: _Turn | None, seed: int) -> None:
        self.turns = turns
        self._caller = caller
        self._seed = seed

    def __enter__(self) -> _Turn:
        with _changed:
            _changed.wait_for(lambda: self.turns.is_closed or self._is_next())
            if self.turns.is_closed:
                raise ReaderError("the loader was closed before this batch was begun")
            self.put_back = seeds.captured_random_state()
            _held.append(self)
        _thread.turn = self
        try:
            seeds.seed_known_libraries(self._seed)
        except BaseException:
            self.__exit__()
            raise
        return self

    def _is_next(self) -> bool:
        return not _held or _held[-1] is self._caller

    def __exit__(self, *exc: Any) -> None:
        _thread.turn = None
        with _changed:
            if self in _held:  # else the pool was closed meanwhile
                del _held[_held.index(self) :]
                self.put_back()
            _changed.notify_all()
