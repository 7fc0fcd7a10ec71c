"""The iterator over one epoch: takes batches in order, and reports trouble at its place.

Imports the window, the pool and failures. Threads that share an iterator take turns, and each batch
goes to one of them; it belongs to the process that made it, and dropping it gives its pool back.
"""

from __future__ import annotations

import logging
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

from reader._core.feeder import Failure
from reader._core.tensor_array import LoDTensorArray
from reader.errors import ConfigTypeError, ReaderError
from reader.feed.dispatcher import Task
from reader.feed.keeper import PoolKeeper, PoolShelf
from reader.feed.progress import Progress
from reader.feed.trouble import EpochOptions, closed, failed_start, failure, in_fork, late
from reader.feed.wait_stats import WaitStats
from reader.feed.window import Source, Window
from reader.workers.interrupt import interrupt_after
from reader.workers.open_pools import leave_with_program
from reader.workers.pool import Death, Pool, PoolState, died

__all__ = ["EpochIterator", "EpochOptions"]

_log = logging.getLogger("reader")
_IDLE_DEATHS = 3  # in a row without any batch, per worker: something kills them all


class EpochIterator(Iterator[Any]):
    """Yields the batches of one epoch of a map-style dataset in sampler order.

    Args:
        keeper: lends the pool.
        make_source: makes what yields the tasks; called when the workers have started.
        convert: makes the user's batch of a LoDTensorArray.
        options: see EpochOptions.
        stats: counted up while iterating.
        progress: where the epoch is begun; told how far it comes.
    """

    def __init__(
        self,
        keeper: PoolKeeper,
        make_source: Callable[[], Source],
        convert: Callable[[LoDTensorArray], Any],
        options: EpochOptions,
        stats: WaitStats,
        progress: Progress,
    ) -> None:
        self.progress = progress
        self._parts = progress.parts
        self._is_complete = False  # ended because there is no more
        self._convert = convert
        self._options = options
        self._stats = stats
        self._is_done = False
        self._lock = threading.RLock()  # threads that share the iterator take turns
        self._batches = 0  # that the user got
        self._deaths: dict[int, list[Death]] = {}  # batch -> workers that died at it
        self._is_torn = False  # whether a wait was given up, by Ctrl-C or a timeout
        self._failed: dict[int, Failure] = {}  # batch -> a worker that failed to start
        self._idle_deaths = 0
        self._last: list[Any] = []  # the last batch, while the next epoch is begun
        self._full_at = -1  # the last batch that was tried again for want of memory
        self._keeper = keeper
        self._pool: Pool = keeper.borrow()
        # gives the pool back, in whatever thread; it holds nothing that may lead to the iterator
        self._finalizer = weakref.finalize(
            self, _give_back, keeper.shelf, self._pool, weakref.ref(progress)
        )
        self._finalizer.atexit = False
        self._feeder = self._pool.feeder
        in_order = options.in_order
        self._feeder.begin_run(options.epoch, self._first, in_order)
        size = self._pool.window if options.is_eager else 1
        progress.follow(self._feeder)
        self._window = Window(
            self._feeder, make_source(), size, options.epoch, self._first, in_order, progress.passed
        )
        if not in_order:
            progress.watch(self._window.done)
        if options.told is not None:
            for worker in range(self._pool.workers):
                self._window.tell(worker, options.told(worker))
        if options.is_eager:
            self._window.fill()

    def __iter__(self) -> EpochIterator:
        return self

    def __len__(self) -> int:
        """The number of batches of the whole epoch. TypeError where that is not known."""
        if self._options.length is None:
            text = "an IterableDataset yields until it ends. Count while iterating."
            raise ConfigTypeError(f"the number of batches is not known: {text}")
        return self._options.length()

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return not self._is_done and self._pool.is_usable

    def close(self) -> None:
        """End the epoch here: the workers are free for another one. Idempotent."""
        self._window.forget_trouble()
        self._let_go()

    def _let_go(self) -> None:
        self._is_done = True
        self._finalizer()

    def __next__(self) -> Any:
        try:
            with self._lock:
                if self._last:
                    return self._last.pop()
                if self._is_done:
                    self._window.raise_trouble()
                    self.progress.is_finished |= self._is_complete
                    raise StopIteration
                self._check_pool()
                turns = None if self._options.is_eager else self._pool.turns
                if turns is not None:
                    turns.ask()
                while True:
                    if self._window.is_empty or not self._options.is_eager:
                        self._window.fill()
                        if self._is_over:
                            self._finish()
                    item = self._take()
                    if turns is not None:
                        turns.await_end()  # the random state is the trainer's again
                    if type(item) is LoDTensorArray:
                        return self._deliver(item)
                    self._refuse(item)
        except ReaderError:
            leave_with_program()  # closed because the program ends: nobody is to hear of it
            raise

    @property
    def _first(self) -> int:
        """The number of the first task."""
        return self.progress.first.batches

    @property
    def _is_over(self) -> bool:
        return self._window.is_over

    @property
    def _place(self) -> int:
        """The number in its epoch of the batch that comes next, for messages."""
        return self._window.delivered

    def _accept(self, item: Any) -> Task:
        """Count what was taken as delivered; returns its task."""
        return self._window.accept(item.seq)

    def _deliver(self, item: LoDTensorArray) -> Any:
        """Hand a batch over."""
        self._window.leaving = -1 if item.seq is None else item.seq
        if self._options.is_eager:
            self._refill()  # runs the user's sampler, and Ctrl-C may come: it is still there
        try:
            batch = self._convert(item)
        except Exception:
            self._accept(item)
            raise
        self._idle_deaths = 0
        self._batches += 1
        self._stats.batches += 1
        self._accept(item)
        if item.attached is not None and self._parts is not None:
            self._note(item)
        if self._options.on_end is not None and self._is_over and not self._window.has_trouble:
            self._last.append(batch)  # Ctrl-C may come in the user's sampler: for the next call
            self._end()  # the next epoch begins before the user has done with the last batch
            self._last.clear()
        return batch

    def _note(self, item: LoDTensorArray) -> None:
        """Keep what the worker sent along with a batch."""
        if self._parts is not None:
            self._parts.note(item.attached)

    def _send(self) -> None:
        """Workers may have room again, while a batch is waited for."""
        self._window.fill()

    def _refill(self) -> None:
        """Fill the window while a batch is out of the queue and not delivered yet."""
        self._window.fill(1)

    def _refuse(self, item: Any) -> None:
        """Deal with what came in the place of a batch: returns to go on, or raises."""
        if item.kind == "full" and (self._window.size > 1 or self._full_at != item.seq):
            self._full_at = item.seq  # with one batch in flight, once: memory may be on its way
            self._shrink()
            return
        self._fail(item)

    def _fail(self, item: Any) -> None:
        if item.seq in self._failed:
            self._raise_failed(self._failed.pop(item.seq))
        if self._options.is_eager:
            self._window.leaving = item.seq
            self._refill()
        # no local holds it: the frames in its traceback would keep it, and with it this iterator
        raise self._error_of(item)

    def _error_of(self, item: Any) -> BaseException:
        deaths, keys = self._deaths.get(item.seq, []), self._window.task_keys(item.seq)
        number = self._place if self._options.in_order else item.seq
        error = failure(self._pool, item, keys, deaths, self._options, number)
        self._accept(item)  # not before: opening the exception may be interrupted
        self._deaths.pop(item.seq, None)
        item.payload = None  # of a worker thread it is the exception, and frames have the item
        return error

    def _check_pool(self) -> None:
        if self._pool.state is PoolState.OPEN:
            if self._pool.is_usable:
                return
            raise in_fork()
        self._is_done = True
        raise closed(self._place, self._options)

    def _finish(self) -> None:
        self._end()
        self._window.raise_trouble()
        self.progress.is_finished = True
        raise StopIteration

    def _end(self) -> None:
        self._is_complete = not self._window.has_trouble
        self._let_go()
        if self._options.on_end is not None:
            self._options.on_end()

    # -- memory ----------------------------------------------------------------------------------

    def _shrink(self) -> None:
        """There is no memory for the next batch: keep fewer in flight, and make it again."""
        for failed in self._failed.values():
            self._raise_failed(failed)  # its place is about to be forgotten
        self._halve()
        with interrupt_after():  # held in this run and in flight: they would be sent twice
            self._window.hold_all()
            in_order = self._options.in_order
            self._feeder.begin_run(self._options.epoch, self._feeder.accepted, in_order)
        self._settle()  # what the workers still sent is dropped by now
        self._feeder.trim()
        self._settle()
        self._window.fill()

    def _halve(self) -> None:
        if self._window.size > 1:
            self._window.size //= 2
            _log.warning(
                "memory is short: batches in flight are reduced to %d for the rest of epoch %d",
                self._window.size,
                self._options.epoch,
            )

    def _settle(self) -> None:
        """Wait until no worker has anything to do; `timeout` at most."""
        while self._feeder.is_busy():
            self._is_torn = True
            if self._feeder.take(self._options.timeout_s) is False:
                return
            self._attend()

    # -- taking ----------------------------------------------------------------------------------

    def _take(self) -> Any:
        """The next batch or Failure, with its waiting time counted."""
        was_torn, self._is_torn = self._is_torn, True
        item = self._feeder.take(0)
        if item is not False and item is not None:
            self._is_torn, self._stats.last_wait_s = False, 0.0
            return item
        if was_torn or self._window.has_unsent:
            item = None  # Ctrl-C may have come between a notice and what is done about it
        began = time.monotonic()
        deadline = None if self._options.timeout_s is None else began + self._options.timeout_s
        try:
            while True:
                if item is None:
                    self._attend()
                    self._send()
                rest = None if deadline is None else max(0.0, deadline - time.monotonic())
                # a worker thread that has the random state in its hands is waited for: it is told
                # that the batch is late when it comes, and the batch is kept for the next call
                item = self._feeder.take(rest if self._options.is_eager else None)
                if item is False or (rest == 0.0 and item is not None):
                    raise late(self._pool, self._window.task_keys, self._place, self._options)
                if item is not None:
                    self._is_torn = False
                    return item
        finally:
            self._stats.last_wait_s = time.monotonic() - began
            self._stats.wait_s += self._stats.last_wait_s

    def _attend(self) -> None:
        """Something besides batches happened: a worker failed to start, died, or has room."""
        if self._is_done:
            raise ReaderError("the iterator was closed by another thread while it was waited on")
        self._check_pool()
        failed = self._feeder.failed_worker()
        if failed is not None:
            self._note_failed(failed)
        told = None
        if self._feeder.ended_workers():
            with interrupt_after():  # not before it is noted which batches they had
                told = self._replace_ended()
        if not self.is_usable:
            self._window.raise_trouble()  # if Ctrl-C came instead: by the next call
        if told is not None:
            raise died(told, self._options.epoch, None)

    def _note_failed(self, failed: Failure) -> None:
        """A worker failed to start, and none takes its place: told at its first batch, or now."""
        seqs = [*self._feeder.detach(failed.worker)[0], *self._window.held_by(failed.worker)]
        if not seqs:
            self._raise_failed(failed)
        self._failed[min(seqs)] = failed
        self._window.drop_held(seqs)
        self._feeder.give_up(min(seqs), failed.worker)

    def _raise_failed(self, failed: Failure) -> NoReturn:
        try:
            raise failed_start(self._pool, failed, self._options)
        finally:
            self._abort()

    def _replace_ended(self) -> Death | None:
        """Start others in the place of workers that ended; returns a death that is to be told."""
        told: Death | None = None
        try:
            deaths = self._pool.replace_ended()
        except BaseException as error:  # no other can be started to make their batches
            self._window.keep_trouble(error)
            self._abort()
            return None
        for death in deaths:
            if not self.is_usable:
                break
            if self._options.told is not None:
                self._window.tell(death.worker_id, self._options.told(death.worker_id))
            self._mourn(death)
            if not self._options.tells_deaths:
                _log.warning("%s", died(death, None, None))
            elif death.busy is None:
                told = death
        return told

    def _mourn(self, death: Death) -> None:
        """Give the batches of a dead worker to others, or up."""
        again: list[tuple[int, Task]] = []
        for seq in sorted(death.lost):
            if seq == death.busy and self._is_given_up(seq, death):
                self._feeder.give_up(seq, death.worker_id)
            else:
                again.append((seq, self._window.task(seq)))
        self._window.hold(again)
        if death.busy is None:
            self._count_idle_death(death)

    def _is_given_up(self, seq: int, death: Death) -> bool:
        """Note a worker's death at a batch; whether that was once too often."""
        deaths = self._deaths.setdefault(seq, [])
        deaths.append(death)
        return len(deaths) > self._options.worker_retries

    def _count_idle_death(self, death: Death) -> None:
        self._idle_deaths += 1
        if self._idle_deaths > _IDLE_DEATHS * self._pool.workers:
            self._window.keep_trouble(died(death, self._options.epoch, None))
            self._abort()

    def _abort(self) -> None:
        """The workers cannot go on: end them; the next epoch starts with new ones."""
        self._is_done = True
        self._pool.close_soon()
        self._finalizer()


def _give_back(shelf: PoolShelf, pool: Pool, its_progress: weakref.ref[Progress]) -> None:
    progress = its_progress()
    if progress is not None:  # else nobody can ask any more
        progress.freeze()  # before: another run begins with a count of its own
    shelf.give_back(pool)
