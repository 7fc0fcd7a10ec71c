"""Batches of Paddle's own text pipeline: `DataLoader.from_dataset`.

Imports paddle, places and the errors. Paddle reads and parses the files in its own threads. This
module adds checks, and ends those threads even if the loop over the batches ends early.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import paddle
from paddle.base import reader as paddle_reader
from paddle.distributed.fleet.dataset import dataset as fleet

from reader._core.epoch.handover import Handover, Made
from reader._core.interpreter.signals import interrupt_after
from reader.compat.paddle.errors import ArgumentError
from reader.compat.paddle.source import available_places
from reader.errors import ConfigError, got

__all__ = ["DatasetLoader", "from_dataset"]

_PaddleLoader: Any = paddle_reader.DatasetLoader


def from_dataset(dataset: Any, places: Any, drop_last: bool = True) -> DatasetLoader:
    """Return a loader that yields the batches of a QueueDataset or InMemoryDataset.

    Args:
        dataset: with its variables and its filelist set; an InMemoryDataset with its data loaded.
        places: where batches go. One thread per place reads, so that there must be at least as many
            files as places.
        drop_last: leave out the last batch of each thread when it is short.

    Raises:
        ArgumentError: another dataset, dynamic mode, or fewer files than places.
        ConfigError: a file does not exist; Paddle silently skips it.

    Source: paddle.base.io.DataLoader.from_dataset.
    """
    return DatasetLoader(dataset, places, drop_last)


class DatasetLoader(Handover):
    """Yields a list of dicts {name: DenseTensor}, one for each place.

    It is its own iterator, as Paddle's, and iterating again starts over. Paddle's threads cannot be
    stopped: after an early end of a loop, they must read the remaining data, which is dropped, as
    soon as the loader is iterated again, closed or collected. Paddle's own loader hangs or crashes
    there.

    With several places Paddle's pipeline drops a last group of batches that is short, whatever
    `drop_last` says, and may hang when one file is far longer than the others: pass files of equal
    length, in a multiple of the number of places.

    Args:
        dataset, places, drop_last: see `from_dataset`.
    """

    def __init__(self, dataset: Any, places: Any, drop_last: bool = True) -> None:
        if not isinstance(dataset, fleet.DatasetBase):
            raise ArgumentError(
                f"dataset must be type of DatasetBase, got {got(dataset)}. Pass a"
                " paddle.distributed.QueueDataset or InMemoryDataset"
            )
        if paddle.in_dynamic_mode():
            raise ArgumentError(
                "DatasetLoader is not supported in dygraph mode yet. Call paddle.enable_static(),"
                " or use DataLoader(dataset)"
            )
        parsed = available_places(places)
        files = getattr(dataset, "filelist", None) or []
        if len(files) < len(parsed):
            raise ArgumentError(
                f"Filelist number of dataset {len(files)} must be not less than place number"
                f" {len(parsed)}. Pass more files to set_filelist, or fewer places"
            )
        if isinstance(dataset, fleet.QueueDataset):
            _refuse_missing(dataset, files)
        self.dataset = dataset
        self._paddle = _PaddleLoader(dataset, [str(place) for place in parsed], bool(drop_last))
        # what Paddle's `__next__` calls: an interrupt in its frame could lose a batch
        self._batches = iter(self._paddle._iterable_dataset._next, None)
        self._taken: list[Any] = []  # batches not handed over yet
        self._running: list[Any] = []  # Paddle's loader, while its threads run
        self._finalizer = weakref.finalize(self, _drain, self._running)

    def __call__(self) -> DatasetLoader:
        """Return the loader itself."""
        return self

    def __iter__(self) -> Iterator[list[dict[str, Any]]]:
        """Begin an epoch. Waits for the threads of one that was left early."""
        self.close()
        self._batches = iter(self._paddle._iterable_dataset._next, None)
        with interrupt_after():  # Paddle waits for ever in an epoch that has not begun
            iter(self._paddle)
            self._running.append(self._paddle)
        return self

    def prepare(self) -> None:
        """Take the next batch of each place; see Handover. Blocks in Paddle until it is there."""
        if not self._running:
            raise StopIteration
        if not self._taken:
            self._taken.extend(map(next, (self._batches,)))
        if not self._taken:
            self._running.clear()
            raise StopIteration
        self.made = Made(self._taken[0], step=self._taken.clear)

    def close(self) -> None:
        """End the epoch: reads the remaining data of the files and drops it. Idempotent."""
        self.drop()
        self._taken.clear()
        _drain(self._running)


def _drain(running: list[Any]) -> None:
    """Wait for Paddle's threads; nothing can be freed while one waits to push a batch."""
    while running:
        with contextlib.suppress(StopIteration):
            while True:
                next(running[-1])
        running.pop()


def _refuse_missing(dataset: Any, files: list[str]) -> None:
    """Refuse local files that do not exist: Paddle raises nothing; its shell prints an error."""
    if dataset.dataset.get_hdfs_config()[0]:
        return  # the files are not on this machine
    for name in files:
        is_remote = ":" in name.partition("/")[0]  # hdfs:, afs:, and their like
        if not is_remote and not Path(name).exists():
            raise ConfigError(
                f"the filelist of the dataset has {name!r}, which does not exist; Paddle would"
                " silently skip it. Correct set_filelist"
            )
