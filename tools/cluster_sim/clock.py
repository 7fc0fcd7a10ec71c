"""A virtual clock, and programs that run on it one at a time.

Imports the standard library. All belongs to the thread that calls `Clock.run`; the program that it
has resumed has the baton until it waits.
"""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Callable

__all__ = ["Clock", "Ended", "Program"]


class Ended(BaseException):
    """The simulation is over: raised in programs that wait."""


class Clock:
    """Runs due calls in the order of their times; calls of one time in the order of requests.

    Attributes:
        now: seconds since the beginning.
        events: that were called.
        is_over: `run` has returned, or is about to.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.is_over = False
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = itertools.count()
        self._programs: list[Program] = []

    def at(self, when: float, call: Callable[[], None]) -> None:
        """Request a call at a time, or now if that has passed."""
        heapq.heappush(self._heap, (max(when, self.now), next(self._numbers), call))

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Request a call after some seconds."""
        self.at(self.now + seconds, call)

    def start(self, body: Callable[[Program], None]) -> None:
        """Start a program now."""
        program = Program(self, body)
        self._programs.append(program)
        self.after(0, program.resume)

    def run(self, until: float) -> None:
        """Run all calls due before a time; then end the programs.

        Raises:
            BaseException: what a program raised.
        """
        try:
            while self._heap and self._heap[0][0] <= until:
                self.now, _, call = heapq.heappop(self._heap)
                self.events += 1
                call()
        finally:
            self.is_over = True
            for program in self._programs:
                program.resume()
        self.now = until


class Program:
    """A thread that runs only while the clock waits for it.

    Args:
        clock: that it runs on.
        body: called with it.
    """

    def __init__(self, clock: Clock, body: Callable[[Program], None]) -> None:
        self.clock = clock
        self._body = body
        self._go, self._back = threading.Lock(), threading.Lock()
        self._go.acquire()
        self._back.acquire()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._error: BaseException | None = None
        self._is_waiting = self._is_late = False
        self._waits = 0  # so far
        self._is_done = False

    @property
    def is_done(self) -> bool:
        """Whether its body has returned."""
        return self._is_done

    def _run(self) -> None:
        self._go.acquire()
        try:
            if not self.clock.is_over:
                self._body(self)
        except Ended:
            pass
        except BaseException as error:
            self._error = error
        finally:
            self._is_done = True
            self._back.release()

    def resume(self) -> None:
        """Let it run until it waits. Raises what it raised."""
        if self.is_done:
            return
        if self._thread.ident is None:
            self._thread.start()
        self._go.release()
        self._back.acquire()
        if self._is_done:
            self._thread.join()
        if self._error is not None:
            error, self._error = self._error, None
            raise error

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait until `wake`; called by the program itself. False: the time has passed before."""
        self._waits += 1
        self._is_waiting, self._is_late = True, False
        if timeout_s is not None:
            number = self._waits
            self.clock.after(timeout_s, lambda: self._end_wait(number))
        self._pause()
        return self._is_awake()

    def _is_awake(self) -> bool:
        return not self._is_late

    def _end_wait(self, number: int) -> None:
        if self._is_waiting and self._waits == number:
            self._is_waiting, self._is_late = False, True
            self.resume()

    def wake(self) -> None:
        """End its `wait`, if it waits."""
        if self._is_waiting:
            self._is_waiting = False
            self.clock.after(0, self.resume)

    def sleep(self, seconds: float) -> None:
        """Let time pass; called by the program itself."""
        self.clock.after(seconds, self.resume)
        self._pause()

    def _pause(self) -> None:
        self._back.release()
        self._go.acquire()
        if self.clock.is_over:
            raise Ended
