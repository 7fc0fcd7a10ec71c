"""A backend without workers: the thread that iterates makes each batch when it asks for it.

Imports the worker's loop. Faces choose it for `num_workers=0`: there is no thread and no arena, and
a batch is the very object that `collate_fn` returned. One backend serves one iterator.
"""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar, Literal

from reader._core.channel import TaskKind
from reader._core.feeder import Failure, FailureKind, LostTasks, WorkerProgress
from reader._core.signals import is_interrupt
from reader.data.seeds import captured_random_state
from reader.engine.backends.backend import Death, UserBatch, WorkerStatus
from reader.workers import context
from reader.workers.global_rng_lock import GlobalRngLock
from reader.workers.loop import WorkerConfig, WorkerError, WorkerLoop
from reader.workers.stream import StreamFetcher

__all__ = ["InlineBackend"]

_RUN = 1


class LocalChannel:
    """The channel of a fetcher that runs in the trainer: it keeps the answer, and sends nothing."""

    def __init__(self) -> None:
        self.run = _RUN
        self.epoch = 0
        self.seq = 0
        self.position = -1
        self.is_stale = False
        self.drew_all = False
        self.answer: UserBatch | Failure | None = None
        self._attachment: Callable[[], Any] | None = None

    def set_attachment(self, make: Callable[[], Any] | None) -> None:
        """See WorkerChannel."""
        self._attachment = make

    def write(self, batch: Any) -> None:
        """Keep a batch."""
        attached = None if self._attachment is None else self._attachment()
        self.answer = UserBatch(self.seq, batch, attached)

    def end(self, attached: Any = None) -> None:
        """Note that there are no more batches."""
        self.answer = Failure(FailureKind.END, self.seq, self.epoch, 0, attached)

    def refuse(self, error: WorkerError) -> None:
        """Keep an exception. That of a signal is raised at once; its batch is made again."""
        if is_interrupt(error.error):
            raise error.error
        self.answer = Failure(FailureKind.ERROR, self.seq, self.epoch, 0, error)


