"""DatasetLoader with GluonNLP's arguments: files become datasets, and those become batches.

Imports the loaders and the streams' file patterns. Worker processes make datasets ahead; the
workers that make batches have each dataset in their own memory.
"""

from __future__ import annotations

import pickle
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any

from reader import loader
from reader._core.epoch.handover import Handover, Made
from reader.checks import as_int
from reader.compat.gluon.nlp.errors import ArgumentError
from reader.compat.gluon.nlp.sharded_loader import ShardedDataLoader
from reader.compat.gluon.nlp.streams import ORDERS, files_of, order_of
from reader.data.sampler import state_number
from reader.errors import ConfigError, ConfigTypeError, StateError, got

__all__ = ["DatasetLoader"]


class DatasetLoader:
    """Feed a program from many files: each few of them make a dataset, each dataset its batches.

    Datasets come in the order of the files, and batches in the order of their sampler; where that
    yields lists of shards, a step is a list of batches. Every file comes once in an epoch.

    Args:
        file_patterns: paths with wildcards, and commas between them.
        file_sampler: "random": an order from `numpy.random` each epoch; "sequential"; or an
            iterable of the numbers of files, which count in the sorted order.
        dataset_fn: called with a list of paths, and `dataset_params`; returns a dataset.
        batch_sampler_fn: called with a dataset, and `batch_sampler_params`; returns what yields
            lists of its indices, or lists of shards.
        dataset_params, batch_sampler_params: dicts of keyword arguments.
        batchify_fn: see `DataLoader`.
        num_dataset_workers: processes that make datasets; 0: this one does, when it needs one.
        num_batch_workers: processes that make batches of a dataset.
        pin_memory: see `DataLoader`.
        circle_length: how many files make a dataset; the last one may have fewer.
        dataset_prefetch: how many datasets are made ahead; None: one for each worker.
        batch_prefetch: how many steps are made ahead; None: 2 for each worker.
        dataset_cached, num_max_dataset_cached: accepted without effect: GluonNLP repeats datasets
            while it waits for others, so that its batches depend on timing.

    Raises:
        ConfigError: no such files, or an argument that cannot work.

    What the functions raise is raised in the place of their dataset's batches.
    """

    def __init__(
        self,
        file_patterns: str,
        file_sampler: Any,
        dataset_fn: Callable[..., Any],
        batch_sampler_fn: Callable[..., Any],
        dataset_params: dict[str, Any] | None = None,
        batch_sampler_params: dict[str, Any] | None = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_dataset_workers: int = 0,
        num_batch_workers: int = 0,
        pin_memory: bool = False,
        circle_length: int = 1,
        dataset_prefetch: int | None = None,
        batch_prefetch: int | None = None,
        dataset_cached: bool = False,  # noqa: ARG002
        num_max_dataset_cached: int = 0,  # noqa: ARG002
    ) -> None:
        for name, value in (("dataset_fn", dataset_fn), ("batch_sampler_fn", batch_sampler_fn)):
            if not callable(value):
                raise ConfigTypeError(f"{name} must be a function, got {got(value)}")
        for name, count in (
            ("num_dataset_workers", num_dataset_workers),
            ("num_batch_workers", num_batch_workers),
            ("circle_length", circle_length),
        ):
            least = 1 if name == "circle_length" else 0
            if count < least:
                raise ArgumentError(f"{name} must be {least} or more, got {count}")
        if isinstance(file_sampler, str) and file_sampler not in ORDERS:
            raise ConfigError(
                f'file_sampler must be "random", "sequential" or an iterable of the numbers of'
                f" files, got {file_sampler!r}"
            )
        self._files = files_of(file_patterns)
        self._sampler = file_sampler
        self._length = circle_length
        self._make = _Maker(
            dataset_fn, dataset_params or {}, batch_sampler_fn, batch_sampler_params or {}
        )
        self._workers = num_dataset_workers
        ahead = num_dataset_workers if dataset_prefetch is None else dataset_prefetch
        remedy = "None prefetches one dataset for each worker."
        self._ahead = as_int("dataset_prefetch", ahead, low=0, remedy=remedy)
        self._options: dict[str, Any] = {
            "batchify_fn": batchify_fn,
            "num_workers": num_batch_workers,
            "pin_memory": pin_memory,
            "prefetch": batch_prefetch,
        }
        self._loaded: dict[str, Any] | None = None
        self._newest: _DatasetIterator | None = None

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch; datasets are made when the first batch is asked for."""
        state, self._loaded = self._loaded, None
        order = state["files"] if state else list(order_of(self._sampler, len(self._files)))
        self._newest = _DatasetIterator(self, order, state)
        return self._newest

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the newest iterator: the order of the files, and the batch.

        Before the first iterator, and after the end of an epoch, it is the beginning of an epoch.
        """
        newest = self._newest
        return {"files": None} if newest is None else newest.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Have the next `iter()` resume where `state` was saved.

        Raises:
            StateError: it is no state of such a loader of these files. Nothing has changed then.
        """
        files = state.get("files", ()) if isinstance(state, dict) else ()
        if files is None:
            self._loaded = None
            return
        count = len(self._files)
        if (
            not isinstance(files, list)
            or not files
            or not all(type(each) is int and 0 <= each < count for each in files)
        ):
            raise StateError(
                "the state of a DatasetLoader must be a dict with 'files', the list of file indices"
                f" (below {count}) of the epoch, got {got(state)}. Load a state of the same files"
            )
        state_number(state, "dataset", sys.maxsize)
        self._loaded = dict(state)

    def datasets(self, order: list[int], first: int) -> Iterator[Any]:
        """Return the datasets of an epoch from number `first` on, each with its sampler's steps."""
        size = self._length
        paths = [
            [self._files[number] for number in order[start : start + size]]
            for start in range(first * size, len(order), size)
        ]
        if not self._workers or not paths:
            return _MadeHere(paths, self._make)
        made = loader.DataLoader(
            _Groups(paths, self._make),
            batch_size=None,
            collate_fn=pickle.dumps,
            num_workers=self._workers,
            prefetch_factor=max(1, -(-self._ahead // self._workers)),
        )
        return _Unpickled(iter(made))

    def open(self, dataset: Any, steps: list[Any]) -> ShardedDataLoader:
        """Return what makes the batches of a dataset."""
        return ShardedDataLoader(dataset, batch_sampler=steps, **self._options)


class _Maker:
    """Makes a dataset of files, and the steps of its batch sampler."""

    def __init__(
        self,
        dataset_fn: Callable[..., Any],
        dataset_params: dict[str, Any],
        batch_sampler_fn: Callable[..., Any],
        batch_sampler_params: dict[str, Any],
    ) -> None:
        self._dataset_fn = dataset_fn
        self._dataset_params = dataset_params
        self._batch_sampler_fn = batch_sampler_fn
        self._batch_sampler_params = batch_sampler_params

    def __call__(self, paths: list[str]) -> tuple[Any, list[Any]]:
        dataset = self._dataset_fn(paths, **self._dataset_params)
        return dataset, list(self._batch_sampler_fn(dataset, **self._batch_sampler_params))


class _Groups:
    """A dataset of datasets, by the files that make each."""

    def __init__(self, paths: list[list[str]], make: _Maker) -> None:
        self._paths = paths
        self._make = make

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> Any:
        return self._make(self._paths[index])


class _MadeHere:
    """Makes datasets in this process, one by one; one that an interrupt cut off is made again."""

    def __init__(self, paths: list[list[str]], make: _Maker) -> None:
        self._paths = paths
        self._make = make
        self._place = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        place = self._place
        if place == len(self._paths):
            raise StopIteration
        try:
            made = self._make(self._paths[place])
        except Exception:
            self._place = place + 1
            raise
        self._place = place + 1
        return made


class _Unpickled:
    """What worker processes pickled."""

    def __init__(self, made: Iterator[bytes]) -> None:
        self._made = made

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return pickle.loads(next(self._made))


class _DatasetIterator(Handover):
    """The batches of one epoch, dataset after dataset.

    Args:
        loader: the face.
        order: the numbers of the files.
        state: where the epoch resumes; None: at its beginning.
    """

    def __init__(self, loader: DatasetLoader, order: list[int], state: Any) -> None:
        self._loader = loader
        self._order = [int(number) for number in order]
        self._state = None if state is None else state.get("batches")
        first = 0 if state is None else state["dataset"]
        self._datasets = loader.datasets(self._order, first)
        self._pulled: list[tuple[Any, list[Any]]] = []  # the dataset that is open, and its steps
        # its number, what makes its batches, and their iterator: changed in one step
        self._open: tuple[int, ShardedDataLoader | None, Any] = (first, None, None)
        self._is_over = False

    def prepare(self) -> None:
        """Make what is handed over next; see Handover."""
        while True:
            if self._open[2] is None:
                self._open_next()
            batches = self._open[2]
            try:
                found = self.made_by(batches)
            except StopIteration:
                self._close()
                continue
            self.made = Made(found.value, is_error=found.is_error, step=batches.hand_over)
            return

    def reword(self, error: Exception) -> Exception | None:  # noqa: ARG002
        """Return None: the dataset's own loader has reworded it already."""
        return None

    def _open_next(self) -> None:
        place = self._open[0]
        if not self._pulled and not self._is_over:
            try:
                self._pulled.extend(islice(self._datasets, 1))
            except Exception:
                self._open = (place + 1, None, None)
                raise
        if not self._pulled:
            self._is_over = True
            raise StopIteration
        ((dataset, steps),) = self._pulled
        current = self._loader.open(dataset, steps)
        if self._state is not None:
            current.load_state_dict(self._state)
        batches = iter(current)
        self._state = None
        self._open = (place, current, batches)

    def _close(self) -> None:
        place, current, _ = self._open
        self._pulled.clear()
        self._open = (place + 1, None, None)
        if current is not None:
            current.close()

    def state(self) -> dict[str, Any]:
        """Return the position of the last batch that was handed over."""
        if self._is_over:
            return {"files": None}
        place, current, _ = self._open
        batches = self._state if current is None else current.state_dict()
        return {"files": self._order, "dataset": place, "batches": batches}
