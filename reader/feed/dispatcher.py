"""From the batch sampler to tasks: which indices make the next batch, checked and written down.

Imports the channel's task format and errors. A dispatcher belongs to one iterator and runs in the
thread that iterates; the batch sampler is the user's, and its trouble comes at its place in the
order.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

from reader._core.channel import TaskKind, encode_task
from reader.errors import SampleIndexError, SamplerError, got, shown

__all__ = ["Circle", "Dispatcher", "Task"]

Task = tuple[int, bytes, int]  # kind, payload, and the worker that must take it; -1: any

_INTEGER_TASKS = (TaskKind.TASK_INDICES, TaskKind.TASK_INDEX)


class Circle:
    """Workers that take turns, from `turn` on.

    Args:
        workers: how many there are.
        turn: whose turn is first.
        limit: most tasks of a worker, where loads are watched.
    """

    def __init__(self, workers: int, turn: int = 0, limit: int = 1) -> None:
        self._workers = workers
        self._limit = limit
        self._loads: Callable[[], Counter[int]] | None = None
        self.turn = turn

    def watch(self, loads: Callable[[], Counter[int]]) -> None:
        """Pass over workers that have as many tasks as they may."""
        self._loads = loads

    def next_worker(self) -> int:
        """Return whose turn it is, and pass the turn on."""
        if self._loads is None:
            return self._next()
        loads = self._loads()
        for _ in range(self._workers):
            worker = self._next()
            if loads[worker] < self._limit:
                return worker
        return min(range(self._workers), key=lambda worker: loads[worker])

    def _next(self) -> int:
        worker = self.turn
        self.turn = (worker + 1) % self._workers
        return worker


class Dispatcher:
    """Draws batches of indices and turns them into tasks.

    Args:
        batches: yields lists of dataset indices; without batching, lists of one.
        dataset: for its length, where it has one.
        is_batched: False when each list holds one index that is a task by itself.
        circle: whose turn it is to take each task; None: the least busy worker takes it.
        takes_any_key: the dataset alone says what is an index, and an empty batch is one.
        note: told of each task that is drawn; returns what is told of the next one, or None.
        first: the number of the first batch.
    """

    is_resumable = False  # the sampler's generator is broken by an exception

    def __init__(
        self,
        batches: Iterable[Any],
        dataset: Any,
        is_batched: bool,
        circle: Circle | None = None,
        takes_any_key: bool = False,
        note: Callable[[int, bytes], Any] | None = None,
        first: int = 0,
    ) -> None:
        self._note = note
        self._takes_any_key = takes_any_key
        self._circle = circle
        self._batches = iter(batches)
        self._dataset = dataset
        self._is_batched = is_batched
        self._count: int | None = None  # the dataset's length when it was last asked
        self._has_len = hasattr(type(dataset), "__len__")
        self.drawn = first
        self._first = first
        self._early: list[tuple[Task | None, BaseException | None]] = []  # drawn to be settled

    def watch(self, loads: Callable[[], Counter[int]]) -> None:
        """See Circle; without one the least busy worker takes a task anyway."""
        if self._circle is not None:
            self._circle.watch(loads)

    def settle(self) -> None:
        """Draw the first task, so that a state can tell the order.

        An exception waits for `draw`.
        """
        if self.drawn != self._first or self._early:
            return
        try:
            self._early.append((self._draw(), None))
        except BaseException as error:
            self._early.append((None, error))
            if not isinstance(error, Exception):
                raise

    def draw(self) -> Task | None:
        """Return the next task, or None at the end.

        Raises:
            SamplerError: the sampler yielded something that is no batch of indices.
            SampleIndexError: an index is outside of the dataset.
            Exception: whatever the sampler raises.
        """
        if not self._early:
            return self._draw()
        task, error = self._early.pop()
        self._first = -1
        if error is not None:
            raise error
        return task

    def _draw(self) -> Task | None:
        try:
            keys = next(self._batches)
        except StopIteration:
            return None
        if type(keys) is not list:
            keys = self._as_list(keys)
        if not keys and not self._takes_any_key:
            raise SamplerError(
                f"the batch sampler yielded an empty batch as batch {self.drawn}; leave it out, or"
                " yield at least one index"
            )
        try:
            kind, payload = encode_task(
                keys if self._is_batched else keys[0], self._is_batched, self._takes_any_key
            )
        except Exception as error:
            raise SamplerError(
                f"the sampler yielded {shown(keys)} as batch {self.drawn}, which cannot be sent to"
                f" a worker: {error}; yield integers, strings or other picklable keys"
            ) from error
        if not self._takes_any_key:
            self._check(kind, keys)
        self.drawn += 1
        if self._note is not None:
            self._note = self._note(kind, payload)
        worker = -1 if self._circle is None else self._circle.next_worker()
        return kind, payload, worker

    def _check(self, kind: int, keys: list[Any]) -> None:
        if kind not in _INTEGER_TASKS:
            self._check_keys(keys)
        elif self._has_len:
            self._check_range(keys)

    def _as_list(self, keys: Any) -> list[Any]:
        if self._takes_any_key or not isinstance(keys, (str, bytes, dict)):
            try:
                return list(keys)
            except TypeError:
                pass
        raise SamplerError(
            f"the batch sampler yielded {got(keys)} as batch {self.drawn}; it must yield a list of"
            " dataset indices for each batch (a sampler of single indices goes into sampler=)"
        )

    def _check_range(self, keys: list[Any]) -> None:
        if self._count is None:
            self._count = len(self._dataset)
        low, high = min(keys), max(keys)
        if -self._count <= low and high < self._count:
            return
        self._count = len(self._dataset)  # it may have grown
        for key in (low, high):
            if not -self._count <= key < self._count:
                raise SampleIndexError(
                    f"the sampler yielded index {int(key)} in batch {self.drawn}, and the dataset"
                    f" ({type(self._dataset).__name__}) has {self._count} samples: indices go from"
                    f" {-self._count} to {self._count - 1}. Make the sampler for this dataset"
                )

    def _check_keys(self, keys: list[Any]) -> None:
        for key in keys:
            if key is None or isinstance(key, (bool, float, complex)) or not _is_hashable(key):
                raise SamplerError(
                    f"the sampler yielded {got(key)} in batch {self.drawn}; a dataset index is an"
                    " integer, a string or another hashable key"
                )


def _is_hashable(key: Any) -> bool:
    try:
        hash(key)
    except TypeError:
        return False
    return True
