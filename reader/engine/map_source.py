"""The tasks of a map-style dataset: which indices make the next batch, and which are made again.

Imports the channel's task format, the order and the table of tasks. The batch sampler is the
user's; what it raises is raised at its place in the order. Any batch can be made again.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from reader._core.collate.indices import IndexBatches, Indices
from reader._core.epoch.round_robin import RoundRobin
from reader._core.epoch.tasks import Task, TaskTable
from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.channel import TaskKind, are_indices, encode_task
from reader.checks import is_flag, is_key
from reader.data.batch_sampler import YieldedBatch
from reader.data.padded import index_limit
from reader.engine.backends.backend import Death
from reader.engine.progress import Progress
from reader.engine.task_source import Loss, Remedy
from reader.errors import SampleIndexError, SamplerError, StateError, got, shown
from reader.orders.order import Order
from reader.orders.order_origin import Position
from reader.orders.step_batches import StepBatch
from reader.policy import DispatchPolicy

__all__ = ["MapSource"]

_MOST_INTERRUPTS = 5  # at one batch: after so many the exception is raised
_INTEGER_TASKS = (TaskKind.TASK_INDICES, TaskKind.TASK_INDEX)


class MapSource:
    """Draws batches of indices and turns them into tasks; see `TaskSource`.

    Args:
        table: of the epoch.
        order: of the epoch.
        batches: its iterator: lists of dataset indices, or Indices; without batching, lists of one.
        dataset: for its length, where it has one.
        is_batched: False when each list holds one index that is a task by itself.
        policy: says what may be an index.
        round_robin: whose turn it is to take each task; None: the least busy worker takes it.
        progress: of the epoch; the first task makes the order known to it.
        reopen: opens the order again, by the entry `order` of a state and the position.
        takes_keys: tasks carry the keys as they are; else encoded.
        retries: how often a batch is made again when its worker died.
    """

    def __init__(
        self,
        table: TaskTable,
        order: Order,
        batches: Iterator[Any],
        dataset: Any,
        is_batched: bool,
        policy: DispatchPolicy,
        round_robin: RoundRobin | None,
        progress: Progress,
        reopen: Callable[[dict[str, Any], Position], tuple[Order, Iterator[Any]]],
        takes_keys: bool = False,
        retries: int = 1,
    ) -> None:
        self.batches = batches
        self._table = table
        self._order = order
        self._mark = order.mark
        self._dataset = dataset
        self._is_batched = is_batched
        self._takes_any_key = policy.takes_any_key
        # the library passes what the sampler yields to `__getitems__` as it is
        self._keeps_yielded = (
            policy.takes_any_key and is_batched and bool(getattr(dataset, "__getitems__", None))
        )
        self._round_robin = round_robin
        self._progress = progress
        self._reopen = reopen
        self._takes_keys = takes_keys
        self._retries = retries
        self._count = -1  # the dataset's length when it was last asked
        self._is_first = True  # no task is ready yet
        self._torn: list[bool] = []  # True is in it: a signal's handler raised in the sampler
        self._has_len = hasattr(type(dataset), "__len__")
        self._interrupted = (-1, 0)  # the last batch where the order was reopened; how often

    # -- drawing ---------------------------------------------------------------------------------

    def draw(self) -> Task | None:
        """Draw the next batch of keys into the table; None: there are no more.

        Raises:
            Exception: whatever the sampler raises.
        """
        if self._torn:  # that exception ended a generator
            self.batches = iter(self._draw_again, None)
            self._torn.clear()
        task = self._table.draw_from(self.batches, self._round_robin, self._torn)
        if task is None and self._is_first:  # an empty sampler draws its seed, too
            self._progress.know(self._order)
            self._is_first = False
        return task

    def _draw_again(self) -> Any:
        """Open the order again where the sampler was interrupted, and return its next batch.

        Raises:
            SamplerError: the order is another one, or cannot be compared.
        """
        number, order = self._table.drawn, self._order
        mark = order.start if self._is_first else self._table.last_mark
        try:
            if number and not order.is_checked:
                raise StateError("its keys are no integers, so its order cannot be checked")
            at = Position(number, order.origin.samples(number))
            found, batches = self._reopen(order.origin.state(number, mark), at)
            keys = list(islice(batches, 1))
            if not keys and not number:
                raise StateError("iterated over again it yields nothing")
        except BaseException as error:
            if is_interrupt(error):
                at_last, times = self._interrupted
                times = times + 1 if at_last == number else 1
                self._interrupted = (number, times)
                if times < _MOST_INTERRUPTS:
                    raise
            elif not isinstance(error, Exception):
                raise
            raise SamplerError(
                f"the sampler was interrupted while it made batch {number} of epoch"
                f" {self._progress.epoch}, and cannot go on: {error!r}; iterate over the loader"
                " again, or pass a sampler that gives the same order again"
            ) from error
        found.origin = order.origin  # positions count from where the epoch was opened
        self._order, self._mark, self.batches = found, found.mark, batches
        if not keys:
            raise StopIteration
        return keys[0]

    # -- encoding --------------------------------------------------------------------------------

    def encode(self, task: Task) -> int | None:
        """Make a task ready of the keys that were drawn into it; see `TaskSource`.

        Raises:
            SamplerError: the sampler yielded no batch of indices.
            SampleIndexError: an index is outside of the dataset.
        """
        keys = task.payload
        if type(keys) is Indices:
            if not self._takes_keys:
                return self._encode_indices(task, keys)
            keys = keys.tolist()
        step_batch = keys if type(keys) is StepBatch else None
        if type(keys) is not list:
            keys = self._as_list(task, keys, step_batch)
        takes_any, is_batched = self._takes_any_key, self._is_batched
        if not keys and not takes_any:
            raise SamplerError(
                f"the batch sampler yielded an empty batch as batch {task.number}; leave it out, or"
                " yield at least one index"
            )
        is_usual = self._takes_keys and self._mark is None and not self._is_first and is_batched
        if is_usual and (takes_any or are_indices(keys, self._count)):
            # the user's list stays as it is, whatever the dataset does to its keys; a face that
            # takes any keys passes on the list itself, as its library does
            self._ready(
                task, TaskKind.TASK_KEYS, keys if takes_any else keys.copy(), None, step_batch
            )
            return None
        kind, payload, sent = self._encode_keys(task, keys)
        mark = self._mark_after(task, kind, payload)
        if self._takes_keys:
            if kind in _INTEGER_TASKS and not takes_any:
                keys = Indices(payload).tolist()  # integers of NumPy become Python's
            kind = TaskKind.TASK_KEYS if is_batched else TaskKind.TASK_KEY
            sent = keys if is_batched else keys[0]
        elif sent is not payload:
            kind = TaskKind.TASK_KEYS
        self._ready(task, kind, sent, mark, step_batch)
        return None

    def _encode_indices(self, task: Task, keys: Indices) -> int | None:
        count = sys.maxsize
        if self._has_len and not self._takes_any_key:
            self._check_range(task, keys)
            count = self._count
        kind, payload = TaskKind.TASK_INDICES, keys.payload
        self._ready(task, kind, payload, self._mark_after(task, kind, payload), None)
        return count if type(self.batches) is IndexBatches and self._mark is None else None

    def _encode_keys(self, task: Task, keys: Any) -> tuple[int, bytes, Any]:
        """Return the kind and bytes that the order counts, and what is sent: mostly the bytes."""
        takes_any = self._takes_any_key
        try:
            kind, payload = encode_task(
                keys if self._is_batched else keys[0], self._is_batched, takes_any
            )
            sent: Any = payload
            if type(keys) is YieldedBatch and kind != TaskKind.TASK_KEYS:
                sent = pickle.dumps(keys, 5)
        except Exception as error:
            if is_interrupt(error):
                raise
            if not takes_any:
                self._check_keys(task, keys)
            if not self._takes_keys or not takes_any:
                raise self._unsendable(task, keys, error) from error
            kind, payload, sent = TaskKind.TASK_KEYS, b"", b""
        if not takes_any:
            if kind not in _INTEGER_TASKS:
                self._check_keys(task, keys)
            elif self._has_len:
                self._check_range(task, Indices(payload))
        return kind, payload, sent

    def _mark_after(self, task: Task, kind: int, payload: bytes) -> Any:
        """Return the mark of a task, of encoded keys; the first makes the order known."""
        if self._is_first:
            self._order.note_first(kind, payload)
            self._progress.know(self._order)
            self._is_first = False
        mark = self._mark
        return None if mark is None else mark(kind, payload, task.number, self._table.last_mark)

    def _ready(
        self, task: Task, kind: int, sent: Any, mark: Any, step_batch: StepBatch | None
    ) -> None:
        if step_batch is None:
            self._table.ready(task, kind, sent, mark)
        else:
            self._table.ready(task, kind, sent, mark, step_batch.part, step_batch.parts)

    def _unsendable(self, task: Task, keys: list[Any], error: Exception) -> SamplerError:
        return SamplerError(
            f"the sampler yielded {shown(keys)} as batch {task.number}, which cannot be sent to a"
            f" worker: {error}; yield integers, strings or other picklable keys, with num_workers=0"
            " as well"
        )

    def _as_list(self, task: Task, keys: Any, step_batch: StepBatch | None) -> list[Any]:
        if self._keeps_yielded and step_batch is None:
            return YieldedBatch.of(keys)
        if self._takes_any_key or not isinstance(keys, (str, bytes, dict)):
            try:
                return list(keys)
            except TypeError:
                pass
        raise SamplerError(
            f"the batch sampler yielded {got(keys)} as batch {task.number}; it must yield a list of"
            " dataset indices for each batch (a sampler of single indices goes into sampler=)"
        )

    def _check_range(self, task: Task, indices: Indices) -> None:
        if self._count >= 0 and indices.first_outside(self._count) is None:
            return
        self._count = index_limit(self._dataset)  # it may have grown
        key = indices.first_outside(self._count)
        if key is not None:
            raise SampleIndexError(
                f"the sampler yielded index {key} in batch {task.number}, and the dataset"
                f" ({type(self._dataset).__name__}) has {self._count} samples: indices go from"
                f" {-self._count} to {self._count - 1}. Make the sampler for this dataset"
            )

    def _check_keys(self, task: Task, keys: list[Any]) -> None:
        for key in keys:
            if not is_key(key):
                remedy = ""
                if is_flag(key):
                    remedy = ". Of a mask yield the places that are True: np.flatnonzero(mask)"
                raise SamplerError(
                    f"the sampler yielded {got(key)} in batch {task.number}; a dataset index is an"
                    f" integer, a string or another hashable key{remedy}"
                )

    # -- what went wrong -------------------------------------------------------------------------

    def note_shard_end(self, worker_id: int) -> None:
        """Do nothing: a map-style dataset has no shards."""

    def handle_death(self, death: Death) -> list[tuple[Task, Loss]]:
        """Return what becomes of the tasks of a dead worker: others make them, up to a limit."""
        found = []
        for number in sorted(death.lost):
            task, loss = self._table[number], Loss.AGAIN
            if number == death.current_seq and task.hung is None:
                task.note_deaths([*task.deaths, death])
            if number == death.current_seq and (task.hung or len(task.deaths) > self._retries):
                loss = Loss.RAISED
            found.append((task, loss))
        return found

    def handle_no_memory(self, task: Task) -> Remedy:
        """Have a batch made again with fewer in flight; if one is in flight, just once more."""
        tries = task.note_no_memory()
        return Remedy.RAISE if self._table.size == 1 and tries > 1 else Remedy.SHRINK
