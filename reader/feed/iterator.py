"""The iterator over one epoch: fills the window, takes batches, reports trouble at its place.

Imports the dispatcher, the pool and failures. An iterator is used by one thread at a time, in the
process that made it; dropping it gives its pool back.
"""

from __future__ import annotations

import dataclasses
import enum
import logging
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from reader._core.channel import decode_task
from reader._core.tensor import LoDTensorArray
from reader.data.failure import as_user_error
from reader.errors import ReaderError, SamplerError
from reader.feed.dispatcher import Dispatcher
from reader.feed.keeper import PoolKeeper
from reader.feed.trouble import EpochOptions, failed_start, failure, late
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
        self._full_at = -1  # the last batch that was tried again for want of memory
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
            if item.kind == "full" and (self._window > 1 or self._full_at != item.seq):
                self._full_at = (
                    item.seq
                )  # with one batch in flight, try once: memory may be on its way
                self._shrink()
                continue
            indices = decode_task(*self._tasks[self._delivered])
            deaths = self._deaths.pop(self._delivered, [])
            trouble = failure(self._pool, item, indices, deaths, self._options.epoch)
            self._accept()
            raise trouble
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
        if self._window > 1:
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
                    raise late(self._pool, self._tasks, self._delivered, self._options)
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
            error = failed_start(self._pool, failed, self._options.epoch)
            self._abort()
            raise error
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
