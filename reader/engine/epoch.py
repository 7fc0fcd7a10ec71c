"""One epoch: it takes the steps that the compiled iterator cannot take.

Imports the source of tasks, the supervisor and the stage. Its next step follows from the table of
tasks alone, so that an interrupt may leave it anywhere. It belongs to the iterator, and to the
process that made it; dropping it releases its backend.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from reader._core.epoch.dispatcher import Dispatcher
from reader._core.epoch.handover import Made
from reader._core.epoch.tasks import Task, TaskState
from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.failure import Failure, FailureKind
from reader._core.wire.local_channel import UserBatch
from reader.data.distributed_env import known_ranks
from reader.engine.backends.backend import Backend
from reader.engine.backends.pool_cache import Loan
from reader.engine.epoch_options import EpochOptions
from reader.engine.progress import Progress
from reader.engine.stage import Stage
from reader.engine.supervisor import EpochEnded, Supervisor
from reader.engine.task_source import TaskSource
from reader.errors import ConfigError, ConfigTypeError, DatasetError, ReaderError
from reader.processes.pool_registry import stop_with_program
from reader.worker.loop import WorkerError
from reader.worker.worker_state import WorkerSnapshot

__all__ = ["Epoch"]


class Epoch:
    """Takes answers in their turns, makes batches of them, and raises errors at their places.

    Args:
        loan: of the backend.
        dispatcher: draws tasks, sends them and accepts their answers.
        source: notes which shards have ended.
        supervisor: waits for answers.
        stage: lands batches.
        progress: counts what was handed over.
        options: see EpochOptions.
    """

    def __init__(
        self,
        loan: Loan,
        dispatcher: Dispatcher,
        source: TaskSource,
        supervisor: Supervisor,
        stage: Stage,
        progress: Progress,
        options: EpochOptions,
    ) -> None:
        backend = loan.backend
        self.progress = progress
        self._loan = loan
        self._dispatcher = dispatcher
        self._table = dispatcher.table
        self._source = source
        self._supervisor = supervisor
        self._stage = stage
        self._options = options
        self._is_eager = options.is_eager
        self._is_complete = False  # it ended because all batches were delivered
        self._rng_lock = None if options.is_eager else backend.rng_lock
        self._wait = supervisor.wait if backend.works_ahead else supervisor.make
        self._can_poll = bool(stage.copiers) and backend.works_ahead
        has_next = options.on_end is not None
        self._hands_over_at_once = stage.hands_over_at_once and not has_next

    @property
    def is_usual(self) -> bool:
        """Whether the iterator may take steps by itself; see EpochIterator."""
        if self._loan.backend.works_ahead:
            return self._stage.hands_over_at_once and self._is_eager
        is_timed = self._options.timeout_s is not None or self._rng_lock is not None
        return self._hands_over_at_once and not is_timed

    def length(self) -> int:
        """Return the number of batches of the whole epoch. ConfigTypeError if it is not known."""
        if self._options.length is None:
            text = "an IterableDataset yields until it ends. Count while iterating."
            raise ConfigTypeError(f"the number of batches is not known: {text}")
        return self._options.length()

    @property
    def copiers(self) -> Any:
        """The copiers, by place; empty: the places are no devices."""
        return self._stage.copiers

    @property
    def backend(self) -> Backend:
        """The backend. It is kept after the epoch: statuses then tell how its workers ended."""
        return self._loan.backend

    @property
    def is_usable(self) -> bool:
        """Whether batches can still be taken, in this process."""
        return self._supervisor.is_usable

    # -- the beginning ---------------------------------------------------------------------------

    def fail_start(self, failed: Failure) -> None:
        """End the epoch with what kept a worker from starting; the next step raises it."""
        with suppress(EpochEnded):
            self._supervisor.raise_failed(failed)

    def draw_first(self) -> None:
        """Draw the first batch of indices now, so that a state can describe the order."""
        if not self.progress.is_known:
            self._dispatcher.draw_first()

    @property
    def awaits_initial_states(self) -> bool:
        """Whether initial states of workers are still to come."""
        workers = self.progress.worker_cursors
        return workers is not None and bool(workers.awaited)

    def note_initial_states(self) -> None:
        """Wait until the workers have begun the epoch, and note the states that they had then.

        Nothing is waited for after the first batch. Raises what the wait for a batch may raise. No
        other thread may take a step meanwhile.
        """
        if self.awaits_initial_states and self.is_usable:
            with suppress(EpochEnded):  # the next step raises why
                self._supervisor.await_initial_states()
            self._take_initial_states()

    def _take_initial_states(self) -> None:
        workers, feeder = self.progress.worker_cursors, self._dispatcher.feeder
        if workers is not None:
            for worker_id in sorted(workers.awaited):
                workers.note_initial_state(worker_id, feeder.initial_state(worker_id))

    # -- what comes next -------------------------------------------------------------------------

    def count(self) -> None:
        """Count what was handed over."""
        self.progress.count()

    def wait_for_item(self) -> Any:
        """Wait for the next answer; None: the epoch has ended, which `next_made` handles."""
        try:
            return self._wait()
        except EpochEnded:
            return None

    def stop_with_program(self) -> None:
        """Stop this thread if the end of the program closed the loader: that is no error."""
        stop_with_program()

    def tell_slow(self) -> None:
        """Log a batch that this thread made in more than `warn_after` seconds."""
        self._supervisor.tell_slow()

    def next_made(self) -> Made:
        """Make what is handed over next. An exception may interrupt it; it is called again."""
        table, stage = self._table, self._stage
        try:
            if not self._hands_over_at_once:
                stage.check_capture()
            while True:
                if table.has_news:
                    self.count()
                landed = table.those(TaskState.LANDED)
                size = stage.group_size(landed) if landed else 0
                if size:
                    self._land_ahead(landed)
                    return stage.take(landed[:size])
                if table.is_closed:
                    return self._stop(landed)
                try:
                    made = self._take_next(landed)
                except EpochEnded:
                    continue  # the table is closed now; `_stop` raises the reason
                if made is not None:
                    return made
        except ReaderError:
            self.stop_with_program()
            raise

    def _take_next(self, landed: list[Task]) -> Made | None:
        """Take the next answer, or end the epoch; None: there is nothing to hand over yet."""
        if not self._loan.backend.is_usable:
            self._supervisor.check_backend()
        rng_lock = self._rng_lock
        if rng_lock is not None:
            rng_lock.ask()
        if not self._table.is_awaiting or not self._is_eager:
            self._dispatcher.fill()
            if self._table.is_over:
                self._complete()
                return None
        task, item = self._take_item()
        if rng_lock is not None:
            rng_lock.await_end()  # the random state is the trainer's again
        if type(item) is Failure:
            return self._handle_failure(task, item, landed)
        return self._deliver(task, item, landed)

    def _take_item(self) -> tuple[Task, Any]:
        """Return the answer whose turn it is; before the first, wait for all initial states."""
        table = self._table
        while True:
            task = table.aside
            if task is not None:
                return task, task.value
            if table.is_asked_again:
                self._dispatcher.send_held()  # nothing is drawn until its answer has come
            item = self._wait()
            if self.awaits_initial_states:
                self._take_initial_states()
            task = table.arrive(item.seq)
            if not table.is_before_turn(task):
                return task, item
            self._supervisor.set_aside(item)

    def _land_ahead(self, landed: list[Task]) -> None:
        """Land later batches that have come already, while there is space; blocks on nothing."""
        table, stage, count = self._table, self._stage, len(landed)
        while self._can_poll and count < stage.most_ahead:
            if table.is_closed or table.is_asked_again or not stage.has_space(count):
                return
            item = self._supervisor.poll()
            if item is None or type(item) is Failure:
                return  # an error waits for its turn
            task = table.arrive(item.seq)
            self._deliver(task, item, table.those(TaskState.LANDED))
            before, count = count, len(table.those(TaskState.LANDED))
            if count == before:
                return

    def _deliver(self, task: Task, item: Any, landed: list[Task]) -> Made | None:
        """Land a batch; it is handed over at once, or kept for its group."""
        table, stage = self._table, self._stage
        if self._is_eager:
            self._dispatcher.fill()  # runs the user's sampler, where Ctrl-C loses no batch
        task.note_answer(item.attached, item.number)
        if task.part and stage.is_left(task, landed):
            self._dispatcher.hand(task)
            return None
        try:
            if type(item) is UserBatch:
                batch = item.value
            else:
                batch = stage.converter(len(landed), task.part)(item)
        except Exception as error:
            if not is_interrupt(error):
                if stage.group_size(landed):
                    return None  # before its turn: the item is taken again, and raises in its turn
                self._pass_step_batches(task)
                self._dispatcher.hand(task)
            raise
        if self._hands_over_at_once:
            return Made(batch, task, is_batch=True)
        self._dispatcher.land(task, batch)
        if self._options.on_end is not None and table.is_over and table.error is None:
            self._complete()  # begins the next epoch while the user works on the last batch
        return None

    # -- failures --------------------------------------------------------------------------------

    def _handle_failure(self, task: Task, item: Failure, landed: list[Task]) -> Made | None:
        """Handle a Failure in the place of a batch; returns what is raised, or None to continue."""
        if item.kind is FailureKind.END:
            task.note_answer(item.payload, is_end=True)
            self._dispatcher.hand(task)
            self._source.note_shard_end(item.worker)
            if self._is_eager:
                self._dispatcher.fill()
            return None
        if item.kind is FailureKind.FULL:
            self._stage.free_slots()
            failed = self._supervisor.make_again(task, item)
            if failed is None:
                return None
            item = failed
        if task.start_failure is not None:
            self._supervisor.raise_failed(task.start_failure)
        if self._is_eager:
            self._dispatcher.fill()
        carried: WorkerError | None = None
        if item.kind is FailureKind.ERROR:
            carried = self._loan.backend.open_error(item.payload)
        if carried is not None and carried.is_nothing:
            needed = _needed(task)
            if needed is None:  # all samples of the batch failed: there is no batch
                task.note_answer(_bad_of(item.worker, carried))
                self._dispatcher.hand(task)
                return None
            text = f"all samples of a batch failed, and {needed}"
            carried = carried._replace(error=DatasetError(text))
        is_own_number = self._table.is_stream or self._table.in_order
        number = self._supervisor.next_number() if is_own_number else int(task.number)
        error = self._supervisor.error_of(task, item, number, carried)
        # the exception of a death stands for the rest of the worker's shard, too
        is_end = self._table.is_stream and item.kind is FailureKind.LOST
        drawn = None if carried is None else carried.drawn
        task.note_error(_bad_of(item.worker, carried), drawn, is_end)
        if task.part and self._stage.is_left(task, landed):
            self._dispatcher.hand(task)  # the exception of its step was raised before
            return None
        self._pass_step_batches(task)
        if self._stage.places > 1 and not self._stage.has_step_batches:
            self.progress.note_raised(task)
        return Made(error, task, is_error=True)

    def _pass_step_batches(self, task: Task) -> None:
        """Drop the batches of a step before one that failed: the exception takes their place."""
        if task.part:
            self._pass_landed()

    def _pass_landed(self) -> None:
        """Count the batches that have landed, and drop them."""
        for each in self._table.those(TaskState.LANDED):
            self._dispatcher.hand(each)

    # -- the end ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End the epoch here, and release its workers for another one. Idempotent."""
        self._table.drop_error()
        self.count()
        self._release()

    def _release(self) -> None:
        """Let no more batches be taken, and give the workers back."""
        self._table.close()
        self._loan.release()

    def _complete(self) -> None:
        """End the epoch after its last batch, or with the error that the table has."""
        self._is_complete = self._table.error is None
        self._release()
        if self._options.on_end is not None:
            self._options.on_end()

    def _stop(self, landed: list[Task]) -> Made:
        """Raise the error that ends the epoch, or hand over a last group that is short."""
        table, stage, progress = self._table, self._stage, self.progress
        self._release()
        self.count()
        error = table.error
        if error is not None:
            return Made(error, is_error=True, step=table.drop_error)
        is_whole = stage.delivers_short_group and not stage.has_step_batches
        if landed and not self._is_complete and not is_whole:
            table.drop()  # an error ended the epoch within a group: this group is not the last one
        elif landed:
            if stage.delivers_short_group:
                return stage.take(landed)
            self._pass_landed()
            self.count()
            stage.warn_of_short_group(len(landed), progress.batches)
        table.drop()
        stage.sweep()
        if self._is_complete:
            progress.count(is_finished=True)
        if progress.failures is not None and self._is_complete:
            progress.failures.summarize()
        raise StopIteration


def _needed(task: Task) -> str | None:
    """Return why a batch cannot be left out; None: it can."""
    if task.parts:
        return "the batches of a step belong together"
    try:
        ranks = known_ranks()
    except ConfigError:
        return None
    if ranks is None or ranks.world_size == 1:
        return None
    return (
        f"this is {ranks}, which would take a step less than the others. Pass on_error='replace';"
        " or the loader a reader.Padded(dataset): such a batch then has one sample, which does not"
        " count"
    )


def _bad_of(worker_id: int, carried: WorkerError | None) -> WorkerSnapshot | None:
    """Return the failed samples of a batch, as a worker sends them; None: none failed."""
    if carried is None or not carried.bad:
        return None
    return WorkerSnapshot(worker_id, False, False, None, bad=carried.bad)
