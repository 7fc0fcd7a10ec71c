"""Batches that lack samples which failed, filled up from the next one: they keep their size.

Imports the core's batches and the options. A Refill belongs to the iterator of one epoch.

The first batch that lacks samples takes the first rows of the batch behind it, which is then no
batch of its own any more: batches that lack samples later take its other rows, and what is left of
it at the end of the epoch is the last batch. So the samples stay in order but for those rows, none
is lost, and which go where follows from the order and from what failed.
"""

from __future__ import annotations

import pickle
from typing import Any, NamedTuple

from reader._core.batch.tensor_array import LoDTensorArray
from reader._core.steps.handover import Task
from reader._core.steps.window import Window
from reader._core.wire.channel import TaskKind
from reader.config import LoaderConfig
from reader.worker.bad_sample import AsBatch, BadKey

__all__ = ["Refill", "Spare", "ask_again", "is_spare", "is_spare_task", "refill_of", "rows_of"]


class Spare(NamedTuple):
    """What a saved state says of the batch whose rows are used up: enough to make it again.

    Attributes:
        batch: its number.
        keys: of the dataset, all that it was made of.
        at: how many of the keys have been passed: their samples are in other batches, or failed.
        bad: the places of the keys whose samples failed.
    """

    batch: int
    keys: list[int]
    at: int
    bad: list[int]

    def task_keys(self) -> list[Any]:
        """Return what a worker makes the batch of again; what failed is not fetched again."""
        bad = set(self.bad)
        again = [
            BadKey(key, "", "it failed before") if place in bad else key
            for place, key in enumerate(self.keys)
        ]
        return [AsBatch(self.batch, is_spare=True), *again]


class Refill:
    """The rows that are left of a batch, and the batch that is being filled with them.

    Args:
        size: of a batch.
        drop_last: what is left at the end of the epoch is dropped.

    Attributes:
        is_short: a batch waits for more rows.
        spare: what rows are taken from, as a state has it; None: nothing.
    """

    def __init__(self, size: int, drop_last: bool) -> None:
        self.size = size
        self.drop_last = drop_last
        self.is_short = False
        self.spare: Spare | None = None
        self._parts: list[tuple[LoDTensorArray, int, int]] = []  # of the batch that is short
        self._needs = 0
        self._batch: LoDTensorArray | None = None  # that rows are taken from
        self._places: list[int] = []  # of the key of each of its rows
        self._used = 0  # of its rows

    def put_spare(self, batch: LoDTensorArray, spare: Spare) -> None:
        """Take rows from a batch from now on, those of the keys that were not passed."""
        bad = set(spare.bad)
        self._places = [place for place in range(len(spare.keys)) if place not in bad]
        self._used = sum(place < spare.at for place in self._places)
        is_left = self._used < len(self._places)
        self._batch, self.spare = (batch, spare) if is_left else (None, None)

    def begin(self, batch: LoDTensorArray, needs: int) -> None:
        """Fill up a batch that lacks so many samples."""
        self._parts, self._needs = [(batch, 0, rows_of(batch))], needs
        self.is_short = True

    def filled(self, is_end: bool = False) -> LoDTensorArray | None:
        """Return the batch with what it lacked; None: there are not enough rows yet.

        Args:
            is_end: no more rows come: it is returned with those there are.
        """
        if self._batch is not None and not self.fits(self._batch):
            is_end, part = True, None  # its rows stay for those of its form
        else:
            part = self._taken(self._needs)
        if part is not None:
            self._parts.append(part)
            self._needs -= part[2] - part[1]
        if self._needs and not is_end:
            return None
        parts, self._parts, self.is_short = self._parts, [], False
        return parts[0][0] if len(parts) == 1 else LoDTensorArray.joined(parts)

    def _taken(self, count: int) -> tuple[LoDTensorArray, int, int] | None:
        """Take rows: (batch, the first, the one behind the last); None: there are none."""
        batch, spare, begin = self._batch, self.spare, self._used
        if batch is None or spare is None:
            return None
        end = self._used = min(begin + count, len(self._places))
        if end == len(self._places):
            self._batch = self.spare = None
        else:
            self.spare = spare._replace(at=self._places[end - 1] + 1)
        return batch, begin, end

    def fits(self, batch: Any) -> bool:
        """Whether rows of a batch could be put behind those of the one that is filled."""
        first = self._parts[0][0]
        if type(batch) is not LoDTensorArray:
            return False
        return LoDTensorArray.joined([(first, 0, 1), (batch, 0, 1)]) is not None

    def rest(self) -> LoDTensorArray | None:
        """Return what is left, a batch of it at a time; None: nothing is."""
        part = None if self.drop_last else self._taken(self.size)
        return None if part is None else LoDTensorArray.joined([part])


def refill_of(config: LoaderConfig) -> Refill | None:
    """Return what fills up batches that lack samples; None: they stay short.

    Rows can be moved where the loader itself cuts the batches, and stacks their samples.
    """
    size = config.batch_size
    is_own = config.batch_sampler is None and size is not None
    is_stacked = config.collate_fn is None and not config.is_iterable and config.in_order
    if config.on_error != "skip" or not is_own or not is_stacked or config.prefetch_next_epoch:
        return None
    return None if size is None else Refill(size, config.drop_last)


def ask_again(window: Window, spare: Spare, takes_keys: bool) -> None:
    """Have workers make a batch of a saved state again, before all others.

    Args:
        window: of the epoch, which begins one batch earlier for it.
        spare: of the state.
        takes_keys: workers take keys as they are; else encoded.
    """
    keys: Any = spare.task_keys()
    window.add(Task(TaskKind.TASK_KEYS, keys if takes_keys else pickle.dumps(keys, 5)))
    window.hold_all()


def is_spare_task(keys: list[Any]) -> bool:
    """Whether the keys of a task are those of a saved state's batch."""
    return bool(keys) and type(keys[0]) is AsBatch and keys[0].is_spare


def is_spare(saved: Any) -> bool:
    """Whether a part of a state is a Spare, or None."""
    if saved is None:
        return True
    if not isinstance(saved, dict) or saved.keys() != set(Spare._fields):
        return False
    lists = saved["keys"], saved["bad"]
    numbers = [saved["batch"], saved["at"]]
    if not all(isinstance(each, list) for each in lists):
        return False
    are_counts = all(type(each) is int and each >= 0 for each in [*numbers, *saved["bad"]])
    return are_counts and all(type(key) is int for key in saved["keys"])


def rows_of(batch: LoDTensorArray) -> int:
    """Return how many samples a stacked batch has; 0: they hold nothing."""
    fields: list[Any] = batch.storage_fields() or batch.objects
    return len(fields[0]) if fields else 0
