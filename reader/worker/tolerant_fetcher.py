"""A fetcher of a map-style dataset that continues after a sample fails.

Imports the fetcher. It belongs to one worker and is used in its main thread.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from reader._core.collate.columns import Columns
from reader._core.collate.indices import Indices
from reader._core.interpreter.signals import is_interrupt
from reader._core.wire.channel import TaskKind, WorkerChannel
from reader.errors import DatasetError
from reader.worker.bad_sample import (
    BadKey,
    BadSample,
    NothingLeft,
    Tolerance,
    bad_sample,
    is_bad,
    substitute,
)
from reader.worker.fetch import Fetcher
from reader.worker.worker_state import WorkerSnapshot

__all__ = ["TolerantFetcher"]

_LONG_NS = 1_000_000  # samples that take longer are noted, among quick ones


class TolerantFetcher(Fetcher):
    """Fetches samples; one that fails is left out, or another takes its place.

    Each sample is fetched once, in its order, as without tolerance. The failures are sent with the
    batch.

    Args:
        tolerance: see there.
        worker_id: of the worker.
        others: see Fetcher.
    """

    is_stateless = False

    def __init__(self, tolerance: Tolerance, worker_id: int, *others: Any) -> None:
        super().__init__(*others)
        self._tolerance = tolerance
        self._worker_id = worker_id
        self._keys: list[Any] = []  # of the current batch
        self._kept: list[Any] = []  # the keys whose samples are in it
        self._bad: list[BadSample] = []
        # of a dataset that marks which samples count: what takes the place of another does not
        self._padding_of = getattr(self.dataset, "padding_of", None)

    @property
    def fetches_each(self) -> bool:
        """False: workers do not make each other's rows, since a row may be missing."""
        return False

    def take_bad(self) -> tuple[BadSample, ...]:
        """Return the samples of the current batch that failed."""
        found, self._bad = tuple(self._bad), []
        return found

    def make(self, channel: WorkerChannel, kind: int, keys: Any) -> None:
        """See Fetcher. Raises NothingLeft if no sample is left."""
        self._bad = []
        if kind in (TaskKind.TASK_INDEX, TaskKind.TASK_KEY):
            self._keys = [keys]
        else:
            self._keys = keys.tolist() if type(keys) is Indices else list(keys)
        super().make(channel, kind, keys)

    def _one(self, channel: WorkerChannel, key: Any) -> Any:
        return self._samples(channel, [key])[0]

    def _attachment(self) -> Callable[[], Any] | None:
        return self._attached

    def _attached(self) -> WorkerSnapshot | None:
        """Return the attachment of the batch: the dataset's state and the failed samples."""
        found = self._snapshots.take() if self._snapshots.is_wanted else None
        bad = self.take_bad()
        if not bad:
            return found
        if found is None:
            return WorkerSnapshot(self._worker_id, False, False, None, bad=bad)
        return found._replace(bad=bad)

    def _gather(self, channel: WorkerChannel, columns: Columns, keys: Any) -> bool:
        """Send a batch gathered from arrays; False: fetch the samples, since one fails."""
        if self.one_by_one:
            return False
        try:
            return super()._gather(channel, columns, keys)
        except Exception as error:
            if not self._is_bad(error):
                raise
            self.leave_sample()
            return False

    def _make_each(self, channel: WorkerChannel, keys: list[Any]) -> None:
        is_by_one = not self.getitems or self._fill is not None
        if self._tolerance.replaces and is_by_one and keys:
            self.is_stacking = True
            fill = None if self._fill is None else self._filler(channel, self._fill)
            channel.stack(_Replacing(self, channel), keys, keys, fill)
            return
        samples = self._samples(channel, keys) if keys else []
        if channel.is_stale:
            channel.skip()
            return
        channel.note_fetched(len(self._kept))
        self._write(channel, samples, self._kept)

    def _samples(self, channel: WorkerChannel, keys: list[Any]) -> Any:
        """Return the samples of a batch that do not fail. Raises NothingLeft if all fail."""
        is_alone, self.one_by_one = self.one_by_one, False
        if self.getitems and not is_alone and not any(type(key) is BadKey for key in keys):
            try:
                self._kept = list(keys)
                return super()._samples(channel, list(keys))
            except Exception as error:
                if not self._is_bad(error):
                    raise  # otherwise each is fetched by itself
        samples: list[Any] = []
        self._kept = []
        for row, key in enumerate(keys):
            if channel.note_row(row) and row:
                break
            self.row = row
            begun = time.monotonic_ns()
            try:
                samples.append(self._sample(row, key, self._item))
            except _Left:
                continue
            self._kept.append(key)
            took_ns = time.monotonic_ns() - begun
            if channel.times_each or took_ns >= _LONG_NS:
                channel.note_sample(row, key, took_ns)
        self.row = -1
        channel.note_row(-1)
        if not samples and not channel.is_stale:
            if self._padding_of is None:
                raise NothingLeft
            samples.append(self._stand_in())
            self._kept.append(keys[0])
        return samples

    def _item(self, key: Any) -> Any:
        return self.dataset[key]

    def _filler(self, channel: WorkerChannel, fill: Callable[..., Any]) -> Callable[..., Any]:
        """Return a fill function that writes a sample, or its substitute, into its row."""

        def filled(key: Any, out: Any) -> Any:
            return self._sample(channel.row, key, lambda other: fill(other, out))

        return filled

    def _sample(self, row: int, key: Any, take: Callable[[Any], Any]) -> Any:
        """Return a sample, or the one that takes its place. Raises _Left if it is left out."""
        error: Exception
        passed = 0
        if type(key) is BadKey:
            self._bad.append(BadSample(key.key, row, key.error, key.text, ""))
            error, passed = DatasetError(key.text), key.passed
            key = key.key
        else:
            try:
                return take(key)
            except Exception as failed:
                if not self._is_bad(failed):
                    raise
                self._bad.append(bad_sample(self._counted(key), row, failed))
                error = failed
        if not self._tolerance.replaces:
            raise _Left
        count, take = self._tolerance.count, self._taken_as_padding(take)
        instead, sample = substitute(key, self._keys, count, take, error, passed)
        self._bad[-1] = self._bad[-1]._replace(instead=instead)
        return sample

    def _counted(self, key: Any) -> Any:
        """Return the key of the sample that is padding at a key; else the key."""
        padding_of = self._padding_of
        return key if padding_of is None else padding_of(key) - len(self.dataset)

    def _taken_as_padding(self, take: Callable[[Any], Any]) -> Callable[[Any], Any]:
        """Return a function that takes samples as padding, where the dataset has such."""
        padding_of = self._padding_of
        return take if padding_of is None else lambda key: take(padding_of(key))

    def _stand_in(self) -> Any:
        """Return a sample that does not count, for a batch of which nothing is left."""
        last, error = self._bad[-1], DatasetError(self._bad[-1].text)
        take = self._taken_as_padding(self._item)
        instead, sample = substitute(last.key, [], len(self.dataset), take, error)
        self._bad[-1] = last._replace(instead=instead)
        return sample

    def _is_bad(self, error: Exception) -> bool:
        return is_bad(error) and not (self._is_inline and is_interrupt(error))


class _Left(Exception):
    """A sample is left out of its batch."""


class _Replacing:
    """The dataset with substitutes in place of samples that fail."""

    def __init__(self, fetcher: TolerantFetcher, channel: WorkerChannel) -> None:
        self._fetcher = fetcher
        self._channel = channel

    def __getitem__(self, key: Any) -> Any:
        return self._fetcher._sample(self._channel.row, key, self._fetcher._item)
