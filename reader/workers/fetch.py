"""One task of a worker: from dataset keys to a batch that was sent.

Imports the channel's task kinds. A Fetcher belongs to one worker and is used in its main thread;
the dataset and the functions in it are the user's.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reader._core.channel import TaskKind, WorkerChannel
from reader.errors import DatasetError
from reader.workers.worker_state import WorkerSnapshot, WorkerState, put_rng

__all__ = ["Fetcher"]


class Fetcher:
    """Fetches samples, collates them and hands the batch to the channel.

    Args:
        dataset: anything with `__getitem__`; `__getitems__(list of keys)` is used where there is
            one.
        collate_fn: called with the list of samples of a batch, or with one sample without batching;
            None stacks the samples in place.
        snapshots: tells with batches what the dataset's state is; None: nothing does.
        collate: takes whatever `__getitems__` returned that is no list to be stacked; None: it must
            return one sample for each key.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None,
        snapshots: WorkerState | None = None,
        collate: Callable[[Any], Any] | None = None,
    ) -> None:
        self._collate = collate
        self._snapshots = snapshots or WorkerState(0, dataset, 0, False, False)
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.getitems = getattr(dataset, "__getitems__", None)
        self.row = -1  # the sample in hand, -1 when it is none in particular
        self.is_stacking = False  # then the channel knows the sample

    def resume(self, run: int, cursor: dict[str, Any]) -> None:  # noqa: ARG002
        """Go on with the state in a worker's cursor. Raises what the user's code raises."""
        self._snapshots.restore(cursor)
        put_rng(cursor)

    def enter(self, run: int) -> WorkerSnapshot | None:  # noqa: ARG002
        """Return the state before the first batch, where one is kept."""
        return self._snapshots.first()

    def make(self, channel: WorkerChannel, kind: int, keys: Any) -> None:
        """Make the batch of one task and send it. Raises whatever the user's code raises."""
        self.row = -1
        self.is_stacking = False
        if self._snapshots.is_wanted:
            # each batch may change a state that only its own samples lead to
            channel.set_attachment(self._snapshots.take)
        if kind in (TaskKind.TASK_INDEX, TaskKind.TASK_KEY):
            self.row = 0
            sample = self.dataset[keys]
            channel.write(sample if self.collate_fn is None else self.collate_fn(sample))
        elif self.collate_fn is not None:
            samples = self._samples(channel, keys)
            if channel.is_stale:
                channel.skip()
                return
            channel.write(self.collate_fn(samples))
        elif self.getitems:
            samples = self._samples(channel, keys)
            if self._collate is not None and (type(samples) is not list or not samples):
                channel.write(self._collate(samples))
                return
            self.is_stacking = True
            channel.stack(samples, list(range(len(samples))), keys)
        elif not keys and self._collate is not None:
            channel.write(self._collate([]))
        else:
            self.is_stacking = True
            channel.stack(self.dataset, keys, keys)

    def _samples(self, channel: WorkerChannel, keys: list[Any]) -> Any:
        """The samples of a batch; not all of them when nobody waits for it any more."""
        if self.getitems:
            samples = self.getitems(keys)
            if self._collate is not None:
                return samples
            if not hasattr(samples, "__len__") or len(samples) != len(keys):
                count = len(samples) if hasattr(samples, "__len__") else type(samples).__name__
                raise DatasetError(
                    f"__getitems__ of {type(self.dataset).__name__} got {len(keys)} indices and"
                    f" returned {count}; it must return a list with one sample for each index"
                )
            return list(samples)
        samples = []
        for row, key in enumerate(keys):
            if row and channel.is_stale:
                break
            self.row = row
            samples.append(self.dataset[key])
        self.row = -1
        return samples
