"""The supervisor of an epoch waits for answers, and handles what goes wrong meanwhile.

Imports the window, backends and errors. It belongs to one iterator and runs in the thread that
iterates. It handles deaths of workers, failed starts, short memory and late batches.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from reader._core.interpreter.signals import interrupt_after
from reader._core.steps.handover import WaitStats
from reader._core.steps.window import Window
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from reader.engine.backends.backend import Death
from reader.engine.backends.pool_cache import Loan
from reader.engine.epoch_errors import (
    closed,
    died,
    exception_of,
    failed_start,
    hung_sample,
    in_fork,
    late,
)
from reader.engine.epoch_options import EpochOptions
from reader.engine.schedule import Schedule
from reader.engine.watchdog import Watchdog
from reader.errors import ReaderError
from reader.log import log as _log
from reader.worker.bad_sample import BadKey, OneByOne, own_keys
from reader.worker.loop import WorkerError

__all__ = ["EpochEnded", "Supervisor"]

_SINGLE = (TaskKind.TASK_INDEX, TaskKind.TASK_KEY)
_IDLE_DEATHS = 3  # per worker, without any batch in between: something kills them all


class EpochEnded(Exception):
    """The workers ended, and the window has the error that the epoch ends with."""


class Supervisor:
    """Waits for batches; meanwhile it replaces workers, gives batches up and frees memory.

    Args:
        loan: of the backend that makes the batches.
        schedule: of the epoch.
        window: of the epoch.
        options: see EpochOptions.
        stats: the times of waiting.
        look: called before each wait, and changes what there is; None: nothing does.
    """

    def __init__(
        self,
        loan: Loan,
        schedule: Schedule,
        window: Window,
        options: EpochOptions,
        stats: WaitStats,
        look: Callable[[], None] | None = None,
    ) -> None:
        backend = loan.backend
        self._look = look
        self.worker_retries = options.worker_retries
        self.deaths: dict[int, list[Death]] = {}  # batch -> workers that died at it
        self.failed: dict[int, Failure] = {}  # batch -> a worker that failed to start
        self._idle_deaths = 0  # since a batch was delivered
        self._idle_at = -1  # how many were delivered then, by all iterators of the loader
        self._loan = loan
        self._backend = backend
        self._works_ahead = backend.works_ahead
        self._feeder = backend.feeder
        self._schedule = schedule
        self._window = window
        self._options = options
        self._stats = stats
        self._is_torn = False  # a wait was cut short: a notice may be unhandled
        # from the beginning: loops over loaders with the same workers look at its samples, too
        self._watchdog = Watchdog(
            backend, window.task_keys, options.epoch, options.warn_after, options.hang_after
        )

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return not self._window.is_closed and self._backend.is_usable

    def check_backend(self) -> None:
        """Raise where the backend was closed, or belongs to another process."""
        if self._backend.is_usable:
            return
        if self._backend.is_open:
            raise in_fork()
        self._window.is_closed = True
        raise closed(self._schedule.number_of(None), self._options)

    # -- waiting ---------------------------------------------------------------------------------

    def await_initial_states(self) -> None:
        """Wait until the workers have begun the epoch and sent their initial states."""
        self.wait(lambda: self._feeder.has_initial_states)

    def wait(self, is_enough: Callable[[], bool] | None = None) -> Any:
        """Wait for the next batch or Failure, and count the time.

        `is_enough`: ends the wait, too; then None is returned.
        """
        if not self._works_ahead:
            return self.make()
        was_torn, self._is_torn = self._is_torn, True
        item = self._feeder.take(0)
        if item is not False and item is not None:
            # an unhandled notice is left to the next call that has to wait
            self._is_torn, self._stats.last_wait_s = was_torn, 0.0
            return item
        if self._look is not None:
            self._look()
        if was_torn or self._window.has_unsent:
            item = None  # treat it as a notice: Ctrl-C may have left one unhandled
        self._stats.begin()
        feeder, timeout_s = self._feeder, self._options.timeout_s
        began_s, paused_s = feeder.clock_s(), feeder.paused_s
        try:
            while True:
                if item is None:
                    self._attend()
                    self._schedule.send()
                if is_enough is not None and is_enough():
                    return None
                rest = None
                if timeout_s is not None:
                    rest = max(0.0, timeout_s - (feeder.clock_s() - began_s))
                # a worker thread that holds the lock of the random state must be waited for: the
                # error is raised when the late batch comes, and the next call returns that batch
                limit = rest if self._options.is_eager else None
                pause = self._watchdog.pause_s
                if pause is not None and (limit is None or pause < limit):
                    item = self._feeder.take(pause)
                    if item is False:
                        self._watchdog.look()
                        item = None
                        continue
                else:
                    item = self._feeder.take(limit)
                is_late = item is False or (rest == 0.0 and item is not None)
                if is_late and timeout_s is not None and feeder.clock_s() < began_s + timeout_s:
                    continue  # this process was stopped meanwhile
                if is_late:
                    number = self._schedule.number_of(None)
                    raise late(self._backend, self._window.task_keys, number, self._options)
                if item is not None:
                    self._is_torn = False
                    return item
        finally:
            self._stats.end(feeder.paused_s - paused_s)

    def poll(self) -> Any:
        """Return the next batch or Failure where it has come, else None; blocks on nothing."""
        item = self._feeder.take(0)
        if item is None:
            self._is_torn = True  # a notice, which the next wait attends to
        return None if item is False else item

    def make(self) -> Any:
        """Have this thread make the next batch. LoadTimeout afterwards, if it took too long."""
        self._stats.begin()
        try:
            while (item := self._feeder.take()) is None:
                self._attend()
                self._schedule.send()
        finally:
            took_s = self._stats.end()
        if self._options.warn_after is not None and took_s > self._options.warn_after:
            self.tell_slow()
        if self._options.timeout_s is not None and took_s > self._options.timeout_s:
            number = self._schedule.number_of(None)
            raise late(self._backend, self._window.task_keys, number, self._options, took_s)
        return item

    def tell_slow(self) -> None:
        """Tell of the next batch, which this thread made in many seconds."""
        self._watchdog.tell_made(self._schedule.number_of(None), self._stats.last_wait_s)

    def _attend(self) -> None:
        """Handle what else happened: a worker failed to start, died, or has room again."""
        if self._window.is_closed:
            raise ReaderError("the iterator was closed by another thread while it was waited on")
        self.check_backend()
        failed = self._feeder.failed_worker()
        if failed is not None:
            self._note_failed(failed)
        death = None
        if self._feeder.ended_workers():
            with interrupt_after():  # before Ctrl-C is raised, note which batches they had
                death = self._replace_ended()
        if not self.is_usable and self._window.has_error:
            raise EpochEnded
        if death is not None:
            raise died(death, self._options.epoch, None)

    # -- errors ----------------------------------------------------------------------------------

    def error_of(
        self, item: Failure, keys: list[Any], number: int, carried: WorkerError | None = None
    ) -> BaseException:
        """Return the exception of a Failure, with the deaths at its batch."""
        deaths = self.deaths.get(item.seq, [])
        hung = self._watchdog.hung.get(item.seq)
        if item.kind is FailureKind.LOST and hung is not None:
            return hung_sample(self._backend, item, keys, hung, self._options, number)
        return exception_of(self._backend, item, carried, keys, deaths, self._options, number)

    def _note_failed(self, failed: Failure) -> None:
        """A worker failed to start, and is not replaced: raise that at its first batch, or now."""
        lost = self._feeder.detach(failed.worker).seqs
        seqs = [*lost, *self._window.held_by(failed.worker)]
        if not seqs:
            self.raise_failed(failed)
        self.failed[min(seqs)] = failed
        self._window.drop_held(seqs)
        self._feeder.give_up(min(seqs), failed.worker)

    def raise_failed(self, failed: Failure) -> NoReturn:
        """End the epoch with what kept a worker from starting; the workers end."""
        self._window.keep_error(failed_start(self._backend, failed, self._options))
        self._abort()
        raise EpochEnded

    # -- deaths ----------------------------------------------------------------------------------

    def _replace_ended(self) -> Death | None:
        """Replace workers that ended; returns a death that is to be raised."""
        raised: Death | None = None
        try:
            deaths = self._backend.replace_ended()
        except BaseException as error:  # no worker can be started to make their batches
            self._window.keep_error(error)
            self._abort()
            return None
        for death in deaths:
            if not self.is_usable:
                break
            if self._options.start_of is not None:
                self._window.add_start(death.worker_id, self._options.start_of(death.worker_id))
            is_hung = death.busy is not None and self.is_hung(death.busy)
            self._schedule.lose(death, self)
            if is_hung or death.is_told:
                continue
            if death.busy is None:
                self._count_idle_death(death)
            if not self._options.raises_deaths:
                _log.warning("%s", died(death, None, None))
            elif death.busy is None:
                raised = death
        return raised

    def is_hopeless(self, seq: int, death: Death) -> bool:
        """Note a worker's death at a batch; returns whether it was one too many."""
        deaths = self.deaths.setdefault(seq, [])
        deaths.append(death)
        return len(deaths) > self.worker_retries

    def is_hung(self, seq: int) -> bool:
        """Whether the worker of a batch was ended because that hung."""
        return seq in self._watchdog.hung

    def mark_bad(self, seq: int, death: Death) -> bool:
        """Have a batch made without the sample at which its worker hung or died.

        False: samples may not fail, or nobody knows at which one it was.
        """
        task, keys = self._window.task(seq), self._window.task_keys(seq)
        hung = self._watchdog.hung.get(seq)
        row = death.row if hung is None else hung.row
        if len(keys) == 1:
            row = 0
        is_sent = isinstance(task.payload, bytes) and task.kind not in _SINGLE
        if not self._options.tolerates or not isinstance(task.payload, bytes):
            return False
        own = own_keys(keys)
        if row < 0 and is_sent and len(own) == len(keys):
            # __getitems__ fetched them all: have each fetched by itself, to see which it is
            self._watchdog.hung.pop(seq, None)
            task.kind = TaskKind.TASK_KEYS
            task.payload = pickle.dumps([OneByOne(), *own], 5)
            return True
        row += len(keys) - len(own) if row >= 0 else 0
        if not 0 <= row < len(keys):
            return False
        if hung is None:
            told = type(died(death, None, None)).__qualname__, str(died(death, None, None))
        else:
            told = "LoadTimeout", f"it took longer than hang_after={self._options.hang_after:g} s"
            del self._watchdog.hung[seq]
        key = keys[row]
        if type(key) is BadKey:  # it was at one that takes its place
            keys[row] = key._replace(passed=key.passed + 1)
        else:
            keys[row] = BadKey(key, f"reader.errors.{told[0]}", told[1])
        self.deaths.pop(seq, None)
        is_single = task.kind in _SINGLE
        task.payload = pickle.dumps(keys[0] if is_single else keys, 5)
        task.kind = TaskKind.TASK_KEY if is_single else TaskKind.TASK_KEYS
        return True

    def give_up(self, seq: int, worker: int, is_end: bool = False) -> None:
        """Put a failure, or the end of its worker, in the place of a task that never comes."""
        self._feeder.give_up(seq, worker, is_end)

    def _count_idle_death(self, death: Death) -> None:
        delivered = self._stats.batches
        self._idle_deaths = 1 if delivered != self._idle_at else self._idle_deaths + 1
        self._idle_at = delivered
        if self._idle_deaths > _IDLE_DEATHS * self._backend.workers:
            self._window.keep_error(died(death, self._options.epoch, None))
            self._abort()

    def _abort(self) -> None:
        """End workers that cannot continue; the next epoch starts new ones."""
        self._window.is_closed = True
        self._backend.close_soon(0.0)
        with interrupt_after():
            self._loan.give_back()

    # -- memory ----------------------------------------------------------------------------------

    def shrink(self) -> None:
        """There is no memory for the next batch: keep fewer in flight, and have it made again."""
        for failed in self.failed.values():
            self.raise_failed(failed)  # its place in the order is forgotten below
        self.halve()
        with interrupt_after():  # within it tasks count as held and as in flight
            self._window.hold_all()
            in_order = self._options.in_order
            self._feeder.begin_run(self._options.epoch, self._feeder.accepted, in_order)
        self.await_idle()  # the answers to the old run are dropped by now
        self.trim()
        self.await_idle()
        self._schedule.send()

    def halve(self) -> None:
        """Keep half as many batches in flight from now on."""
        if self._window.size > 1:
            self._window.size //= 2
            _log.warning(
                "shared memory is short: at most %d batches are in flight for the rest of epoch %d."
                " Lower batch_size or prefetch_factor, or keep fewer batches alive",
                self._window.size,
                self._options.epoch,
            )

    def trim(self) -> None:
        """Have the memory of released batches given back."""
        self._feeder.trim()

    def await_idle(self) -> None:
        """Wait until no worker has anything to do; `timeout` at most."""
        while self._feeder.is_busy():
            self._is_torn = True
            if self._feeder.take(self._options.timeout_s) is False:
                return
            self._attend()
