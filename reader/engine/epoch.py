"""The iterator over one epoch: it takes batches in order, and raises errors at their places.

Imports the schedule, the supervisor and the stage. Threads may share an iterator: each batch goes
to one of them. It belongs to the process that made it, and dropping it gives its backend back.
"""

from __future__ import annotations

import functools
import weakref
from contextlib import suppress
from typing import Any, final

from reader._core.interpreter.signals import interrupt_after, is_interrupt
from reader._core.steps.handover import Made, Task, WaitStats
from reader._core.steps.quick_steps import QuickSteps
from reader._core.steps.window import Window
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.local_channel import UserBatch
from reader.engine.backends.backend import Backend
from reader.engine.backends.pool_cache import Loan
from reader.engine.cursor import Cursor
from reader.engine.epoch_options import EpochOptions
from reader.engine.map_tasks import MapTasks
from reader.engine.schedule import Schedule
from reader.engine.stage import Stage
from reader.engine.supervisor import EpochEnded, Supervisor
from reader.errors import ConfigTypeError, DatasetError, ReaderError
from reader.processes.pool_registry import leave_with_program
from reader.worker.loop import WorkerError
from reader.worker.worker_state import WorkerSnapshot

__all__ = ["EpochIterator"]


@final
class EpochIterator(QuickSteps):
    """Yields the batches of one epoch; with several places, lists of one batch for each.

    An exception in the place of a batch is raised, and the next call continues after it. Batches of
    its group that came before it are kept; the next call completes the group.

    Args:
        loan: of the backend.
        window: the tasks in flight.
        schedule: draws them.
        supervisor: waits for their answers.
        stage: lands batches.
        options: see EpochOptions.
        stats: counted up while iterating.
    """

    def __init__(
        self,
        loan: Loan,
        window: Window,
        schedule: Schedule,
        supervisor: Supervisor,
        stage: Stage,
        options: EpochOptions,
        stats: WaitStats,
    ) -> None:
        cursor, backend = stage.cursor, loan.backend
        has_next = options.on_end is not None
        super().__init__(window, schedule, stage.converter(0), cursor, stats, has_next)
        self.is_ended = True  # nothing to finalize: dropping the loan does it
        self.copiers = stage.copiers  # by place; none: these are no devices
        self._loan = loan
        self._schedule = schedule
        self._supervisor = supervisor
        self._stage = stage
        self._options = options
        self._is_eager = options.is_eager
        self._hands_over_at_once = stage.hands_over_at_once and not has_next
        self._is_complete = False  # it ended because all batches were delivered
        self._rng_lock = None if options.is_eager else backend.rng_lock
        self._take = schedule.taking(supervisor.wait if backend.works_ahead else supervisor.make)
        works_ahead = stage.copiers and backend.works_ahead
        self._poll = schedule.polling(supervisor.poll) if works_ahead else None
        if backend.works_ahead:
            is_usual = (
                stage.hands_over_at_once and options.is_eager and isinstance(schedule, MapTasks)
            )
        else:
            is_timed = options.timeout_s is not None or self._rng_lock is not None
            is_usual = self._hands_over_at_once and not is_timed
        self._is_usual = is_usual
        if options.warn_after is not None:
            self.slow_s = options.warn_after
        if cursor.failures is not None:
            cursor.failures.stop = functools.partial(_stop, weakref.ref(self))
        self._workers = cursor.workers
        self._awaits_first = self.awaits_initial_states  # no quick steps until they have come
        self.is_quick = is_usual and not self._awaits_first

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
        return self._loan.backend

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return self._supervisor.is_usable

    def fail_start(self, failed: Failure) -> None:
        """Raise what kept a worker from starting; the epoch ends with it."""
        with suppress(EpochEnded):
            self._supervisor.raise_failed(failed)
        next(self)

    def draw_first(self) -> None:
        """Draw the first batch of indices now, so that a state can describe the order."""
        self._schedule.draw_first()

    def note_initial_states(self) -> None:
        """Wait until the workers have begun the epoch, and note the states that they had then.

        Nothing is waited for after the first batch. Raises what the wait for a batch may raise. No
        other thread may take a step meanwhile.
        """
        if self.awaits_initial_states and self.is_usable:
            with suppress(EpochEnded):  # the next step raises why
                self._supervisor.await_initial_states()
            self._take_initial_states()

    @property
    def awaits_initial_states(self) -> bool:
        """Whether initial states of workers are still to come."""
        return self._workers is not None and bool(self._workers.awaited)

    def _take_initial_states(self) -> None:
        if self._workers is not None:
            for worker in sorted(self._workers.awaited):
                self._workers.note_initial_state(worker, self.feeder.initial_state(worker))

    def _take_item(self) -> Any:
        """Take the next batch or Failure; before the first all initial states have come."""
        item = self._take()
        if self._awaits_first:
            self._take_initial_states()
            self._awaits_first, self.is_quick = False, self._is_usual
        return item

    def wait_for_item(self) -> Any:
        """Wait for the feeder's next item; None: the epoch has ended, which `prepare` handles."""
        try:
            return self._take_item()
        except EpochEnded:
            return None  # it is over now, and `_leave` raises why

    def tell_slow(self) -> None:
        """Tell of a batch that this thread made in more than `slow_s` seconds."""
        self._supervisor.tell_slow()

    def leave_with_program(self) -> None:
        """Leave quietly if the loader was closed because the program is ending: it is no error."""
        leave_with_program()

    def close(self) -> None:
        """End the epoch here, so that its workers can serve another one. Idempotent."""
        self.drop()
        self.window.forget_error()
        self._stage.cursor.count_handed()
        self._let_go()

    def _let_go(self) -> None:
        self.window.is_closed = True
        with interrupt_after():
            self._loan.give_back()

    def prepare(self) -> None:
        """Make what is handed over next. An interrupt may leave it anywhere: it is called again."""
        try:
            if not self._hands_over_at_once:
                self._stage.check_capture()
            if self.is_due:
                self._stage.cursor.count_handed()
            while True:
                if self._stage.cursor.failures is not None:
                    self._stage.cursor.count_handed()  # too many failures end the epoch at once
                if self.ahead and (size := self._stage.group_size(self.ahead)):
                    self._land_ahead()
                    self.made = self._stage.take(self.ahead[:size])
                elif self.window.is_closed:
                    self._leave()
                else:
                    try:
                        self._take_next()
                    except EpochEnded:
                        continue  # it is over now, and `_leave` raises why
                if self.made is not None:
                    return
        except ReaderError:
            leave_with_program()  # the program is ending, and that closed it: no error to report
            raise

    def _take_next(self) -> None:
        """Take the next batch or Failure and land it, or end the epoch."""
        if not self._loan.backend.is_usable:
            self._supervisor.check_backend()
        rng_lock = self._rng_lock
        if rng_lock is not None:
            rng_lock.ask()
        if not self.tasks or not self._is_eager:
            self.window.fill(self._schedule)
            if self._schedule.is_over:
                self._end()
                return
        item = self._take_item()
        if rng_lock is not None:
            rng_lock.await_end()  # the random state is the trainer's again
        if type(item) is Failure:
            self._refuse(item)
        else:
            self._deliver(item)

    def _land_ahead(self) -> None:
        """Land later batches that have come already, while there is room; waits for nothing."""
        poll, stage = self._poll, self._stage
        while poll is not None and len(self.ahead) < stage.most_ahead:
            if self.window.is_closed or not stage.has_room(len(self.ahead)):
                return
            item, before = poll(), len(self.ahead)
            if item is None or type(item) is Failure:
                return  # an error comes in its turn
            self._deliver(item)
            if len(self.ahead) == before:
                return

    def _deliver(self, item: Any) -> None:
        """Land a batch."""
        self.window.leaving = item.seq
        if self._is_eager:
            self._schedule.refill()  # runs the user's sampler; Ctrl-C there loses no batch
        task, step = self._schedule.answered_task(item)
        task.snapshot = item.attached
        if task.part and self._stage.is_left(task, self.ahead):
            self.skip(Made(None, task, step=step))
            return
        if self._hands_over_at_once:
            self.land_plain(task, item, step)
            return
        try:
            if type(item) is UserBatch:
                batch = item.value
            else:
                batch = self._stage.converter(len(self.ahead), task.part)(item)
        except Exception as error:
            if not is_interrupt(error):
                if self._stage.group_size(self.ahead):
                    return  # not yet its turn: the item is taken again, and raises then
                self._pass_shards(task)
                self.skip(Made(None, task, step=step))
            raise
        self.keep(Made(batch, task, True, False, step, number=item.number))
        has_next = self._options.on_end is not None
        if has_next and self._schedule.is_over and not self.window.has_error:
            self._end()  # begins the next epoch before the user has done with the last batch

    def _refuse(self, item: Any) -> None:
        """Handle a Failure in the place of a batch: return to continue, or have it raised."""
        supervisor = self._supervisor
        if item.kind is FailureKind.END:
            task, step = self._schedule.answered_task(item)
            task.is_end, task.snapshot = True, item.payload
            self.skip(Made(None, task, step=step))
            self._schedule.end(item.worker)
            self._schedule.refill()
            return
        if item.kind is FailureKind.FULL:
            self._stage.free_slots()
            # without workers only `prepare` asks for a stream's batch again, before all others
            self.is_quick = self.is_quick and self._loan.backend.works_ahead
        if self._schedule.retry(item, supervisor):
            return
        if item.seq in supervisor.failed:
            supervisor.raise_failed(supervisor.failed[item.seq])
        if self._is_eager:
            self.window.leaving = item.seq
            self._schedule.refill()
        keys = self.window.task_keys(item.seq)
        seq = None if self._options.in_order else item.seq
        carried = (
            self._loan.backend.open_error(item.payload) if item.kind is FailureKind.ERROR else None
        )
        if carried is not None and carried.is_nothing:
            carried = self._pass_nothing(item, carried)
            if carried is None:
                return
        error = supervisor.error_of(item, keys, self._schedule.number_of(seq), carried)
        task, step = self._schedule.answered_task(item)
        task.is_error, task.drawn = True, None if carried is None else carried.drawn
        if carried is not None:
            _note_bad(task, item.worker, carried)
        if task.part and self._stage.is_left(task, self.ahead):
            self.skip(Made(None, task, step=step))  # the step's exception was raised
        else:
            self._pass_shards(task)
            self.made = Made(error, task, is_error=True, step=step)
        item.payload = None  # it may be the exception, and frames refer to the item

    def _pass_nothing(self, item: Any, carried: WorkerError) -> WorkerError | None:
        """Go on without a batch of which all samples failed; what is raised if that cannot be."""
        task, step = self._schedule.answered_task(item)
        if task.parts:
            text = "all samples of a shard failed, and the shards of a step belong together"
            return carried._replace(error=DatasetError(text))
        _note_bad(task, item.worker, carried)
        self.skip(Made(None, task, step=step))
        return None

    def _stop(self, error: BaseException) -> None:
        """End the epoch with an exception, which the next step raises."""
        self.window.keep_error(error)
        self._let_go()

    def _pass_shards(self, task: Task) -> None:
        """Drop the shards before one that failed: the exception stands in the place of the step."""
        if task.part:
            self.pass_ahead()

    def _end(self) -> None:
        self._is_complete = not self.window.has_error
        self._let_go()
        if self._options.on_end is not None:
            self._options.on_end()

    def _leave(self) -> None:
        """Raise what ends the epoch, or hand over a last group that is short."""
        if self._stage.cursor.failures is not None:
            self._stage.cursor.count_handed()
        error = self.window.error
        if error is not None:
            self.made = Made(error, is_error=True)
            self.window.forget_error()
            return
        if self.ahead:
            if self._stage.delivers_short_group:
                self.made = self._stage.take(self.ahead[:])
                return
            left = len(self.ahead)
            self.pass_ahead()
            self._stage.cursor.count_handed()
            self._stage.warn_of_short_group(left, self._stage.cursor.batches)
        self._stage.sweep()
        cursor = self._stage.cursor
        cursor.count_handed()
        cursor.is_finished |= self._is_complete
        if cursor.failures is not None and self._is_complete:
            cursor.failures.summarize()
        raise StopIteration


def _stop(found: weakref.ref[EpochIterator], error: BaseException) -> None:
    batches = found()
    if batches is not None:
        batches._stop(error)


def _note_bad(task: Task, worker: int, carried: WorkerError) -> None:
    """Note with a task what failed in its batch."""
    if carried.bad:
        task.snapshot = WorkerSnapshot(worker, False, False, None, bad=carried.bad)
