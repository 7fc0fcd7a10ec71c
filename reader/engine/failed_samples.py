"""The samples that failed and were tolerated: their records, and the limit on their number.

Imports the quarantine file and the types that cross. FailedSamples belong to an engine; an
EpochFailures belongs to the progress of one epoch, and counts what was delivered.
"""

from __future__ import annotations

import dataclasses
from collections import Counter, deque
from typing import Any

from reader._core.epoch.tasks import Task
from reader._core.interpreter.signals import interrupt_after
from reader.config import LoaderConfig
from reader.data.batch_sampler import NoBatching, count_of
from reader.engine.quarantine import Quarantine
from reader.errors import DatasetError, printable
from reader.log import log as _log
from reader.worker.bad_sample import BadSample

__all__ = ["EpochFailures", "FailedSample", "FailedSamples"]


_MOST_KEPT = 1000  # records in memory; the quarantine file has all
_MOST_NAMED = 8
_LEAST_SEEN = 100  # drawn samples of a stream before a share of them is a limit


@dataclasses.dataclass(frozen=True)
class FailedSample:
    """A sample that failed and was tolerated.

    Its batch was delivered without it, or with another sample in its place. If all samples of a
    batch failed there was no batch; if something else failed, the exception took its place.

    Attributes:
        epoch: its number.
        batch: the number of the batch in its epoch.
        index: of the sample in the dataset; of a stream the number of the draw in its worker.
        error: the name of the exception's class.
        text: the text of the exception.
        traceback: of the worker; "" where there is none, as for a sample that hung.
        instead: the index of the sample that took its place; None: none did.
    """

    epoch: int
    batch: int
    index: Any
    error: str
    text: str
    traceback: str = dataclasses.field(repr=False)
    instead: Any = None


class FailedSamples:
    """The samples of one loader that failed.

    Args:
        config: the loader's options.

    Attributes:
        newest: the last of them, at most 1,000.
        count: how many there were, in all epochs.
    """

    def __init__(self, config: LoaderConfig) -> None:
        self._config = config
        self.newest: deque[FailedSample] = deque(maxlen=_MOST_KEPT)
        self.count = 0
        path = config.quarantine
        self._quarantine = None if path is None else Quarantine(path, config.is_iterable)

    def epoch(self, epoch: int, before: int, batches: Any) -> EpochFailures:
        """Return the EpochFailures of one epoch.

        Args:
            epoch: its number.
            before: how many samples of it failed in an earlier run.
            batches: yields the lists of keys; None: a stream has none.
        """
        return EpochFailures(self, self._config, epoch, before, self._samples_of(batches))

    def _samples_of(self, batches: Any) -> int | None:
        """Return how many samples an epoch has; None: unknown."""
        config = self._config
        if batches is None:
            return None
        size = 1 if isinstance(batches, NoBatching) else getattr(batches, "batch_size", None)
        try:
            return count_of(batches) * size if type(size) is int else len(config.dataset)
        except TypeError:
            return None

    def add(self, sample: FailedSample) -> None:
        """Note a failed sample."""
        self.count += 1
        self.newest.append(sample)
        if self._quarantine is not None:
            self._quarantine.add(dataclasses.asdict(sample))


class EpochFailures:
    """The samples of one epoch that failed.

    Args:
        owner: of the loader.
        config: the loader's options.
        epoch, before: see `FailedSamples.epoch`.
        total: the samples of the epoch; None: not known.

    Attributes:
        count: how many samples failed, those of earlier runs included.
    """

    def __init__(
        self, owner: FailedSamples, config: LoaderConfig, epoch: int, before: int, total: int | None
    ) -> None:
        self._owner, self._config, self._epoch, self._total = owner, config, epoch, total
        self.count = before
        self._noted: set[tuple[int, int]] = set()  # (batch, which of its samples)
        self._kinds: Counter[str] = Counter()
        self._examples: dict[str, list[FailedSample]] = {}
        self._excess: DatasetError | None = None
        self._is_told = False

    def note(self, task: Task) -> None:
        """Record the failed samples of a batch that was handed over.

        The caller holds the lock of the progress. A second call with a task changes nothing.
        """
        bad = () if task.snapshot is None else task.snapshot.bad
        for place, each in enumerate(bad):
            if (task.number, place) not in self._noted:
                with interrupt_after():
                    self._add(task.number, each)
                    self._noted.add((task.number, place))
        if bad and self._excess is None and self.count > self._limit(task.number + 1):
            self._excess = self._error(task.number + 1)

    def excess(self) -> DatasetError | None:
        """Return the exception that ends the epoch, once, if too many failed; else None."""
        error = self._excess
        if error is None or self._is_told:
            return None
        self._is_told = True
        return error

    def _add(self, batch: int, bad: BadSample) -> None:
        sample = FailedSample(
            self._epoch, batch, bad.key, bad.error, bad.text, bad.traceback, bad.instead
        )
        self._owner.add(sample)
        self.count += 1
        self._kinds[bad.error] += 1
        examples = self._examples.setdefault(bad.error, [])
        if len(examples) < _MOST_NAMED:
            examples.append(sample)

    def _limit(self, batches: int) -> int:
        """Return how many samples may fail."""
        budget = self._config.error_budget
        if isinstance(budget, int):
            return budget
        total = self._total
        if total is None:
            total = max(_LEAST_SEEN, batches * self._config.samples_per_batch)
        return int(budget * total)

    def _error(self, batches: int) -> DatasetError:
        budget, limit = self._config.error_budget, self._limit(batches)
        return DatasetError(
            f"{self.count} samples of epoch {self._epoch} have failed, and error_budget={budget}"
            f" allows {limit}: {self._told()}. Mend them or leave them out"
            " (reader.without(dataset, indices)), or pass a larger error_budget"
        )

    def _told(self) -> str:
        """Describe the failures by kind, the most frequent kind first."""
        told = []
        for error, count in self._kinds.most_common(_MOST_NAMED):
            examples = self._examples[error]
            indices = ", ".join(printable(str(each.index)) for each in examples)
            more = ", ..." if count > len(examples) else ""
            told.append(f"{count} of {error} (index {indices}{more}; {examples[0].text!r})")
        return "; ".join(told)

    def summarize(self) -> None:
        """Log the failed samples at the end of the epoch; nothing if none failed."""
        if not self._kinds:
            return
        done = "replaced by others" if self._config.on_error == "replace" else "left out"
        found = sum(self._kinds.values())
        noun = "sample was" if found == 1 else "samples were"
        _log.warning("epoch %d: %d %s %s: %s", self._epoch, found, noun, done, self._told())
