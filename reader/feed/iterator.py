"""The iterator over one epoch: fills the window, takes batches, reports trouble at its place.

Imports the dispatcher, the pool and failures. An iterator is used by one thread at a time, in the
process that made it; dropping it gives its pool back.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import pickle
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reader._core.channel import decode_task
from reader._core.feeder import Failure
from reader._core.tensor import LoDTensorArray
from reader.data.exception_codec import add_note
from reader.data.failure import as_user_error, decode, with_context
from reader.errors import (
    ArenaFull,
    DatasetError,
    LoadTimeout,
    ReaderError,
    SamplerError,
    WorkerDied,
    shown,
)
from reader.feed.dispatcher import Dispatcher
from reader.feed.keeper import PoolKeeper
from reader.workers.pool import Death, Pool, PoolState, died

__all__ = ["EpochIterator", "EpochOptions", "WaitStats"]

_log = logging.getLogger("reader")
_IDLE_DEATHS = 3  # in a row without any batch, per worker: something kills them all


class IteratorState(enum.Enum):
    """RUNNING -> DONE."""

    RUNNING = "running"
    DONE = "done"


@dataclasses.dataclass
class WaitStats:
    """What the consumer saw: how often and how long it waited for batches."""

    batches: int = 0
    wait_s: float = 0.0
    last_wait_s: float = 0.0


@dataclasses.dataclass(frozen=True)
class EpochOptions:
    """How one epoch is run."""

    epoch: int
    timeout_s: float | None
    worker_retries: int
    is_eager: bool  # False: a batch is asked for only while the consumer waits for it


class EpochIterator(Iterator[Any]):
    """Yields the batches of one epoch in sampler order.

    Args:
        keeper: lends the pool.
        dispatcher: yields the tasks.
        convert: makes the user's batch of a LoDTensorArray.
        options: see EpochOptions.
        stats: counted up while iterating.
    """

    def __init__(
        self,
        keeper: PoolKeeper,
        dispatcher: Dispatcher,
        convert: Callable[[LoDTensorArray], Any],
        options: EpochOptions,
        stats: WaitStats,
    ) -> None:
        self._dispatcher = dispatcher
        self._convert = convert
        self._options = options
        self._stats = stats
        self._state = IteratorState.RUNNING
        self._dispatched = 0
        self._delivered = 0
        self._held: deque[tuple[int, int, bytes]] = deque()  # tasks no worker could take yet
        self._tasks: dict[int, tuple[int, bytes]] = {}  # batch -> its task, to send it again
        self._deaths: dict[int, list[Death]] = {}  # batch -> workers that died at it
        self._idle_deaths = 0
        self._drained = False
        self._trouble: BaseException | None = None  # of the sampler, raised after the last batch
        self._pool: Pool = keeper.borrow()
        # dropping the iterator gives the pool back, in whatever thread that happens
        self._finalizer = weakref.finalize(self, keeper.give_back, self._pool)
        self._finalizer.atexit = False
        self._window = self._pool.window if options.is_eager else 1
        self._feeder = self._pool.feeder
        self._feeder.begin_run(options.epoch)
        if options.is_eager:
            self._fill()

    def __iter__(self) -> EpochIterator:
        return self

    def close(self) -> None:
        """End the epoch here: the workers are free for another one. Idempotent."""
        self._state = IteratorState.DONE
        self._finalizer()

    def __next__(self) -> Any:
        if self._state is IteratorState.DONE:
            raise StopIteration
        self._check_pool()
        if self._dispatched - len(self._held) == self._delivered or not self._options.is_eager:
            self._fill()
            if self._dispatched == self._delivered:
                self._finish()
        while True:
            item = self._take()
            if type(item) is LoDTensorArray:
                break
            if item.kind == "full" and self._window > 1:
                self._shrink()
                continue
            failure = self._failure(item, decode_task(*self._tasks[self._delivered]))
            self._accept()
            raise failure
        if self._options.is_eager:
            self._fill(1)  # runs the user's sampler, and Ctrl-C may come: the item is still there
        try:
            batch = self._convert(item)
        except Exception:
            self._accept()
            raise
        self._idle_deaths = 0
        self._stats.batches += 1
        self._accept()
        return batch

    def _accept(self) -> None:
        """Count what was taken as delivered; until then `take` gives it again."""
        del self._tasks[self._delivered]
        self._delivered += 1
        self._feeder.accept()

    def _check_pool(self) -> None:
        if self._pool.state is PoolState.OPEN:
            if self._pool.is_usable:
                return
            raise ReaderError(
                "this iterator belongs to the process that forked this one; its workers do not"
                " exist here: make a new iterator, iter(loader), after the fork"
            )
        self._state = IteratorState.DONE
        raise ReaderError(
            f"the loader was closed after {self._delivered} batches of epoch"
            f" {self._options.epoch}; iterate over the loader again to start anew"
        )

    def _finish(self) -> None:
        trouble, self._trouble = self._trouble, None
        self.close()
        if trouble is not None:
            raise trouble
        raise StopIteration

    # -- dispatching -----------------------------------------------------------------------------

    def _fill(self, taken: int = 0) -> None:
        """Keep the window full: as many batches in flight as the pool allows.

        `taken`: how many batches have left the queue and are not counted as delivered yet.
        """
        window = self._window + taken
        while self._held and self._in_flight < window:
            if not self._feeder.dispatch(*self._held[0]):
                return
            self._held.popleft()
        while not self._drained and self._dispatched - self._delivered < window:
            try:
                drawn = self._dispatcher.draw()
                if drawn is None:
                    self._drained = True
                    return
                kind, payload = drawn
                task = (self._dispatched, kind, payload)
                sent = self._feeder.dispatch(*task)
            except KeyboardInterrupt as error:
                self._drained = True
                self._trouble = SamplerError(
                    f"the sampler was interrupted while it made batch {self._dispatched} of epoch"
                    f" {self._options.epoch} and cannot go on; iterate over the loader again"
                )
                self._trouble.__cause__ = error
                raise
            except BaseException as error:  # the sampler's: told after the batches before it
                self._drained = True
                self._trouble = as_user_error(error)
                return
            self._tasks[self._dispatched] = (kind, payload)
            self._dispatched += 1
            if not sent:
                self._held.append(task)
                return

    @property
    def _in_flight(self) -> int:
        return self._dispatched - len(self._held) - self._delivered

    def _shrink(self) -> None:
        """There is no memory for the next batch: keep fewer in flight, and make it again."""
        self._window //= 2
        _log.warning(
            "memory is short: batches in flight are reduced to %d for the rest of epoch %d",
            self._window,
            self._options.epoch,
        )
        self._held = deque((seq, *task) for seq, task in sorted(self._tasks.items()))
        self._feeder.begin_run(self._options.epoch, self._delivered)
        self._settle()  # what the workers still sent is dropped by now
        self._feeder.trim()
        self._settle()
        self._fill()

    def _settle(self) -> None:
        """Wait until no worker has anything to do; `timeout` at most."""
        while self._feeder.is_busy():
            if self._feeder.take(self._options.timeout_s) is False:
                return
            self._attend()

    # -- taking ----------------------------------------------------------------------------------

    def _take(self) -> Any:
        """The next batch or Failure, with its waiting time counted."""
        item = self._feeder.take(0)
        if item is not False and item is not None:
            self._stats.last_wait_s = 0.0
            return item
        began = time.monotonic()
        deadline = None if self._options.timeout_s is None else began + self._options.timeout_s
        try:
            while True:
                if item is None:
                    self._attend()
                    self._fill()
                rest = None if deadline is None else max(0.0, deadline - time.monotonic())
                # a worker thread that has the random state in its hands is waited for: it is told
                # that the batch is late when it comes, and the batch is kept for the next call
                item = self._feeder.take(rest if self._options.is_eager else None)
                if item is False or (rest == 0.0 and item is not None):
                    raise self._late()
                if item is not None:
                    return item
        finally:
            self._stats.last_wait_s = time.monotonic() - began
            self._stats.wait_s += self._stats.last_wait_s

    def _attend(self) -> None:
        """Something besides batches happened: a worker failed to start, died, or has room."""
        if self._state is IteratorState.DONE:
            raise ReaderError("the iterator was closed by another thread while it was waited on")
        self._check_pool()
        failed = self._feeder.failed_worker()
        if failed is not None:
            exc, text, _ = self._carried(failed.payload)
            where = f"the start of worker {failed.worker}, before epoch {self._options.epoch}"
            self._abort()
            raise as_user_error(with_context(exc, where=where, traceback_text=text))
        for death in self._pool.replace_ended():
            self._mourn(death)

    def _mourn(self, death: Death) -> None:
        """Give the batches of a dead worker to others, or up."""
        for seq in sorted(death.lost):
            if seq == death.busy:
                deaths = self._deaths.setdefault(seq, [])
                deaths.append(death)
                if len(deaths) > self._options.worker_retries:
                    self._feeder.give_up(seq, death.worker_id)
                    continue
            self._held.append((seq, *self._tasks[seq]))
        self._held = deque(sorted(self._held))
        if death.busy is None:
            self._idle_deaths += 1
            if self._idle_deaths > _IDLE_DEATHS * self._pool.workers:
                self._abort()
                raise died(death, self._options.epoch, None)

    def _abort(self) -> None:
        """The workers cannot go on: end them; the next epoch starts with new ones."""
        self._state = IteratorState.DONE
        self._pool.close_soon()
        self._finalizer()

    # -- trouble ---------------------------------------------------------------------------------

    def _late(self) -> LoadTimeout:
        """A batch did not come in time. It still may: iterating on waits for it again."""
        at = []
        for worker in range(self._pool.workers):
            pid, seq, row, seconds = self._feeder.worker_progress(worker)
            if seq is None:
                at.append(f"worker {worker} (pid {pid}) is idle")
            else:
                keys = decode_task(*self._tasks[seq]) if seq in self._tasks else []
                sample = f" (dataset index {keys[row]!r})" if 0 <= row < len(keys) else ""
                at.append(
                    f"worker {worker} (pid {pid}) is at batch {seq}, sample {row}{sample} for"
                    f" {seconds:.1f} s"
                )
        return LoadTimeout(
            f"batch {self._delivered} of epoch {self._options.epoch} did not come within"
            f" timeout={self._options.timeout_s:g} s: {'; '.join(at)}. Iterate on to wait for it"
            " again, or raise timeout",
            timeout_s=self._options.timeout_s,
            batch=self._delivered,
            epoch=self._options.epoch,
        )

    def _failure(self, item: Failure, indices: Any) -> BaseException:
        """The exception to raise in the place of a batch."""
        epoch = self._options.epoch
        if item.kind == "full":
            return ArenaFull(
                f"no memory for batch {item.seq} of epoch {epoch}: it needs {item.need_bytes:,}"
                f" bytes of shared memory, {item.have_bytes:,} are left and the limit is"
                f" {item.limit_bytes:,}. Lower batch_size, prefetch_factor or num_workers, keep"
                f" fewer batches alive, or raise {item.knob}",
                need_bytes=item.need_bytes,
                have_bytes=item.have_bytes,
                limit_bytes=item.limit_bytes,
                knob=item.knob,
            )
        if item.kind == "open":
            error = DatasetError(
                f"batch {item.seq} of epoch {epoch} arrived and cannot be opened: {item.payload!r};"
                " an object in it does not survive pickling"
            )
            error.__cause__ = item.payload
            return error
        if item.kind == "lost":
            return self._death_of(item.seq, indices)
        exc, text, row = self._carried(item.payload)
        sample = ""
        if 0 <= row < len(indices):
            sample = f"dataset index {indices[row]!r} (sample {row} of the batch), "
        where = f"{sample}batch {item.seq} of epoch {epoch}, dataset indices {shown(indices)}, by "
        if self._pool.config.num_workers == 0:
            where += "the worker thread (num_workers=0)"
        else:
            pid = self._feeder.worker_progress(item.worker)[0]
            where += f"worker {item.worker} (pid {pid})"
        return as_user_error(with_context(exc, where=where, traceback_text=text))

    def _death_of(self, seq: int, indices: Any) -> WorkerDied:
        deaths = self._deaths.pop(seq)
        error = died(deaths[-1], self._options.epoch, list(indices))
        if len(deaths) > 1:
            pids = ", ".join(str(death.pid) for death in deaths)
            add_note(error, f"reader: {len(deaths)} workers died at this batch: pids {pids}")
        return error

    def _carried(self, payload: Any) -> tuple[BaseException, str, int]:
        """Open what a worker sent: (exception, its traceback there, row of the sample or -1)."""
        if self._pool.config.num_workers == 0:
            exc, text, row = payload
            return exc, text, row
        encoded, text, row = pickle.loads(payload)
        return decode(encoded), text, row
