"""The iterator over one epoch: it takes batches in order, and raises errors at their places.

Imports the schedule, the supervisor and the stage. Threads may share an iterator: each batch goes
to one of them. It belongs to the process that made it, and dropping it gives its backend back.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, final

from reader._core.feeder import Failure, FailureKind
from reader.engine.backends.backend import Backend
from reader.engine.backends.pool_cache import PoolCache
from reader.engine.cursor import Cursor, MapCursor
from reader.engine.epoch_errors import EpochOptions
from reader.engine.schedule import Outcome, Schedule, Window
from reader.engine.stage import Stage, WaitStats
from reader.engine.supervisor import Supervisor
from reader.errors import ConfigTypeError, ReaderError
from reader.workers.interrupt import is_interrupt
from reader.workers.pool_registry import leave_with_program

__all__ = ["EpochIterator"]


@final
class EpochIterator(Iterator[Any]):
    """Yields the batches of one epoch; with several places, lists of one batch for each.

    An exception in the place of a batch is raised, and the next call continues after it. Batches of
    its group that came before it are kept; the next call completes the group.

    Args:
        cache: lends the backend.
        make_schedule: makes the schedule, when the workers have started.
        stage: lands batches and counts them.
        options: see EpochOptions.
        stats: counted up while iterating.
    """

    def __init__(
        self,
        cache: PoolCache,
        make_schedule: Callable[[Backend], Schedule],
        stage: Stage,
        options: EpochOptions,
        stats: WaitStats,
    ) -> None:
        self._stage = stage
        self._options = options
        self._is_eager = options.is_eager
        self._is_complete = False  # it ended because all batches were delivered
        self._lock = threading.RLock()  # threads that share the iterator take turns
        self._last: list[Any] = []  # the last batch, while the next epoch is begun
        self._cache = cache  # keeps what the workers are given
        self._backend: Backend = cache.borrow()
        # gives the backend back, in whatever thread; it holds no reference to the iterator
        self._finalizer = weakref.finalize(self, cache.returner(self._backend))
        self._finalizer.atexit = False
        self._feeder = self._backend.feeder
        cursor = stage.cursor
        is_map = isinstance(cursor, MapCursor)
        first = cursor.batches if is_map else 0
        self._feeder.begin_run(options.epoch, first, options.in_order)
        schedule = self._schedule = make_schedule(self._backend)
        window = self._window = schedule.window = Window(
            self._feeder,
            schedule,
            self._backend.window if options.is_eager else 1,
            options.epoch,
            first,
            options.in_order,
            cursor.beyond if isinstance(cursor, MapCursor) else (),
            cursor.pass_by if isinstance(cursor, MapCursor) else None,
        )
        self._supervisor = Supervisor(self._backend, schedule, options, stats, stage.count)
        self._supervisor.release = self._finalizer
        self._take = schedule.taking(self._supervisor.wait)
        self._refill = schedule.refill
        self._accept = schedule.accept
        self._land = stage.land
        if options.start_of is not None:
            for worker in range(self._backend.workers):
                window.add_start(worker, options.start_of(worker))
        self._backend.open_epoch(window.send_starts, cursor)
        if options.is_eager:
            window.fill()

    def __iter__(self) -> EpochIterator:
        return self

    def __len__(self) -> int:
        """The number of batches of the whole epoch, not of groups. TypeError if not known."""
        if self._options.length is None:
            text = "an IterableDataset yields until it ends. Count while iterating."
            raise ConfigTypeError(f"the number of batches is not known: {text}")
        return self._options.length()

    @property
    def cursor(self) -> Cursor:
        """The position of the last batch delivered."""
        return self._stage.cursor

    @property
    def backend(self) -> Backend:
        """What makes the batches. Kept after the epoch, to look at how its workers ended."""
        return self._backend

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return self._supervisor.is_usable

    def draw_first(self) -> None:
        """Draw the first batch of indices now, so that a state can describe the order."""
        self._schedule.draw_first()

    def close(self) -> None:
        """End the epoch here, so that its workers can serve another one. Idempotent."""
        self._stage.drop()
        self._window.forget_error()
        self._let_go()

    def _let_go(self) -> None:
        self._supervisor.is_done = True
        self._finalizer()

    def __next__(self) -> Any:
        try:
            with self._lock:
                while True:
                    if self._last:
                        return self._last.pop()
                    if self._supervisor.is_done:
                        return self._leave()
                    item = self._next_item()
                    if item is None:
                        self._end()
                        return self._leave()
                    if type(item) is Failure:
                        self._refuse(item)
                    elif self._stage.places == 1:
                        return self._deliver(item)
                    else:
                        self._deliver(item)
                        if self._stage.is_full:
                            return self._stage.hand_over()
        except ReaderError:
            leave_with_program()  # the program is ending, and that closed it: no error to report
            raise

    def _next_item(self) -> Any:
        """Return the next batch or Failure; None at the end of the epoch."""
        supervisor = self._supervisor
        supervisor.check_backend()
        rng_lock = None if self._is_eager else self._backend.rng_lock
        if rng_lock is not None:
            rng_lock.ask()
        if self._window.is_empty or not self._is_eager:
            self._window.fill()
            if self._schedule.is_over:
                return None
        item = self._take()
        if rng_lock is not None:
            rng_lock.await_end()  # the random state is the trainer's again
        return item

    def _deliver(self, item: Any) -> Any:
        """Hand a batch over."""
        self._window.leaving = -1 if item.seq is None else item.seq
        if self._is_eager:
            self._refill()  # runs the user's sampler; Ctrl-C there loses no batch
        try:
            batch = self._land(item)
        except Exception as error:
            if is_interrupt(error):
                raise
            self._stage.count(Outcome(self._accept(item), item.attached))
            raise
        self._supervisor.idle_deaths = 0
        self._stage.count_batch(self._accept(item), item.attached)
        if self._options.on_end is not None:
            self._begin_next(batch)
        return batch

    def _begin_next(self, batch: Any) -> None:
        """Have the next epoch begun before the user has done with the last batch."""
        if self._schedule.is_over and not self._window.has_error:
            if self._stage.places == 1:
                self._last.append(batch)  # for the next call, if Ctrl-C comes in the user's sampler
            self._end()
            self._last.clear()

    def _refuse(self, item: Any) -> None:
        """Handle a Failure in the place of a batch: return to continue, or raise."""
        if self._schedule.retry(item, self._supervisor):
            return
        if item.seq in self._supervisor.failed:
            self._supervisor.raise_failed(self._supervisor.failed.pop(item.seq))
        if self._is_eager:
            self._window.leaving = item.seq
            self._refill()
        # no local refers to it: its traceback would keep that alive, and this iterator with it
        raise self._error_of(item)

    def _error_of(self, item: Any) -> BaseException:
        supervisor = self._supervisor
        keys = self._window.task_keys(item.seq)
        seq = None if self._options.in_order else item.seq
        carried = self._backend.open_error(item.payload) if item.kind is FailureKind.ERROR else None
        error = supervisor.error_of(item, keys, self._schedule.number_of(seq), carried)
        task = self._accept(item)  # not before: decoding it may be interrupted
        drawn = None if carried is None else carried.drawn
        self._stage.count(Outcome(task, drawn=drawn, is_error=True))
        supervisor.deaths.pop(item.seq, None)
        item.payload = carried = None  # it may be the exception, and frames refer to the item
        return error

    def _end(self) -> None:
        self._is_complete = not self._window.has_error
        self._let_go()
        if self._options.on_end is not None:
            self._options.on_end()

    def _leave(self) -> Any:
        """Raise what ends the epoch, or return a last group that is short."""
        self._window.raise_error()
        group = self._stage.last_group()
        if group:
            return group
        self._stage.cursor.is_finished |= self._is_complete
        raise StopIteration