class InlineBackend:
    """Makes batches in the thread that takes them. It is its own feeder.

    Args:
        config: what a worker would be given; with a `collate_fn`.
        window, max_bytes, start_method: see Backend; nothing is made ahead or started.
    """

    works_ahead: ClassVar[bool] = False
    takes_keys: ClassVar[bool] = True
    makes_user_batches: ClassVar[bool] = True
    workers = 1
    window = 1
    is_usable = True
    is_open = True
    queued = 0

    def __init__(
        self,
        config: WorkerConfig,
        window: int = 1,  # noqa: ARG002
        max_bytes: int | None = None,  # noqa: ARG002
        start_method: str | None = None,  # noqa: ARG002
    ) -> None:
        self.rng_lock = GlobalRngLock()
        self.sent = self.sends = self.accepted = 0
        self._config = config
        self._channel = LocalChannel()
        self._loop = WorkerLoop(self._channel, config, 0, None, self.rng_lock)
        self._tasks: deque[tuple[int, int, Any]] = deque()  # (seq, kind, payload)
        self._current: UserBatch | Failure | None = None  # taken, and not accepted

    @property
    def feeder(self) -> InlineBackend:
        """This object: it is its own feeder."""
        return self

    # -- as a feeder -----------------------------------------------------------------------------

    def begin_run(self, epoch: int, next_seq: int = 0, in_order: bool = True) -> None:  # noqa: ARG002
        """See Feeder."""
        self._channel.epoch = epoch
        self.accepted = self.sent = next_seq

    def dispatch(self, seq: int, kind: int, payload: Any, worker: int = -1) -> bool:  # noqa: ARG002
        """Note a task, or begin an epoch at once."""
        if kind == TaskKind.TASK_EPOCH:
            self._start_epoch(payload)
            return True
        self._tasks.append((seq, kind, payload))
        self.sends += 1
        self.sent = max(self.sent, seq + 1)
        return True

    def take(
        self,
        timeout: float | None = None,  # noqa: ARG002
    ) -> UserBatch | Failure | Literal[False] | None:
        """Make the batch of the next task; None without one. The same comes until `accept`."""
        if self._current is None and self._tasks:
            seq, kind, payload = self._tasks[0]
            channel = self._channel
            channel.seq = seq
            channel.answer = None
            with context.in_task():
                self._loop.step(kind, payload)
            self._current, channel.answer = channel.answer, None
            self._tasks.popleft()
        return self._current

    def accept(self) -> None:
        """See Feeder."""
        self._current = None
        self.accepted += 1

    def ended_workers(self) -> list[int]:
        """Return nothing: no worker ends."""
        return []

    def failed_worker(self) -> None:
        """Return nothing: no worker starts."""

    def detach(self, worker: int) -> LostTasks:  # noqa: ARG002
        """Return that nothing was lost: no worker ends."""
        return LostTasks([], None, True, False)

    def give_up(self, seq: int, worker: int, is_end: bool = False) -> None:
        """Do nothing: each task is answered."""

    @property
    def is_told(self) -> bool:
        """Return True: `open_epoch` notes the state at once."""
        return True

    def told_state(self, worker: int) -> Any:  # noqa: ARG002
        """Return None: nobody is asked."""
        return None

    def worker_progress(self, worker: int) -> WorkerProgress:  # noqa: ARG002
        """Return that it is idle: whoever asks is the worker."""
        return WorkerProgress(0, None, -1, 0.0)

    def is_busy(self) -> bool:
        """Return False: whoever asks is the worker."""
        return False

    def trim(self) -> None:
        """Do nothing: there is no arena."""

    # -- as a backend ----------------------------------------------------------------------------

    def open_epoch(self, send_starts: Callable[[], bool], cursor: Any) -> None:
        """Begin the epoch of the dataset now, and note the state that it has then."""
        send_starts()
        loop = self._loop
        is_stream = isinstance(loop.fetcher, StreamFetcher)
        workers = cursor.workers
        if workers is None or workers.all[0].made or (is_stream and workers.all[0].is_ended):
            if isinstance(loop.fetcher, StreamFetcher) and workers and workers.all[0].is_ended:
                self._pass_end(loop.fetcher)
            return
        if loop.start_error is not None or (is_stream and self._seeds_globals):
            return  # seeded: `__iter__` is called when the first batch is made
        try:
            found = loop.fetcher.enter(_RUN)
        except Exception as error:
            if is_interrupt(error):
                raise
            loop.start_error = error
            return
        if found is not None:
            workers.note(found)

    @property
    def _seeds_globals(self) -> bool:
        return self._config.seed is not None and self._config.seed_globals

    def _start_epoch(self, payload: bytes) -> None:
        put_own_back = captured_random_state() if self._seeds_globals else None
        try:
            self._loop.step(TaskKind.TASK_EPOCH, pickle.loads(payload))
        finally:
            if put_own_back is not None:  # a state may set the random state: each batch has its own
                put_own_back()

    def _pass_end(self, fetcher: StreamFetcher) -> None:
        try:
            fetcher.pass_end()
        except Exception as error:
            if is_interrupt(error):
                raise
            self._loop.start_error = error

    def replace_ended(self) -> list[Death]:
        """Return nothing: nobody dies."""
        return []

    def name_of(self, worker: int) -> str:  # noqa: ARG002
        """Name the worker in a message."""
        return "the thread that iterates (num_workers=0)"

    def open_error(self, payload: WorkerError) -> WorkerError:
        """Return what was raised in the place of a batch."""
        return payload

    @property
    def handles(self) -> list[Any]:
        """Nobody."""
        return []

    def statuses(self) -> list[WorkerStatus]:
        """Return nothing: there is no worker."""
        return []

    def cancel_epoch(self) -> None:
        """Drop what was asked for."""
        self._tasks.clear()

    def close_soon(self) -> None:
        """Nothing runs."""

    def close(self) -> None:
        """Nothing runs."""
