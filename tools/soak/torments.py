"""Disturbances of a working loader: signals to its workers and to the trainer, by a timer.

Imports the standard library alone. Torments belong to the main thread, whose SIGALRM they take.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Collection
from types import CodeType, FrameType

__all__ = ["TORMENTS", "Alarm", "Torments"]

# What is done: signals that end or stop a worker; a handler that raises in the trainer, also while
# it makes an iterator, or that does not raise; an epoch left early, or resumed by another loader.
TORMENTS = ("kill", "segv", "stop", "interrupt", "start", "wake", "break", "resume")

SIGNALS = {"kill": signal.SIGKILL, "segv": signal.SIGSEGV, "stop": signal.SIGSTOP}


class Alarm(Exception):
    """The exception of the handler of SIGALRM in the trainer."""


class Torments:
    """Signals that are due at some time; close it when it is not needed any more.

    Args:
        rng: chooses.
        counts: what was done, by name.
        spared: code of the dataset in which the handler does not raise: an iterator that has drawn
            a sample loses it, as any program would.

    Attributes:
        may_raise: the trainer is in the loader: the handler may raise.
    """

    def __init__(
        self, rng: random.Random, counts: Counter[str], spared: Collection[CodeType] = ()
    ) -> None:
        self.may_raise = False
        self._spared = spared
        self._rng = rng
        self._counts = counts
        self._due: list[tuple[float, int, str, int]] = []  # (when, number, what, pidfd)
        self._number = 0
        self._before = signal.signal(signal.SIGALRM, self._ring)

    def add(self, name: str, pids: list[int]) -> None:
        """Do something after a random moment: to one of the workers, or to the trainer."""
        fd = -1
        if name in SIGNALS:
            if not pids:
                return
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(self._rng.choice(pids))
            if fd < 0:
                return
        moment = self._rng.choice([0.0, 0.0005, 0.003, 0.02]) * self._rng.random()
        self._push(moment, name, fd)

    def _push(self, moment: float, name: str, fd: int) -> None:
        self._number += 1
        heapq.heappush(self._due, (time.monotonic() + moment, self._number, name, fd))
        self._set()

    def _set(self) -> None:
        if self._due:
            left = self._due[0][0] - time.monotonic()
            signal.setitimer(signal.ITIMER_REAL, max(left, 1e-5))

    def _ring(self, _: int, frame: FrameType | None) -> None:
        name = ""
        if self._due and self._due[0][0] <= time.monotonic():
            name, fd = heapq.heappop(self._due)[2:]
            self._do(name, fd)
        self._set()
        if name == "interrupt" and self.may_raise and not self._is_spared(frame):
            self.may_raise = False
            self._counts["interrupt"] += 1
            raise Alarm

    def _is_spared(self, frame: FrameType | None) -> bool:
        while frame is not None:
            if frame.f_code in self._spared:
                return True
            frame = frame.f_back
        return False

    def _do(self, name: str, fd: int) -> None:
        if name == "continue":
            _send(fd, signal.SIGCONT)
            os.close(fd)
        elif name in SIGNALS:
            self._counts[name] += _send(fd, SIGNALS[name])
            if name == "stop":
                self._push(self._rng.choice([0.01, 0.1, 0.3]), "continue", fd)
            else:
                os.close(fd)

    def clear(self) -> None:
        """Let stopped workers go on, and cancel what is still due."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        due, self._due = self._due, []
        for each in due:
            name, fd = each[2:]
            if name == "continue":
                _send(fd, signal.SIGCONT)
            if fd >= 0:
                os.close(fd)

    def close(self) -> None:
        """Restore the handler of SIGALRM."""
        self.clear()
        signal.signal(signal.SIGALRM, self._before)


def _send(fd: int, number: int) -> bool:
    try:
        signal.pidfd_send_signal(fd, number)
    except ProcessLookupError:
        return False
    return True
