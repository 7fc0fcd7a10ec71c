"""The iterator that the engine feeds, with the attributes that PyTorch's has.

Imports torch's base iterator, which draws the base seed and warns, and the engine of this face. It
belongs to the process that made it; dropping it releases its workers.
"""

from __future__ import annotations

import functools
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.utils.data import IterDataPipe, MapDataPipe
from torch.utils.data.graph_settings import apply_sharding

from reader._core.epoch.handover import Handover, Made, WaitStats
from reader._core.epoch.iterator import EpochIterator
from reader.compat.torch.draws import seed_from
from reader.compat.torch.engine import EngineMaker, start_of
from reader.compat.torch.errors import timed_out, worker_exit
from reader.compat.torch.inner import (
    BaseIterator,
    is_profiled,
    pin_memory,
    profile_name,
    shard_pipes,
)
from reader.compat.torch.saved import quiet
from reader.compat.torch.start_report import StartReport
from reader.compat.torch.worker import TorchWorker
from reader.engine.engine import Engine
from reader.errors import LoadTimeout, WorkerDied

__all__ = ["EngineIterator"]

_OWN = ("_batches", "_handles", "prepare")  # attributes of one iterator alone


class EngineIterator(Handover, BaseIterator):  # type: ignore[misc]
    """Yields the batches of one epoch that the engine makes.

    Args:
        loader: the DataLoader.
        last: its iterator before this one, whose persistent workers it takes over.
        state: the `SavedEpoch` that is resumed; None: the epoch begins anew.
    """

    _report: StartReport | None = None  # until the workers have started

    def __init__(
        self, loader: Any, last: EngineIterator | None = None, state: Any | None = None
    ) -> None:
        self.is_ended = True  # nothing to finalize: dropping the engine's iterator does it
        is_late = last is None and loader.opens_order_first
        if last is None:
            source = loader.prepared(state)
            super().__init__(quiet(loader) if is_late else source)
            if source is not loader and source.base_seed is not None:
                self._base_seed = source.base_seed
            self._index_sampler = loader._index_sampler
            self._profile_name = profile_name(loader.num_workers > 0)
        else:  # persistent workers keep their seed
            self.__dict__.update(last._shared())
            self._num_yielded = 0
            self._IterableDataset_len_called = loader._IterableDataset_len_called
        is_pipe = isinstance(self._dataset, IterDataPipe)
        if is_pipe and last is not None:
            self._reset(loader)  # draws the seed for its shuffling in this epoch
        if last is None or is_pipe:
            if state is not None and state.base_seed is not None:
                self._base_seed = state.base_seed
            self._engine = self._make_engine(loader)
        if is_pipe and last is None and loader.num_workers:
            self._reset(loader)  # as in PyTorch: a second draw, which is not used
        report, self._report = self._report, None
        self._is_stream = loader.is_stream
        self._engine.begin_at(loader.epoch, loader.order_seed(self._base_seed))
        if last is not None:
            self._take_order(loader)
        if state is not None:
            self._num_yielded = state.load_into(self._engine)
        self._batches: Any = iter(self._engine)
        if is_late:
            self._base_seed = seed_from(loader.generator)
        self._handles = functools.partial(_handles, self._batches.epoch.backend)
        self._pass_on()
        if report is not None:
            timeout_s = self._engine.config.timeout_s
            try:
                failed = report.failure(self._handles(), loader.epoch, timeout_s)
            except LoadTimeout as error:
                self._batches.close()
                self._engine.close(0.0)
                raise timed_out(error, self._timeout) from None
            if failed is not None:
                self._batches.epoch.fail_start(failed)
                next(self._batches)

    def _make_engine(self, loader: Any) -> Engine:
        maker: EngineMaker = loader._engine_maker
        seed = self._base_seed if loader.seeds_batches else None
        if not loader.num_workers:
            if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
                apply_sharding(self._dataset, self._world_size, self._rank)
            return maker.make(loader, self._dataset, seed=seed)
        worker_init_fn = loader.worker_init_fn
        is_here = loader.backend is None  # else the first step raises what one raised
        if worker_init_fn is not None and loader.awaits_start and is_here:
            is_thread = start_of(loader)["worker_type"] == "thread"
            self._report = StartReport(worker_init_fn, is_thread)
            worker_init_fn = self._report.function
        if isinstance(self._dataset, (IterDataPipe, MapDataPipe)):
            worker_init_fn = functools.partial(
                shard_pipes, worker_init_fn, self._world_size, self._rank
            )
        worker = TorchWorker(self._base_seed, self._shared_seed)
        return maker.make(loader, self._dataset, worker_init_fn, worker, seed)

    def _take_order(self, loader: Any) -> None:
        """Take the next epoch's order from the loader's current samplers."""
        engine = self._engine
        if engine.config.is_iterable:
            return
        if engine.config.is_batched:
            engine.use(batch_sampler=loader.order)
        else:
            engine.use(sampler=loader.order)

    @property
    def engine(self) -> Engine:
        """The engine, which makes the batches."""
        return self._engine

    @property
    def awaits_initial_states(self) -> bool:
        """Whether initial states of workers are still to come."""
        return self._batches is not None and self._batches.epoch.awaits_initial_states

    def note_initial_states(self) -> None:
        """Wait for the initial states of workers; see EpochIterator."""
        if self.awaits_initial_states:
            try:
                self.alone(self._batches.epoch.note_initial_states)
            except (LoadTimeout, WorkerDied) as error:
                raise self.reword(error) from None

    def _pass_on(self) -> None:
        """Hand over the engine's batches directly, if this face does not change them."""
        if not self._engine.config.is_on_cpu:
            self._pin_memory = False  # batches come to the device from the worker's memory
        is_plain = not self._pin_memory and self._IterableDataset_len_called is None
        self.source, self.is_watched = self._batches if is_plain else None, is_profiled

    def call_first(self, function: Callable[[], Any]) -> None:
        """Call a function before the first batch is made; later batches cost no more."""
        self.source = None
        self.prepare = functools.partial(_prepare_first, weakref.ref(self), function)  # type: ignore[method-assign]

    @property
    def base_seed(self) -> int:
        """The seed that the workers' seeds come from."""
        return int(self._base_seed)

    @property
    def _workers(self) -> list[Any]:
        """The workers, each with pid, exitcode, is_alive(), join(), terminate() and kill().

        They are there after the epoch, too: a program may ask which workers made its batches.
        """
        found: list[Any] = self._handles()
        return found

    def _shared(self) -> dict[str, Any]:
        """Return the attributes that all iterators of the same workers share."""
        shared = dict(self.__dict__)
        for name in _OWN:
            shared.pop(name, None)
        return shared

    def husk(self) -> EngineIterator:
        """Return an iterator with these workers and no batches, for the loader to keep."""
        made = type(self).__new__(type(self))
        made.is_ended = True
        made.__dict__.update(self._shared())
        made._handles = self._handles
        made._batches = None
        return made

    def __reduce__(self) -> Any:
        return BaseIterator.__getstate__(self)  # refuses, in PyTorch's words

    @property
    def _num_yielded(self) -> int:
        """How many batches were handed over."""
        return self.stats.batches if self.stats is not None else 0

    @_num_yielded.setter
    def _num_yielded(self, count: int) -> None:
        self.stats = WaitStats(batches=count)

    def prepare(self) -> None:
        """Make what is handed over next; see Handover."""
        if self._batches is None:
            raise StopIteration
        if is_profiled():
            with torch.autograd.profiler.record_function(self._profile_name):
                self._prepare(self._batches)
        else:
            self._prepare(self._batches)

    def _prepare(self, batches: EpochIterator) -> None:
        found = self.made_by(batches)
        value = found.value
        if found.is_error:
            if isinstance(value, WorkerDied):
                value = worker_exit(value)
            self.made = Made(value, is_error=True, step=batches.hand_over)
            return
        if self._pin_memory:
            value = pin_memory(value, self._pin_memory_device)
        if self._IterableDataset_len_called is not None:
            self._check_length(self._num_yielded + 1)
        self.made = Made(value, is_batch=True, step=batches.hand_over)

    def reword(self, error: Exception) -> Any:
        """Return PyTorch's exception for one of the engine's; None: raise it as it is."""
        if isinstance(error, LoadTimeout):
            return timed_out(error, self._timeout)
        return worker_exit(error) if isinstance(error, WorkerDied) else None

    def _check_length(self, count: int) -> None:
        if self._is_stream and count > self._IterableDataset_len_called:
            text = (
                f"Length of IterableDataset {self._dataset} was reported to be"
                f" {self._IterableDataset_len_called}(when accessing len(dataloader)), but"
                f" {count} samples have been fetched. "
            )
            if self._num_workers > 0:
                text += (
                    "For multiprocessing data-loading, this could be caused by not properly"
                    " configuring the IterableDataset replica at each worker. Please see"
                    " https://pytorch.org/docs/stable/data.html"
                    "#torch.utils.data.IterableDataset for examples."
                )
            warnings.warn(text, stacklevel=4)  # the loop: __next__ has no frame

    def _shutdown_workers(self, grace_s: float | None = None) -> None:
        """End the workers and wait until they have ended."""
        self._engine.close(grace_s)


def _prepare_first(iterator: weakref.ref[EngineIterator], function: Callable[[], Any]) -> None:
    found = iterator()
    if found is not None:
        function()
        del found.prepare  # uncovers the class's `prepare`
        found._pass_on()
        found.prepare()


def _handles(backend: Any) -> list[Any]:
    found: list[Any] = backend.handles
    return found
