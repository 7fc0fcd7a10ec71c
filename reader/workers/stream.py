"""One task of a worker on an iterable dataset: the next batch of its own copy.

Imports the channel's task kinds. A StreamFetcher belongs to one worker and is used in its main
thread; the dataset and the functions in it are the user's.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from reader._core.channel import TaskKind, WorkerChannel
from reader.errors import ArenaFull, DatasetError

__all__ = ["Stream", "StreamFetcher"]

_END = object()


@dataclasses.dataclass(frozen=True)
class Stream:
    """How an iterable dataset is cut into batches."""

    batch_size: int | None  # None: each item is a batch by itself
    drop_last: bool  # leave out each worker's last batch when it is short


@dataclasses.dataclass
class _Drawn:
    """What was drawn for a batch that found no room: its samples, or the ready-made batch."""

    samples: list[Any]
    batch: Any = None
    is_made: bool = False


class StreamFetcher:
    """Draws samples, collates them and hands the batch to the channel.

    Args:
        dataset: anything with `__iter__`, which is called when an epoch's first batch is due.
        collate_fn: called with the list of samples of a batch, or with one sample without batching;
            None stacks the samples in place.
        stream: see Stream.
        is_shared: other threads iterate over the same dataset.
    """

    def __init__(
        self,
        dataset: Any,
        collate_fn: Callable[[Any], Any] | None,
        stream: Stream,
        is_shared: bool = False,
    ) -> None:
        self.dataset = dataset
        self.collate_fn = collate_fn
        self.stream = stream
        self._is_shared = is_shared
        self.row = -1  # the sample in hand, -1 when it is none in particular
        self.is_stacking = False  # then the channel knows the sample
        self._run: int | None = None  # the attempt at an epoch that the iterator belongs to
        self._samples: Iterator[Any] | None = None  # None when used up
        self._no_room: dict[int, _Drawn] = {}  # batch -> what was drawn for it

    def give_up(self, run: int) -> None:
        """Have nothing more to yield in this attempt at an epoch."""
        self._run = run
        self._samples = None
        self._no_room.clear()

    def make(self, channel: WorkerChannel, kind: int, keys: Any) -> None:
        """Make the next batch and send it, or the end. Raises whatever the user's code raises."""
        self.row = -1
        self.is_stacking = False
        if self._run != channel.run:
            self._run = channel.run
            self._no_room.clear()
            self._samples = None  # an iterator that was given up ends before the next begins
            self._samples = iter(self.dataset)
            if self._is_shared and self._samples is self.dataset:
                self._samples = None
                raise DatasetError(
                    f"__iter__ of {type(self.dataset).__name__} returns the dataset itself, and the"
                    " worker threads would draw from one iterator; make __iter__ a generator"
                    " function, or pass worker_type='process' or num_workers=0"
                )
        number = channel.seq
        if kind == TaskKind.TASK_AGAIN:
            number = keys
            drawn = self._no_room.pop(keys)
        else:
            drawn = _Drawn([])
        try:
            if kind == TaskKind.TASK_AGAIN:
                self._send(channel, drawn)
            elif self._samples is None:
                channel.end()
            elif self.collate_fn is None and self.stream.batch_size is not None:
                self._stack(channel, drawn)
            else:
                self._collate(channel, drawn)
        except ArenaFull:
            self._no_room[number] = drawn
            raise

    def _stack(self, channel: WorkerChannel, drawn: _Drawn) -> None:
        """Draw into the slot itself."""
        source, size = self._samples, self.stream.batch_size
        if source is None or size is None:
            return
        self.is_stacking = True
        try:
            if not channel.stream(source, size, self.stream.drop_last):
                self._samples = None
        except ArenaFull:
            drawn.samples = channel.take_drawn()
            drawn.samples += islice(source, size - len(drawn.samples))
            if len(drawn.samples) < size:
                self._samples = None
            raise

    def _collate(self, channel: WorkerChannel, drawn: _Drawn) -> None:
        size = self.stream.batch_size
        self._draw(channel, drawn.samples, 1 if size is None else size)
        if channel.is_stale:
            channel.skip()
            return
        short = len(drawn.samples) < (size or 1)
        if short:
            self._samples = None
        if not drawn.samples or (short and self.stream.drop_last):
            channel.end()
            return
        made = drawn.samples[0] if size is None else drawn.samples
        drawn.batch = made if self.collate_fn is None else self.collate_fn(made)
        drawn.is_made = True
        channel.write(drawn.batch)

    def _draw(self, channel: WorkerChannel, samples: list[Any], count: int) -> None:
        if self._samples is None:
            return
        while len(samples) < count:
            if samples and channel.is_stale:
                break
            self.row = len(samples)
            sample = next(self._samples, _END)
            if sample is _END:
                break
            samples.append(sample)
        self.row = -1

    def _send(self, channel: WorkerChannel, drawn: _Drawn) -> None:
        """Send what had no room before."""
        if drawn.is_made:
            channel.write(drawn.batch)
        elif self.stream.drop_last and len(drawn.samples) < (self.stream.batch_size or 1):
            channel.end()
        else:
            rows = list(range(len(drawn.samples)))
            channel.stack(drawn.samples, rows, None)
