"""Worker threads of the trainer: how they are started, and what is waited for at their end.

Imports the channel and this room's loop. The pool that makes a WorkerThreads owns it; nothing can
end a thread that runs the user's code, and so it is waited for, and not for ever.
"""

from __future__ import annotations

import threading
import time

from reader._core.channel import WorkerChannel
from reader.errors import InternalError, ReaderError
from reader.workers import loop
from reader.workers.interrupt import interrupt_after
from reader.workers.random_turns import RandomTurns

__all__ = ["WorkerThreads"]


class WorkerThreads:
    """The worker threads of one pool. `start` and `join` are for its owner, one at a time."""

    def __init__(self) -> None:
        self.turns = RandomTurns()
        self.all: list[threading.Thread] = []  # in the order of their numbers

    def start(self, channel: WorkerChannel, config: loop.WorkerConfig) -> None:
        """Start the next worker. `config` is what each is given.

        Raises:
            ReaderError: the system refuses another thread.
        """
        worker_id = len(self.all)
        name = f"reader-worker-{worker_id}" if config.num_workers else "reader-worker"
        thread = threading.Thread(
            target=_work,
            args=(channel, config, worker_id, self.turns),
            name=name,
            daemon=True,  # one that is stuck in the user's code does not keep the process
        )
        with interrupt_after():  # else it may run and not be noted
            try:
                thread.start()
            except RuntimeError as error:
                raise ReaderError(
                    f"cannot start the worker thread {worker_id}: {error}; raise the limit on"
                    " threads (ulimit -u) or on virtual memory (ulimit -v)"
                ) from error
            self.all.append(thread)

    def join(self, timeout_s: float) -> bool:
        """Wait until they have ended, or the time is over; whether they have.

        The pool was stopped: each ends after the sample it is at.
        """
        self.turns.stop()
        deadline = time.monotonic() + timeout_s
        for thread in self.all:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))
        self.turns.abandon()
        return not any(thread.is_alive() for thread in self.all)


def _work(
    channel: WorkerChannel, config: loop.WorkerConfig, worker_id: int, turns: RandomTurns
) -> None:
    """Be a worker. What ends the loop itself is told too: nobody sees the end of a thread."""
    try:
        loop.run(channel, config, worker_id, turns)
    except BaseException as error:
        told = InternalError(f"worker thread {worker_id} ended: {error!r}")
        told.__cause__ = error
        channel.fail((told, "", -1))
