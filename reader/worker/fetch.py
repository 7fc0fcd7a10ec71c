"""One task of a worker: from dataset keys to the batch that is sent.

Imports the channel's task kinds. A Fetcher belongs to one worker and is used in its main thread;
the dataset and the functions in it are the user's.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np

from reader._core.collate.columns import Columns
from reader._core.collate.indices import Indices
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader.data.batch_sampler import YieldedBatch
from reader.data.columns import columns_of, filler_of, reading_ahead
from reader.errors import DatasetError
from reader.worker.bad_sample import BadSample
from reader.worker.worker_state import WorkerSnapshot, WorkerState, put_rng

__all__ = ["Fetcher"]


class Fetcher:
    """Fetches samples, collates them and hands the batch to the channel.

    Args:
        dataset: anything with `__getitem__`; `__getitems__(list of keys)` is used where there is
            one.
        collate_fn: called with the list of samples of a batch, or with one sample without batching;
            None stacks the samples in place.
        snapshots: takes the states that are sent with batches; None: no states are sent.
        collate: makes the batch of the result of `__getitems__`, unless that is a list of samples;
            None: `__getitems__` must return one sample for each key.
        is_inline: whether the consumer waits in this thread: then a batch is never stale.
        fetches_many: whether to call `__getitems__`; otherwise samples are fetched one by one.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None,
        snapshots: WorkerState | None = None,
        collate: Callable[[Any], Any] | None = None,
        is_inline: bool = False,
        fetches_many: bool = True,
    ) -> None:
        self._is_inline = is_inline
        self._collate = collate
        self._snapshots = snapshots or WorkerState(0, dataset, 0, False, False)
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.getitems = getattr(dataset, "__getitems__", None) if fetches_many else None
        # how to gather samples without Python code for each, and how samples write themselves
        self._columns = columns_of(dataset) if collate_fn is None else None
        self._fill = filler_of(dataset) if collate_fn is None else None
        self._read_ahead = reading_ahead(dataset)
        self.row = -1  # the current sample; -1: none in particular
        self.is_stacking = False  # whether the channel knows the current sample
        self.one_by_one = False  # the next batch is fetched sample by sample

    @property
    def is_stateless(self) -> bool:
        """Whether it keeps nothing of the dataset, which may have changed between two epochs."""
        knows = self._read_ahead is not None or self._snapshots.is_wanted
        fetches_one = self.getitems is None is getattr(self.dataset, "__getitems__", None)
        return self.collate_fn is not None and fetches_one and not knows and not self.one_by_one

    @property
    def gathers(self) -> bool:
        """Whether batches may be gathered from arrays, where keys need not be Python integers."""
        return self._columns is not None

    @property
    def fetches_each(self) -> bool:
        """Whether samples are fetched one by one and stacked in place."""
        return (
            self.collate_fn is None
            and self._columns is None
            and (self.getitems is None or self._fill is not None)
            and not self._snapshots.is_wanted
        )

    def resume(self, run: int, cursor: dict[str, Any]) -> None:  # noqa: ARG002
        """Restore the state in a worker's cursor. Raises what the user's code raises."""
        self._snapshots.restore(cursor)
        put_rng(cursor)

    def begin_epoch(self, run: int) -> WorkerSnapshot | None:  # noqa: ARG002
        """Return the state before the first batch, if states are kept."""
        return self._snapshots.first()

    def make(self, channel: WorkerChannel, kind: int, keys: Any) -> None:
        """Make the batch of one task and send it. Raises whatever the user's code raises."""
        self.row = -1
        self.is_stacking = False
        attachment = self._attachment()
        if attachment is not None:
            channel.set_attachment(attachment)
        if kind in (TaskKind.TASK_INDEX, TaskKind.TASK_KEY):
            self.row = 0
            made = [self._one(channel, keys)]
            channel.note_fetched(1)
            if self.collate_fn is not None:
                made.append(self.collate_fn(made.pop()))
            channel.write_from(made)
            return
        if self._read_ahead is not None:
            with contextlib.suppress(Exception):  # a wrong key is reported when it is used
                self._read_ahead(keys.tolist() if type(keys) is Indices else keys)
        if self.collate_fn is not None:
            samples = self._samples(channel, keys)
            if channel.is_stale:
                channel.skip()
                return
            channel.note_fetched(len(keys))
            made = [self.collate_fn(samples)]
            del samples  # values that only the batch refers to need no copy: see LeafMaker
            channel.write_from(made)
        elif self._columns is not None and self._gather(channel, self._columns, keys):
            return
        else:
            self._make_each(channel, keys.tolist() if type(keys) is Indices else keys)

    def _one(self, channel: WorkerChannel, key: Any) -> Any:
        """Return the only sample of a task."""
        samples: list[Any] = []
        channel.fetch(self.dataset, (key,), samples)
        return samples[0]

    def _attachment(self) -> Callable[[], Any] | None:
        """Return the function that makes the attachment of a batch; None: nothing is attached.

        Every batch has one: each may change the state, and no other batch repeats that change.
        """
        return self._snapshots.take if self._snapshots.is_wanted else None

    def fetch_one_by_one(self) -> None:
        """Fetch the next batch sample by sample."""
        self.one_by_one = True

    def leave_sample(self) -> None:
        """Be at no sample in particular."""
        self.row = -1
        self.is_stacking = False

    def take_bad(self) -> tuple[BadSample, ...]:
        """Return the samples of the current batch that failed, if failures are tolerated."""
        return ()

    def _make_each(self, channel: WorkerChannel, keys: list[Any]) -> None:
        """Make a batch of samples that are fetched, by `__getitems__` or one by one."""
        if self.getitems and self._fill is None:
            count = len(keys)  # before the dataset may change the list
            samples = self._samples(channel, keys)
            channel.note_fetched(count)
            self._write(channel, samples, keys)
        elif not keys and self._collate is not None:
            channel.write(self._collate([]))
        else:
            self.is_stacking = True
            channel.stack(self.dataset, keys, keys, self._fill)

    def _write(self, channel: WorkerChannel, samples: Any, names: list[Any]) -> None:
        """Send the batch of samples, or the result of `__getitems__` if that is no list."""
        if self._collate is not None and (type(samples) is not list or not samples):
            channel.write(self._collate(samples))
        elif type(samples) is not list:
            channel.write(samples)
        else:
            self.is_stacking = True
            channel.stack(samples, list(range(len(samples))), names)

    def _gather(self, channel: WorkerChannel, columns: Columns, keys: Any) -> bool:
        """Send a batch gathered from arrays; False: fetch the samples one by one."""
        self.is_stacking = True  # the first batch fetches its sample 0, for the form
        is_sent = channel.gather(columns, keys)
        self.is_stacking = False
        return is_sent

    def _samples(self, channel: WorkerChannel, keys: list[Any]) -> Any:
        """Return the samples of a batch; fewer once the batch is stale.

        If `__getitems__` returns a batch already and nothing collates it, return that.
        """
        if self.getitems:
            count = len(keys)  # before the dataset may change the list
            samples = self.getitems(keys.yielded if type(keys) is YieldedBatch else keys)
            if self._collate is not None:
                return samples
            if self.collate_fn is None and _is_batch(samples, count):
                return samples
            if not hasattr(samples, "__len__") or len(samples) != count:
                found = len(samples) if hasattr(samples, "__len__") else type(samples).__name__
                raise DatasetError(
                    f"__getitems__ of {type(self.dataset).__name__} got {count} indices and"
                    f" returned {found}; it must return a list with one sample for each index"
                )
            return list(samples)
        fetched: list[Any] = []
        try:
            channel.fetch(self.dataset, keys, fetched)
        except BaseException:
            self.row = len(fetched)
            raise
        return fetched


def _is_batch(value: Any, count: int) -> bool:
    """Whether a value is the array of `count` samples, or a dict of such arrays."""
    arrays = list(value.values()) if type(value) is dict else [value]
    return bool(arrays) and all(
        type(array) is np.ndarray
        and array.ndim > 0
        and len(array) == count
        and not array.dtype.hasobject
        for array in arrays
    )
