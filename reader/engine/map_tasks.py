"""The schedule of a map-style dataset: which indices make the next batch, and which are made again.

Imports the channel's task format, the order and the window. A schedule belongs to one iterator and
runs in the thread that iterates. The batch sampler is the user's; what it raises is raised at its
place in the order. Any batch can be made again.
"""

from __future__ import annotations

import functools
import pickle
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from reader._core.collate.indices import IndexBatches, Indices
from reader._core.interpreter.signals import draw_into, is_interrupt
from reader._core.steps.handover import Task
from reader._core.steps.round_robin import RoundRobin
from reader._core.steps.window import Window
from reader._core.wire.channel import TaskKind, are_indices, encode_task
from reader._core.wire.failure import FailureKind
from reader.checks import is_flag, is_key
from reader.data.batch_sampler import YieldedBatch
from reader.engine.backends.backend import Death
from reader.engine.cursor import MapCursor
from reader.engine.schedule import Remedies
from reader.errors import SampleIndexError, SamplerError, StateError, got, shown
from reader.orders.order import Order
from reader.orders.order_origin import Position
from reader.orders.shards import Shard
from reader.policy import DispatchPolicy

__all__ = ["MapTasks"]

_MOST_INTERRUPTS = 5  # at one batch: then it is the sampler that raises them
_INTEGER_TASKS = (TaskKind.TASK_INDICES, TaskKind.TASK_INDEX)


