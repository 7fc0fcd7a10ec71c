"""One epoch of a feeding program: the thread that runs the generator and fills Paddle's queue.

Imports paddle, LoDTensor and failures. The thread refers to the epoch and never to the loader. The
gate keeps the thread of a stopped epoch off the queue, so that it pushes no stale batch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from paddle.base import core

from reader._core.batch.tensor import LoDTensor
from reader._core.interpreter.signals import interrupt_after
from reader.compat.paddle.source import set_place
from reader.errors import start_thread
from reader.exceptions.user_error import as_user_error, with_context
from reader.frameworks.paddle_version import DenseTensor, DenseTensorArray
from reader.log import log as _log

__all__ = ["FeedingEpoch"]

_INIT_WAIT_MS = 50  # the program's first run makes the queue; closing does not wake this wait
_DRAIN_WAIT_S = 0.01  # only after a failure: Paddle has no event for an empty queue
_JOIN_S = 5.0  # how long the user's generator may take to yield its next item
_STOPPED = object()


class FeedingEpoch:
    """Fills the queue with the batches of one epoch.

    Args:
        queue: Paddle's blocking queue; it is closed at the end of the data, and killed after the
            last good batch when the generator raised.
        make_batches: called in the thread; returns an iterator over lists of fields.
        place: paddle's current place in the thread.
    """

    def __init__(
        self, queue: Any, make_batches: Callable[[], Iterator[Iterable[Any]]], place: Any
    ) -> None:
        self.error: BaseException | None = None
        self.is_killed = False  # whether the queue was killed, so that the program fails
        self._queue = queue
        self._make_batches = make_batches
        self._place = place
        self._pushed = 0
        self._gate = threading.Condition()
        self._is_stopped = False  # under the gate; once True the thread leaves the queue alone
        self._is_inside = False  # under the gate: the thread is in a call of the queue
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reader-feeding", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        start_thread(self._thread, "the thread that feeds the program")

    def stop(self) -> None:
        """Keep the thread off the queue from now on. Waits 0.1 s at most, and for no user code."""
        with interrupt_after():  # a Condition that is interrupted may stay locked
            with self._gate:
                self._is_stopped = True
                self._stopping.set()
            self._queue.close()  # wakes a push that waits because the queue is full
            # the garbage collector may call this in that thread
            if threading.current_thread() is not self._thread:
                timeout_s = 2 * _INIT_WAIT_MS / 1000
                with self._gate:
                    self._gate.wait_for(lambda: not self._is_inside, timeout=timeout_s)

    def close(self) -> None:
        """Stop, and wait until the generator yields its next item, 5 s at most."""
        self.stop()
        self._thread.join(_JOIN_S)
        if self._thread.is_alive():
            _log.warning(
                "the generator of a feeding program did not yield its next item within %g s after"
                " reset(); its thread keeps running until the generator yields",
                _JOIN_S,
            )

    def _run(self) -> None:
        try:
            set_place(self._place)
            if not self._wait_for_init():
                return
            batches = self._make_batches()
            try:
                for fields in batches:
                    if self._use_queue(self._queue.push, _as_tensors(fields)) is not True:
                        return
                    del fields  # else the traceback of an error keeps the batch before it alive
                    self._pushed += 1
            finally:
                close = getattr(batches, "close", None)
                if close is not None:
                    close()  # the user's generator ends in this thread, where it ran
            self._use_queue(self._queue.close)
        except BaseException as error:
            self._fail(error)

    def _wait_for_init(self) -> bool:
        """Wait for the first run of the program; return False if stopped before it."""
        while True:
            found = self._use_queue(self._queue.wait_for_inited, _INIT_WAIT_MS)
            if found is not False:
                return found is True

    def _use_queue(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a method of the queue; return _STOPPED instead if the epoch was stopped."""
        with self._gate:
            if self._is_stopped:
                return _STOPPED
            self._is_inside = True
        try:
            return function(*args)
        finally:
            with self._gate:
                self._is_inside = False
                self._gate.notify_all()

    def _fail(self, error: BaseException) -> None:
        """Keep and log what the generator raised, and let the program fail in its place."""
        where = f"the generator of a feeding program, after {self._pushed} batches"
        self.error = with_context(as_user_error(error), where=where, traceback_text="")
        _log.error(
            "the generator of a feeding program raised an exception after %d batches: exe.run fails"
            " when it has read them, and reset() raises the exception",
            self._pushed,
            exc_info=self.error,
        )
        # killing the queue drops what is queued, and Paddle has no event for an empty queue
        while self._queue.size() > 0:
            if self._stopping.wait(_DRAIN_WAIT_S):
                return
        self.is_killed = self._use_queue(self._queue.kill) is not _STOPPED


def _as_tensors(fields: Iterable[Any]) -> Any:
    """Return the fields as a DenseTensorArray.

    Arrays are copied into paddle's own memory. Shared memory would belong to a Python object, which
    the executor may release in its own thread, for which it needs the GIL: a program that ends the
    executor meanwhile holds the GIL and waits for that thread, which is a deadlock.
    """
    tensors = DenseTensorArray()
    for field in fields:
        dense = field
        if isinstance(field, LoDTensor):
            dense = DenseTensor()
            dense.set(field.storage(), core.CPUPlace())
            dense.set_lod(field.lod)
        elif isinstance(field, np.ndarray):
            dense = DenseTensor()
            dense.set(field, core.CPUPlace())
        tensors.append(dense)
    return tensors
