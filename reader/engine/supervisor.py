"""The supervisor of an epoch waits for answers, and handles what goes wrong meanwhile.

Imports the tasks, backends and errors. It belongs to one iterator and runs in the thread that
iterates. It handles deaths of workers, failed starts, short memory and late batches.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, NoReturn

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import WaitStats
from reader._core.epoch.tasks import Task, TaskState
from reader._core.interpreter.signals import interrupt_after
from reader._core.wire.channel import TaskKind
from reader._core.wire.failure import Failure, FailureKind
from reader.engine.backends.backend import Death
from reader.engine.backends.pool_cache import Loan
from reader.engine.epoch_errors import (
    closed_error,
    death_error,
    failure_error,
    fork_error,
    hung_error,
    late_error,
    start_error,
)
from reader.engine.epoch_options import EpochOptions
from reader.engine.progress import Progress
from reader.engine.task_source import Loss, Remedy, TaskSource
from reader.engine.watchdog import Watchdog
from reader.errors import ReaderError
from reader.log import log as _log
from reader.worker.bad_sample import BadKey, OneByOne, own_keys
from reader.worker.loop import WorkerError

__all__ = ["EpochEnded", "Supervisor"]

_SINGLE = (TaskKind.TASK_INDEX, TaskKind.TASK_KEY)
_IDLE_DEATHS = 3  # per worker, without a batch in between: then something kills them all


class EpochEnded(Exception):
    """The workers ended, and the table has the error that the epoch ends with."""


class Supervisor:
    """Waits for answers; meanwhile it replaces workers, drops tasks and frees memory.

    Args:
        loan: of the backend that makes the batches.
        dispatcher: of the epoch; its table says what is in flight.
        source: of the epoch: which tasks can be made again.
        progress: of the epoch, for messages.
        options: see EpochOptions.
        stats: the times of waiting.
        look: called before each wait; may change how many workers and batches in flight there are.
            None: nothing is called.
    """

    def __init__(
        self,
        loan: Loan,
        dispatcher: Dispatcher,
        source: TaskSource,
        progress: Progress,
        options: EpochOptions,
        stats: WaitStats,
        look: Callable[[], None] | None = None,
    ) -> None:
        backend = loan.backend
        self._look = look
        self._idle_deaths = 0  # since a batch was delivered
        self._idle_at = -1  # how many were delivered then, by all iterators of the loader
        self._loan = loan
        self._backend = backend
        self._works_ahead = backend.works_ahead
        self._feeder = backend.feeder
        self._source = source
        self._dispatcher = dispatcher
        self._table = dispatcher.table
        self._progress = progress
        self._options = options
        self._stats = stats
        self._may_have_notice = False  # a wait was cut short: a notice may be unhandled
        # from the beginning: loaders with the same workers look at its samples, too
        self._watchdog = Watchdog(
            backend, self._table, options.epoch, options.slow_s, options.hung_s
        )

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return not self._table.is_closed and self._backend.is_usable

    def check_backend(self) -> None:
        """Raise ReaderError if the backend was closed, or belongs to another process."""
        if self._backend.is_usable:
            return
        if self._backend.is_open:
            raise fork_error()
        self._table.close()
        raise closed_error(self.next_number(), self._options)

    def next_number(self) -> int:
        """Return the number of the next batch in its epoch, for messages."""
        if self._table.is_stream:
            self._progress.count()
            return self._progress.batches
        return int(self._table.next_number)

    # -- waiting ---------------------------------------------------------------------------------

    def await_initial_states(self) -> None:
        """Wait until the workers have begun the epoch and sent their initial states."""
        self.wait(lambda: self._feeder.has_initial_states)

    def wait(self, is_enough: Callable[[], bool] | None = None) -> Any:
        """Wait for the next batch or Failure, and count the time.

        `is_enough`: where it returns True, the wait ends and None is returned.
        """
        if not self._works_ahead:
            return self.make()
        may_have_notice, self._may_have_notice = self._may_have_notice, True
        item = self._feeder.take(0)
        if item is not False and item is not None:
            # the next call that waits handles the notice
            self._may_have_notice, self._stats.last_wait_s = may_have_notice, 0.0
            return item
        if self._look is not None:
            self._look()
        if may_have_notice or self._dispatcher.has_unsent:
            item = None  # treat it as a notice: Ctrl-C may have left one unhandled
        self._stats.start()
        feeder, timeout_s = self._feeder, self._options.timeout_s
        began_s, paused_s = feeder.clock_s(), feeder.paused_s
        try:
            while True:
                if item is None:
                    self._attend()
                    self._dispatcher.fill()
                if is_enough is not None and is_enough():
                    return None
                rest = None
                if timeout_s is not None:
                    rest = max(0.0, timeout_s - (feeder.clock_s() - began_s))
                # we cannot stop waiting while a worker thread has the global random state: raise
                # LoadTimeout when the late batch arrives; the next call returns that batch
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
                    number = self.next_number()
                    raise late_error(self._backend, self._table.keys_of, number, self._options)
                if item is not None:
                    self._may_have_notice = False
                    return item
        finally:
            self._stats.stop(feeder.paused_s - paused_s)

    def poll(self) -> Any:
        """Return the next batch or Failure where it has come, else None; blocks on nothing."""
        item = self._feeder.take(0)
        if item is None:
            self._may_have_notice = True  # a notice, which the next wait handles
        return None if item is False else item

    def make(self) -> Any:
        """Have this thread make the next batch. LoadTimeout afterwards, if it took too long."""
        self._stats.start()
        try:
            while (item := self._feeder.take()) is None:
                self._attend()
                self._dispatcher.fill()
        finally:
            took_s = self._stats.stop()
        if self._options.slow_s is not None and took_s > self._options.slow_s:
            self.tell_slow()
        if self._options.timeout_s is not None and took_s > self._options.timeout_s:
            number = self.next_number()
            raise late_error(self._backend, self._table.keys_of, number, self._options, took_s)
        return item

    def tell_slow(self) -> None:
        """Log that this thread was slow to make the next batch."""
        self._watchdog.tell_made(self.next_number(), self._stats.last_wait_s)

    def _attend(self) -> None:
        """Handle a notice: a worker failed to start, died, or has space for a task again."""
        if self._table.is_closed:
            raise ReaderError("the iterator was closed by another thread while it was waited on")
        self.check_backend()
        with interrupt_after():  # told once in a run: noted before Ctrl-C is raised
            while (failed := self._feeder.failed_worker()) is not None:
                self._note_failed(failed)
        death = None
        if self._feeder.ended_workers():
            with interrupt_after():  # before Ctrl-C is raised, note which batches they had
                death = self._replace_ended()
        if not self.is_usable and self._table.error is not None:
            raise EpochEnded
        if death is not None:
            raise death_error(death, self._options.epoch, None)

    # -- errors ----------------------------------------------------------------------------------

    def error_of(
        self, task: Task, item: Failure, number: int, carried: WorkerError | None = None
    ) -> BaseException:
        """Return the exception of a Failure, with the deaths at its batch."""
        if item.kind is FailureKind.LOST and task.hung is not None:
            return hung_error(self._backend, item, task.keys, task.hung, self._options, number)
        deaths = list(task.deaths)
        return failure_error(self._backend, item, carried, task.keys, deaths, self._options, number)

    def _note_failed(self, failed: Failure) -> None:
        """Raise a failed start in the place of the worker's first batch, or now."""
        table = self._table
        lost = [table[each] for each in self._feeder.detach(failed.worker).seqs if each in table]
        tasks = sorted(
            [*lost, *table.unsent_tasks_of(failed.worker)], key=lambda task: int(task.number)
        )
        if not tasks:
            self.raise_failed(failed)
        self._source.note_shard_end(failed.worker)  # no worker would take its next task
        for task in tasks:
            is_first = task is tasks[0]
            table.note_lost(task, failed if is_first else None)
            self._feeder.drop_task(task.number, failed.worker, not is_first)

    def raise_failed(self, failed: Failure) -> NoReturn:
        """End the epoch with the exception of a failed start; the workers end."""
        self._table.note_end(start_error(self._backend, failed, self._options))
        self._abort()
        raise EpochEnded

    # -- deaths ----------------------------------------------------------------------------------

    def _replace_ended(self) -> Death | None:
        """Replace workers that ended; returns a death that is to be raised."""
        raised: Death | None = None
        try:
            deaths = self._backend.replace_ended()
        except BaseException as error:  # no worker can be started to make their batches
            self._table.note_end(error)
            self._abort()
            return None
        for death in deaths:
            if not self.is_usable:
                break
            if self._options.start_of is not None:
                start = self._options.start_of(death.worker_id)
                self._dispatcher.add_start(death.worker_id, start)
            seq = death.current_seq
            is_hung = seq is not None and self._table[seq].hung is not None
            self._lose(death)
            if is_hung or death.is_told:
                continue
            if seq is None:
                self._count_idle_death(death)
            if not self._options.raises_deaths:
                _log.warning("%s", death_error(death, None, None))
            elif seq is None:
                raised = death
        return raised

    def _lose(self, death: Death) -> None:
        """Have a dead worker's tasks made again, or put an exception or an end in their places."""
        for task, loss in self._source.handle_death(death):
            if loss is Loss.AGAIN or (loss is Loss.RAISED and self._mark_bad(task, death)):
                self._table.reassign(task)
            else:
                self._table.note_lost(task)
                self._feeder.drop_task(task.number, death.worker_id, loss is Loss.ENDED)

    def _mark_bad(self, task: Task, death: Death) -> bool:
        """Have a batch made without the sample at which its worker hung or died.

        False: samples may not fail, or the sample is unknown.
        """
        if not self._options.tolerates or self._table.is_stream:
            return False
        if not isinstance(task.payload, bytes):
            return False
        keys, hung = task.keys, task.hung
        row = death.row if hung is None else hung.row
        if len(keys) == 1:
            row = 0
        own, is_single = own_keys(keys), task.kind in _SINGLE
        if row < 0 and not is_single and len(own) == len(keys):
            # __getitems__ fetched them all: fetch each by itself, to find the bad one
            payload = pickle.dumps([OneByOne(), *own], 5)
            task.replace_keys(TaskKind.TASK_KEYS, payload, keeps_deaths=True)
            return True
        row += len(keys) - len(own) if row >= 0 else 0
        if not 0 <= row < len(keys):
            return False
        if hung is None:
            error = death_error(death, None, None)
            told = type(error).__qualname__, str(error)
        else:
            told = "LoadTimeout", f"it took longer than hang_after={hung.limit_s:g} s"
        key = keys[row]
        if type(key) is BadKey:  # it was at the sample that replaces a bad one
            keys[row] = key._replace(passed=key.passed + 1)
        else:
            keys[row] = BadKey(key, f"reader.errors.{told[0]}", told[1])
        kind = TaskKind.TASK_KEY if is_single else TaskKind.TASK_KEYS
        task.replace_keys(kind, pickle.dumps(keys[0] if is_single else keys, 5))
        return True

    def _count_idle_death(self, death: Death) -> None:
        delivered = self._stats.batches
        self._idle_deaths = 1 if delivered != self._idle_at else self._idle_deaths + 1
        self._idle_at = delivered
        if self._idle_deaths > _IDLE_DEATHS * self._backend.num_workers:
            self._table.note_end(death_error(death, self._options.epoch, None))
            self._abort()

    def _abort(self) -> None:
        """Close workers that cannot continue; the next epoch starts new ones."""
        self._table.close()
        self._backend.close_soon(0.0)
        self._loan.release()

    # -- memory ----------------------------------------------------------------------------------

    def make_again(self, task: Task, item: Failure) -> Failure | None:
        """Have a task made again that found no memory for its batch.

        Returns None, or the Failure that is raised in its place.
        """
        remedy = self._source.handle_no_memory(task)
        if remedy is Remedy.RAISE:
            if not self._table.is_stream:
                return item
            if task.deaths:  # its worker died since; the samples are lost
                return item.as_kind(FailureKind.LOST)
            with interrupt_after():
                self._dispatcher.set_aside(task, item)  # the next call starts over
            raise self.error_of(task, item, self.next_number())
        if remedy is Remedy.SHRINK:
            self._shrink()
        else:
            self._ask_again(task, item)
        return None

    def _shrink(self) -> None:
        """Have a batch that found no memory made again, with fewer in flight."""
        table = self._table
        for task in table.unanswered():
            if task.start_failure is not None:
                self.raise_failed(task.start_failure)  # the new run drops its place
        self._halve()
        with interrupt_after():  # within it tasks count as held and as in flight
            table.make_again(table.unanswered())
            self._feeder.begin_run(self._options.epoch, self._feeder.accepted, table.in_order)
        self._await_idle()  # the answers to the old run are dropped by now
        self._feeder.trim()
        self._await_idle()
        self._dispatcher.fill()

    def _ask_again(self, task: Task, item: Failure) -> None:
        """Ask a worker again for the batch that found no memory, before all others.

        It keeps the samples. The first request is sent as soon as the worker has space for a task;
        the second one when no other batch takes up memory.
        """
        with interrupt_after():
            is_new = task.kind != TaskKind.TASK_AGAIN
            payload = task.number.to_bytes(8, "little") if is_new else task.payload
            self._dispatcher.set_aside(task, item)  # the waits below may be interrupted
        is_last = task.tries > 1
        self._halve()
        while is_last and self._table.those(TaskState.SENT, TaskState.ARRIVED):
            self.set_aside(self.wait())
        self._feeder.trim()
        if is_last:
            self._await_idle()  # the other workers release the slots that they do not need
        if task.deaths:
            return  # its worker died just now
        with interrupt_after():
            self._table.ask_again(task, TaskKind.TASK_AGAIN, payload)
            self._dispatcher.send_held()

    def set_aside(self, item: Any) -> None:
        """Accept an answer before its turn, as a copy outside of the arena."""
        with interrupt_after():
            task = self._table.arrive(item.seq)
            kept = item.private_copy() if type(item) is LoDTensorArray else item
            self._dispatcher.set_aside(task, kept)

    def _halve(self) -> None:
        """Keep half as many batches in flight from now on."""
        if self._table.size > 1:
            self._table.resize(self._table.size // 2)
            _log.warning(
                "shared memory is short: at most %d batches are in flight for the rest of epoch %d."
                " Lower batch_size or prefetch_factor, or keep fewer batches alive",
                self._table.size,
                self._options.epoch,
            )

    def _await_idle(self) -> None:
        """Wait until no worker has a task; `timeout` seconds at most."""
        while self._feeder.is_busy():
            self._may_have_notice = True
            if self._feeder.take(self._options.timeout_s) is not None:
                return  # late; or a Failure has come, which stays until it is accepted
            self._attend()