class MapTasks:
    """Draws batches of indices and turns them into tasks; see `Schedule`.

    Args:
        window: the tasks in flight.
        order: of the epoch.
        batches: its iterator: lists of dataset indices, or Indices; without batching, lists of one.
        dataset: for its length, where it has one.
        is_batched: False when each list holds one index that is a task by itself.
        policy: what may be an index.
        round_robin: whose turn it is to take each task; None: the least busy worker takes it.
        cursor: of the epoch; the first task makes the order known to it.
        reopen: opens the order again, by the entry `order` of a state and the position.
        takes_keys: tasks have the keys as they are; else encoded.
    """

    def __init__(
        self,
        window: Window,
        order: Order,
        batches: Iterator[Any],
        dataset: Any,
        is_batched: bool,
        policy: DispatchPolicy,
        round_robin: RoundRobin | None,
        cursor: MapCursor,
        reopen: Callable[[dict[str, Any], Position], tuple[Order, Iterator[Any]]],
        takes_keys: bool = False,
    ) -> None:
        self._window = window
        self._order = order
        self._mark = order.mark
        self._last_mark = order.start  # after the task drawn last
        self._batches = batches
        self._dataset = dataset
        self._is_batched = is_batched
        self._takes_any_key = policy.takes_any_key
        # the library gives what the sampler yields to `__getitems__` as it is
        self._keeps_yielded = (
            policy.takes_any_key and is_batched and bool(getattr(dataset, "__getitems__", None))
        )
        self._round_robin = round_robin
        self._cursor = cursor
        self._reopen = reopen
        self._takes_keys = takes_keys
        self._count = -1  # the dataset's length when it was last asked
        self._is_first = True  # no task was drawn yet
        self._keys: list[Any] = []  # the batch of keys whose task is not in flight yet, or nothing
        self._torn: list[bool] = []  # not empty: a signal's handler raised in the sampler
        self._task: Task | None = None  # made of it
        self._needs_no_mark = takes_keys and order.mark is None
        self._has_len = hasattr(type(dataset), "__len__")
        self._early: list[BaseException] = []  # what was raised in the place of the first task
        self._interrupted = (-1, 0)  # the last batch at which the order was opened again, how often
        self._full_at = -1  # the last batch that was made again for want of memory
        if round_robin is not None and not window.in_order:
            # weakly: the round robin goes on in the next epoch
            round_robin.watch(functools.partial(_loads_of, weakref.ref(window)))

    @property
    def _next(self) -> int:
        """The number of the next task."""
        return self._window.dispatched

    # -- drawing ---------------------------------------------------------------------------------

    def draw_first(self) -> None:
        """Draw the first task now, so that a state can describe the order.

        An exception is kept for `draw`.
        """
        if not self._is_first or self._early:
            return
        try:
            self.draw()
        except BaseException as error:
            if is_interrupt(error):
                raise
            self._early.append(error)
            if not isinstance(error, Exception):
                raise

    def draw(self) -> Task | None:
        """Return the next task, the same one until `drawn`; None at the end.

        Once a built-in sampler has yielded its first batch the window draws the others itself
        (`Window.draw_from`), and asks here for those alone that it refuses.

        Raises:
            SamplerError: the sampler yielded something that is no batch of indices.
            SampleIndexError: an index is outside of the dataset.
            Exception: whatever the sampler raises.
        """
        if self._early:
            try:
                raise self._early[0]
            finally:
                self._early.clear()  # a frame in its traceback would keep it alive
        if self._task is None:
            if not self._keys:
                if self._torn:  # that exception ended a generator
                    self._batches = iter(self._draw_again, None)
                    self._torn.clear()
                draw_into(self._keys, self._batches, 1, self._torn)
            if not self._keys:
                if self._is_first:  # an empty sampler has drawn its seed, too
                    self._cursor.know(self._order)
                    self._is_first = False
                return None
            self._task = self._make_task(self._keys[0])
        return self._task

    def _draw_again(self) -> Any:
        """Open the order again where the sampler was interrupted, and return its next batch.

        Raises:
            SamplerError: it does not give the same order again, or nobody can say whether it does.
        """
        number, order = self._next, self._order
        try:
            if number and not order.is_checked:
                raise StateError("its keys are no integers, so its order cannot be checked")
            at = Position(number, order.origin.samples(number))
            found, batches = self._reopen(order.origin.state(number, self._last_mark), at)
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
                f" {self._cursor.epoch}, and cannot go on: {error!r}; iterate over the loader"
                " again, or pass a sampler that gives the same order again"
            ) from error
        found.origin = order.origin  # positions count from where the epoch was opened
        self._order, self._mark, self._batches = found, found.mark, batches
        if not keys:
            raise StopIteration
        return keys[0]

    def drawn(self) -> None:
        """Count the task that `draw` returned as in flight. May be called once more for it."""
        task = self._task
        if task is None:
            return
        if self._round_robin is not None:
            self._round_robin.pass_on(task.worker)
        self._last_mark = task.mark
        self._keys.clear()
        self._task = None

    def _make_task(self, keys: Any) -> Task:
        if type(keys) is Indices:
            if self._takes_keys:
                return self._make_task(keys.tolist())
            count = sys.maxsize
            if self._has_len and not self._takes_any_key:
                self._check_range(keys)
                count = self._count
            if type(self._batches) is IndexBatches and self._mark is None:
                self._window.draw_from(self._batches, count, self._round_robin, self._keys)
            return self._task_of(TaskKind.TASK_INDICES, keys.payload)
        shard: Shard | None = None
        if type(keys) is not list:
            if type(keys) is Shard:
                shard = keys
            keys = self._as_list(keys, shard)
        if not keys and not self._takes_any_key:
            raise SamplerError(
                f"the batch sampler yielded an empty batch as batch {self._next}; leave it out, or"
                " yield at least one index"
            )
        is_batched, takes_any = self._is_batched, self._takes_any_key
        is_usual = self._needs_no_mark and not self._is_first and is_batched
        if is_usual and (takes_any or are_indices(keys, self._count)):
            worker = -1 if self._round_robin is None else self._round_robin.next_worker()
            # the user's list stays as it is, whatever the dataset does to its keys; a face that
            # takes any keys passes on the list itself, as its library does
            task = Task(TaskKind.TASK_KEYS, keys if takes_any else keys.copy(), worker)
            return task if shard is None else _as_part(task, shard)
        try:
            kind, payload = encode_task(keys if is_batched else keys[0], is_batched, takes_any)
            whole = None
            if type(keys) is YieldedBatch:
                whole = payload if kind == TaskKind.TASK_KEYS else pickle.dumps(keys, 5)
        except Exception as error:
            if is_interrupt(error):
                raise
            if not takes_any:
                self._check_keys(keys)
            if not self._takes_keys or not takes_any:
                raise self._unsendable(keys, error) from error
            kind, payload, whole = TaskKind.TASK_KEYS, b"", None
        if not takes_any:
            if kind not in _INTEGER_TASKS:
                self._check_keys(keys)
            elif self._has_len:
                self._check_range(Indices(payload))
        task = self._task_of(kind, payload)
        if self._takes_keys:
            if kind in _INTEGER_TASKS and not takes_any:
                keys = Indices(payload).tolist()  # integers of NumPy become Python's
            task.kind = TaskKind.TASK_KEYS if is_batched else TaskKind.TASK_KEY
            task.payload = keys if is_batched else keys[0]
        elif whole is not None:
            task.kind, task.payload = TaskKind.TASK_KEYS, whole
        return task if shard is None else _as_part(task, shard)

    def _task_of(self, kind: int, payload: bytes) -> Task:
        """Return the next task, of encoded keys."""
        if self._is_first:
            self._order.note_first(kind, payload)
            self._cursor.know(self._order)
            self._is_first = False
        mark = self._mark
        if mark is not None:
            mark = mark(kind, payload, self._next, self._last_mark)
        worker = -1 if self._round_robin is None else self._round_robin.next_worker()
        return Task(kind, payload, worker, mark)

    def _unsendable(self, keys: list[Any], error: Exception) -> SamplerError:
        return SamplerError(
            f"the sampler yielded {shown(keys)} as batch {self._next}, which cannot be sent to a"
            f" worker: {error}; yield integers, strings or other picklable keys, with num_workers=0"
            " as well"
        )

    def _as_list(self, keys: Any, shard: Shard | None) -> list[Any]:
        if self._keeps_yielded and shard is None:
            return YieldedBatch.of(keys)
        if self._takes_any_key or not isinstance(keys, (str, bytes, dict)):
            try:
                return list(keys)
            except TypeError:
                pass
        raise SamplerError(
            f"the batch sampler yielded {got(keys)} as batch {self._next}; it must yield a list of"
            " dataset indices for each batch (a sampler of single indices goes into sampler=)"
        )

    def _check_range(self, indices: Indices) -> None:
        if self._count >= 0 and indices.first_outside(self._count) is None:
            return
        self._count = len(self._dataset)  # it may have grown
        key = indices.first_outside(self._count)
        if key is not None:
            raise SampleIndexError(
                f"the sampler yielded index {key} in batch {self._next}, and the dataset"
                f" ({type(self._dataset).__name__}) has {self._count} samples: indices go from"
                f" {-self._count} to {self._count - 1}. Make the sampler for this dataset"
            )

    def _check_keys(self, keys: list[Any]) -> None:
        for key in keys:
            if not is_key(key):
                remedy = ""
                if is_flag(key):
                    remedy = ". Of a mask yield the places that are True: np.flatnonzero(mask)"
                raise SamplerError(
                    f"the sampler yielded {got(key)} in batch {self._next}; a dataset index is an"
                    f" integer, a string or another hashable key{remedy}"
                )

    # -- answers ---------------------------------------------------------------------------------

    @property
    def is_over(self) -> bool:
        """Whether all is delivered."""
        return self._window.is_over

    def number_of(self, seq: int | None) -> int:
        """Return the number of a batch in its epoch, for messages; None: of the next one."""
        return self._window.answered if seq is None else seq

    def taking(self, wait: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next answer: `wait` itself."""
        return wait

    def polling(self, poll: Callable[[], Any]) -> Callable[[], Any]:
        """Return what takes the next answer where it has come: `poll` itself."""
        return poll

    def send(self) -> None:
        """Workers may have room again, while a batch is waited for."""
        self._window.fill(self)

    def refill(self) -> None:
        """Fill the window while a batch is out of the queue and not delivered yet."""
        self._window.fill(self, 1)

    def answered_task(self, item: Any) -> tuple[Task, None]:
        """Return the task of which an item is the answer; see Schedule."""
        return self._window.tasks[item.seq], None

    def end(self, worker: int) -> None:
        """Do nothing: a map-style dataset has no such end."""

    def retry(self, item: Any, remedies: Remedies) -> bool:
        """Make a batch again that found no memory; False: the failure is raised."""
        if item.kind is not FailureKind.FULL or (
            self._window.size == 1 and self._full_at == item.seq
        ):
            return False
        self._full_at = item.seq  # with one batch in flight, try once more
        remedies.shrink()
        return True

    def lose(self, death: Death, remedies: Remedies) -> None:
        """Give the batches of a dead worker to other workers, or give them up."""
        again: list[Task] = []
        for seq in sorted(death.lost):
            is_at = seq == death.busy
            is_over = is_at and (remedies.is_hung(seq) or remedies.is_hopeless(seq, death))
            if is_over and not remedies.mark_bad(seq, death):
                remedies.give_up(seq, death.worker_id)
            else:
                again.append(self._window.task(seq))
        self._window.hold(again)


def _loads_of(window: weakref.ref[Window]) -> Counter[int]:
    found = window()
    return Counter() if found is None else found.loads()


def _as_part(task: Task, shard: Shard) -> Task:
    task.part, task.parts = shard.part, shard.parts
    return task
