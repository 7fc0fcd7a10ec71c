"""Reports whether each `worker_init_fn` has returned, so that `iter` can raise its exception.

Imports the standard library and the worker loop's form of errors. A StartReport belongs to one
iterator; its function travels to the workers, and each writes one message.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

from reader._core.interpreter.signals import interrupt_after
from reader._core.wire.failure import Failure, FailureKind
from reader.errors import LoadTimeout
from reader.worker.loop import WorkerError, carried

__all__ = ["StartReport"]

_DONE = b""


class StartReport:
    """Waits for the starts of all workers of a new pool.

    Args:
        function: the user's `worker_init_fn`.
        is_thread: the workers are threads of this process.
    """

    def __init__(self, function: Callable[[int], Any], is_thread: bool) -> None:
        self._reader, writer = multiprocessing.Pipe(duplex=False)
        self.function = ReportingInit(function, writer, is_thread)

    def failure(self, handles: list[Any], epoch: int, timeout_s: float | None) -> Failure | None:
        """Wait until each worker has started; return the failure of one that did not, or None.

        The engine handles a worker that ended without a message. Raises LoadTimeout when
        `timeout_s` have passed; None: it waits as long as it takes.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        pidfds: dict[int, int] = {}
        try:
            waited = set(range(len(handles)))
            for worker_id, handle in enumerate(handles):
                if not self.function.is_thread:
                    with contextlib.suppress(ProcessLookupError), interrupt_after():
                        pidfds[os.pidfd_open(handle.pid)] = worker_id
            while waited:
                rest = None if deadline is None else max(0.0, deadline - time.monotonic())
                ready = wait([self._reader, *pidfds], rest)
                if not ready:
                    raise LoadTimeout(
                        f"worker_init_fn has not returned within timeout={timeout_s:g} s in workers"
                        f" {sorted(waited)}. Raise timeout, or find what blocks in worker_init_fn",
                        timeout_s=timeout_s,
                        batch=0,
                        epoch=epoch,
                    )
                if self._reader in ready:
                    worker_id, payload = self._reader.recv()
                    if payload != _DONE:
                        failed = self.function.errors.get(worker_id, payload)
                        return Failure(FailureKind.START, -1, epoch, worker_id, failed)
                    waited.discard(worker_id)
                    continue  # what an ended worker wrote is read first
                for pidfd in ready:
                    with interrupt_after():
                        waited.discard(pidfds.pop(pidfd))  # type: ignore[arg-type]
                        os.close(pidfd)  # type: ignore[arg-type]
            return None
        finally:
            with interrupt_after():
                for pidfd in pidfds:
                    os.close(pidfd)
                self._reader.close()
                self.function.close()


class ReportingInit:
    """A `worker_init_fn` that calls the user's and reports how it ended.

    Args:
        function: the user's.
        writer: for the reports; closed once all workers have started.
        is_thread: the workers are threads; exceptions are passed as they are.
    """

    def __init__(
        self, function: Callable[[int], Any], writer: Connection | None, is_thread: bool
    ) -> None:
        self._function = function
        self._writer = writer
        self.is_thread = is_thread
        self.errors: dict[int, WorkerError] = {}  # of threads

    def __call__(self, worker_id: int) -> None:
        try:
            self._function(worker_id)
        except BaseException as error:
            if self.is_thread:
                self.errors[worker_id] = WorkerError(error, "")
                self._say(worker_id, b"failed")
            else:
                self._say(worker_id, carried(error))
            raise
        self._say(worker_id, _DONE)

    def _say(self, worker_id: int, payload: bytes) -> None:
        writer = self._writer
        if writer is None or writer.closed:
            return  # this worker takes the place of one that ended
        with contextlib.suppress(OSError):  # no one waits any more
            writer.send((worker_id, payload))

    def close(self) -> None:
        """Report nothing from now on."""
        if self._writer is not None:
            self._writer.close()

    def __getstate__(self) -> dict[str, Any]:
        writer = self._writer
        is_open = writer is not None and not writer.closed
        return {**self.__dict__, "_writer": writer if is_open else None}
