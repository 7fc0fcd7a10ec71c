"""`torch.utils.data.DataLoader`, argument for argument, on the engine.

Imports torch and the other modules of this face. PyTorch's own constructor checks the arguments and
makes the samplers; the face makes the iterators.
"""

from __future__ import annotations

import math
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import torch.utils.data
from torch.utils.data import Dataset, Sampler

from reader._core.wire.times_log import TimesLog
from reader.checks import MIX_HINT, as_int, names_arguments
from reader.cluster.ray_backend import Ray
from reader.compat.torch.engine import EngineMaker
from reader.compat.torch.errors import ArgumentError
from reader.compat.torch.inner import CollateFn, PeerIterator, takes_in_order
from reader.compat.torch.iterator import EngineIterator
from reader.compat.torch.order import draws_late, faster
from reader.compat.torch.replaced import warn_if_replaced
from reader.config import AutoCount, as_auto, check_auto, elsewhere_of, of_backend, of_pool
from reader.data.epochs import set_epochs
from reader.data.iterable import IterableDataset
from reader.data.sampler import RandomSampler
from reader.engine.auto import first_choice
from reader.engine.backends.backend import WorkerStatus
from reader.engine.backends.grace import grace_of
from reader.engine.engine import Engine
from reader.engine.face import as_grace
from reader.engine.failed_samples import FailedSample, FailedSamples
from reader.engine.tuner import Choice
from reader.engine.worker_pool import WorkerPool
from reader.errors import got
from reader.exceptions.exception_codec import add_note
from reader.frameworks import check_places
from reader.observe.face import ObservedFace
from reader.orders.one_shot import OneShot
from reader.places import parse_places
from reader.processes.pool_registry import check_interpreter

__all__ = ["ELSEWHERE", "DataLoader"]

T_co = TypeVar("T_co", covariant=True)
_Self = TypeVar("_Self", bound="DataLoader[Any]")

_OWN = "it is an argument of reader.DataLoader; use that with framework='torch'"
_CONTEXT_REMEDY = 'pass multiprocessing_context="fork", "forkserver" or "spawn"'
_WORKERS_REMEDY = "pass num_workers="
# arguments of other loaders, and what to do here
ELSEWHERE = {
    **elsewhere_of("torch", _OWN),
    "start_method": _CONTEXT_REMEDY,
    "mp_context": _CONTEXT_REMEDY,
    **dict.fromkeys(("workers", "worker_count", "worker_num", "n_jobs"), _WORKERS_REMEDY),
    "transform": "apply it in __getitem__ of the dataset",
    "buffer_size": "pass prefetch_factor=, which counts batches of each worker",
    "drop_remainder": "pass drop_last=True",
    "snapshot_every_n_steps": "it is an argument of StatefulDataLoader",
    "keep_states": "it is an argument of StatefulDataLoader",
}

# arguments that take "auto"
_COUNTS = {
    "num_workers": '0 starts no worker process, and "auto" as many as pay off.',
    "prefetch_factor": "It is how many batches each worker may have in flight; None means 2.",
}

# of PyTorch's class, which programs replace
_CONTEXT: Any = vars(torch.utils.data.DataLoader)["multiprocessing_context"]

# PyTorch's constructor asks by isinstance whether a dataset is a stream: those of this package are
torch.utils.data.IterableDataset.register(IterableDataset)  # type: ignore[type-abstract]


_REMEDY = "pass a device that there is, or None and move the batches in the training step"


class OwnOptions(TypedDict, total=False):
    """The arguments that PyTorch's class does not have; see DataLoader."""

    seed: int | None
    reseed: Callable[[Any, int], Any] | None
    worker_type: Literal["process", "thread"]
    worker_retries: int
    prefetch_next_epoch: bool
    max_bytes: int | None
    device: Any
    pin_limit: int | None
    on_error: Literal["raise", "skip", "replace"]
    error_budget: float | None
    quarantine: str | os.PathLike[str] | None
    warn_after: float | None
    hang_after: float | None
    pool: WorkerPool | None
    backend: Ray | None


class _Count:
    """An attribute of a loader that is checked when it is set: `_COUNTS` says what it counts.

    It is read from the loader's `__dict__`, at no cost.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __set__(self, loader: Any, value: Any) -> None:
        own = vars(loader)
        own[self._name] = _as_option(self._name, value, own.get("backend"))


class DataLoader(torch.utils.data.DataLoader[T_co], ObservedFace):
    """Feed a torch program from a dataset: `torch.utils.data.DataLoader` with another engine.

    Arguments, their positions, defaults, checks and texts are PyTorch 2.13's, and so are the order
    of the samples, the seeds of the workers and what a batch is; see docs/torch.md, line by line.
    With workers a batch lies in their shared memory and is yours for as long as you keep it.

    Args:
        num_workers, prefetch_factor: as PyTorch's, or "auto": as many as pay off, found while
            training; `loader.chosen` says what there is, and the attributes the most there may be.
            The least busy worker then makes each batch: pass `seed` for the same random
            augmentation in each run.
        seed: makes every batch a function of (dataset, seed, epoch, number of the batch), random
            augmentation included, with any workers; `shuffle` then takes an order that starts and
            resumes at once, however long the dataset. None: seeds and orders are PyTorch's.
        reseed: called with the dataset and the seed of a batch before each, in its worker: seeds
            what the dataset draws from beside the global generators; see `reader.DataLoader`. Needs
            `seed`.
        worker_type: "process", or "thread": the workers are threads of this process.
        worker_retries: how often a batch is retried when its worker process dies, before the error
            is raised. 0: raise at once, as PyTorch. The epoch continues after the error.
        prefetch_next_epoch: with persistent workers, begin the next epoch when the last batch of
            one is delivered.
        max_bytes: limit of the shared memory for batches; None: what the machine has.
        device: where batches land, such as "cuda:0", or a list of devices: then a step gets a list
            with a whole batch for each of them, and `len(loader)` counts steps. A batch is
            copied there from the very memory that its worker wrote, while you work on the one
            before; `pin_memory` is not needed then. None: the CPU.
        pin_limit: most bytes of that memory that are page-locked for it; None: what the copies read
            in turn; 0: none.
        on_error, error_budget, quarantine, warn_after, hang_after: what becomes of samples that
            fail or take very long: see `reader.DataLoader`. By default errors are PyTorch's.
        pool: a `reader.WorkerPool`, whose workers several loaders share, in the place of
            `num_workers`; they persist between epochs.
        backend: a `reader.Ray`: the workers are on the machines of a cluster, and persist between
            epochs. See docs/cluster.md.

    Raises:
        ValueError, TypeError: as PyTorch. ArgumentError (ValueError and AssertionError) for what
            PyTorch raises while iterating: prefetch_factor=0, and timeout without workers.

    While iterating: the exceptions of the dataset, with PyTorch's "Caught ... in DataLoader worker
    process N."; RuntimeError when a worker died or a batch is late.
    """

    if TYPE_CHECKING:
        num_workers: int
        prefetch_factor: int | None
    else:
        num_workers = _Count()
        prefetch_factor = _Count()
    # StatefulDataLoader overrides these
    awaits_start = False  # whether `iter` waits for the workers' `worker_init_fn`
    keeps_rng = False  # whether workers send their random state with the dataset's
    _own_draws: Any = None  # what draws the seeds of epochs, in place of PyTorch's generator
    snapshot_every_n_steps: int | None
    keep_states: int
    seed: int | None
    device: Any
    devices: dict[Any, Any]  # with their streams, by place; made by the first epoch
    _one_shots: list[OneShot]  # one-shot samplers
    # with persistent workers: the newest iterator while it lives, else one without batches
    _newest: weakref.ref[EngineIterator] | None = None
    _husk: Any = None
    _engine: Engine | None = None  # of the newest iterator
    _times: TimesLog | None = None  # of all iterators

    @names_arguments(ELSEWHERE)
    def __init__(
        self,
        dataset: Dataset[T_co],
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int | Literal["auto"] = 0,
        collate_fn: CollateFn | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | Literal["auto"] | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
        seed: int | None = None,
        reseed: Callable[[Any, int], Any] | None = None,
        worker_type: Literal["process", "thread"] = "process",
        worker_retries: int = 0,
        prefetch_next_epoch: bool = False,
        max_bytes: int | None = None,
        device: Any = None,
        pin_limit: int | None = None,
        on_error: Literal["raise", "skip", "replace"] = "raise",
        error_budget: float | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        warn_after: float | None = 30.0,
        hang_after: float | None = None,
        pool: WorkerPool | None = None,
        backend: Ray | None = None,
    ) -> None:
        num_workers, persistent_workers = of_pool(pool, num_workers, persistent_workers)
        persistent_workers = of_backend(backend, num_workers, persistent_workers)
        workers = _as_option("num_workers", num_workers, backend)
        factor = _as_option("prefetch_factor", prefetch_factor)
        self.is_stream = isinstance(dataset, torch.utils.data.IterableDataset)
        check_auto(workers, factor if backend is None else None, dataset, self.is_stream)
        keyed = shuffle and seed is not None and sampler is None and batch_sampler is None
        if keyed and not self.is_stream:
            sized: Any = dataset
            sampler, shuffle = RandomSampler(sized, seed=seed), None
        try:
            super().__init__(
                dataset,
                batch_size,
                shuffle,
                sampler,
                batch_sampler,
                workers,
                collate_fn,
                pin_memory,
                drop_last,
                timeout,
                worker_init_fn,
                multiprocessing_context,
                generator,
                prefetch_factor=factor,
                persistent_workers=persistent_workers,
                pin_memory_device=pin_memory_device,
                **({"in_order": in_order} if takes_in_order else {}),
            )
        except ValueError as error:
            if self.is_stream and shuffle:
                add_note(error, MIX_HINT)
            raise
        # the engine obeys `in_order` beside any PyTorch; PyTorch's `__setattr__` looks at each name
        vars(self).update(
            in_order=in_order,
            seed=seed,
            reseed=reseed,
            worker_type=worker_type,
            worker_retries=worker_retries,
            prefetch_next_epoch=prefetch_next_epoch,
            max_bytes=max_bytes,
            pin_limit=pin_limit,
            device=device,
            on_error=on_error,
            error_budget=error_budget,
            quarantine=quarantine,
            warn_after=warn_after,
            hang_after=hang_after,
            pool=pool,
            backend=backend,
            snapshot_every_n_steps=0,  # StatefulDataLoader has others
            keep_states=0,
            devices={},
            _one_shots=[],
            _epoch=0,
        )
        self._check()
        self._engine_maker = EngineMaker()
        config = self._engine_maker.options(self)  # checks the arguments that PyTorch does not have
        self.failed_samples = FailedSamples(config)
        if device is not None:
            check_places("torch", config.places, f"device={device!r} was given: {_REMEDY}")

    def prepared(self, state: Any) -> Any:  # noqa: ARG002
        """Return the loader for PyTorch's iterator; StatefulDataLoader returns a substitute."""
        return self

    @property
    def opens_order_first(self) -> bool:
        """Whether an epoch's base seed is drawn after the draws of its sampler at `iter`."""
        if self.num_workers or self.is_stream:
            return False
        return not draws_late(self._index_sampler)

    def __len__(self) -> int:
        """Return how often a loop over an epoch runs: a list for several devices is one step."""
        batches = super().__len__()
        return math.ceil(batches / len(parse_places(self.device)))

    if not TYPE_CHECKING:  # type checkers still report unknown names

        def __getattr__(self, name):
            """Name the loader that has the methods which this one lacks."""
            if name in ("state_dict", "load_state_dict"):
                raise AttributeError(
                    f"{type(self).__name__} has no {name}, as PyTorch's DataLoader has none: use"
                    " reader.compat.torch.StatefulDataLoader, which takes the same arguments",
                    name=name,
                    obj=self,
                )
            return super().__getattribute__(name)  # which raises as it did, be it within a property

    @property
    def seeds_batches(self) -> bool:
        """Whether the base seed seeds each batch, although no `seed` was passed."""
        return False

    def order_seed(self, base_seed: int) -> int | None:  # noqa: ARG002
        """Return the seed for samplers other than PyTorch's shuffle; None: they are not seeded."""
        return None

    def _check(self) -> None:
        """Refuse, early, arguments that PyTorch refuses while iterating."""
        if self.num_workers and self.prefetch_factor is not None and self.prefetch_factor <= 0:
            raise ArgumentError(
                "prefetch_factor must be greater than 0 with num_workers > 0, got"
                f" {got(self.prefetch_factor)}. It is how many batches each worker may have in"
                " flight; None means 2"
            )
        if not self.num_workers and self.timeout > 0:
            raise ArgumentError(
                f"timeout={self.timeout} is a deadline on worker processes and contradicts"
                " num_workers=0, which makes each batch when it is asked for. Pass timeout=0, or"
                " num_workers=1 or more"
            )

    @property
    def multiprocessing_context(self) -> Any:
        """How worker processes are started; None: as the platform does."""
        warn_if_replaced(self, DataLoader)
        return _CONTEXT.fget(self)

    @multiprocessing_context.setter
    def multiprocessing_context(self, context: Any) -> None:
        _CONTEXT.fset(self, context)

    @property
    def order(self) -> Any:
        """The iterable of the next epoch's order; read anew, since programs replace samplers."""
        return faster(self._index_sampler, self._one_shots)

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy of the loader gets: neither workers nor batches."""
        none = dict.fromkeys(("_newest", "_husk", "_engine", "_times"))
        return {**self.__dict__, **none, "_engine_maker": EngineMaker(), "devices": {}}

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` begins, from 0; states have it, too."""
        return self._epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the next epoch; passes it to `set_epoch` of dataset and samplers."""
        self._epoch = epoch
        set_epochs(epoch, self.dataset, self.sampler, self.batch_sampler)

    def check_worker_number_rationality(self) -> None:
        """Warn of more workers than processors, as PyTorch does; not of those of "auto"."""
        if not isinstance(self.num_workers, AutoCount):
            super().check_worker_number_rationality()

    def _get_iterator(self) -> PeerIterator:
        self._check()
        if self.num_workers:
            self.check_worker_number_rationality()
        return self._begin(None)

    def _begin(self, last: Any) -> PeerIterator:
        """Make an iterator on the engine; it takes over the persistent workers of `last`."""
        made: PeerIterator = EngineIterator(self, last)
        return made

    def __iter__(self) -> PeerIterator:
        try:
            persists = self.persistent_workers and self.num_workers > 0
            last: Any = self._iterator if persists else None
            made = self._get_iterator() if last is None else self._begin(last)
        except ImportError:
            check_interpreter()
            raise
        own = vars(self)  # PyTorch's `__setattr__` looks at each name
        own["_engine"] = None
        if isinstance(made, EngineIterator):  # a subclass may wrap it: then nothing is kept
            own["_engine"] = made.engine
            if persists:
                # PyTorch resets one object; here a loop that still runs on the last iterator keeps
                # its epoch, and an iterator that was dropped releases its workers at once
                self._newest, self._husk = weakref.ref(made), made.husk()
        own["_epoch"] += 1
        return made

    @property
    def errors(self) -> list[FailedSample]:
        """The samples that failed and were tolerated; see `reader.DataLoader`."""
        if self._engine is not None:
            return self._engine.failures()
        return list(self.failed_samples.newest)

    def workers(self) -> list[WorkerStatus]:
        """Return what each worker of the newest iterator does now; see `reader.DataLoader`."""
        return [] if self._engine is None else self._engine.workers()

    @property
    def chosen(self) -> dict[str, Any]:
        """The current `num_workers` and `prefetch_factor`; "auto" changes them.

        `DataLoader(dataset, **loader.chosen)` has them from the beginning.
        """
        found = {"num_workers": self.num_workers, "prefetch_factor": self.prefetch_factor}
        is_free = [isinstance(value, AutoCount) for value in found.values()]
        if any(is_free):
            most = Choice(self.num_workers, self.prefetch_factor or 2)
            first = first_choice(most, (is_free[0], is_free[1]))
            auto = self._engine_maker.auto
            choice = first if auto is None else auto.choice
            found.update((n, now) for n, now, free in zip(found, choice, is_free) if free)
        return found

    def stats(self) -> dict[str, Any] | None:
        """Return counts and times of the newest iterator; see `reader.DataLoader.stats`.

        With persistent workers, of all epochs so far. None before the first.
        """
        return None if self._engine is None else self._engine.stats()

    def _observed_times(self) -> TimesLog:
        """Return the log to which the engine of each iterator adds."""
        if self._times is None:
            self._times = TimesLog()
        return self._times

    @property
    def _iterator(self) -> Any:
        """The newest iterator of persistent workers; after its end one with its workers only."""
        newest = None if self._newest is None else self._newest()
        return self._husk if newest is None else newest

    @_iterator.setter
    def _iterator(self, value: Any) -> None:
        self._newest, self._husk = None, value

    @_iterator.deleter
    def _iterator(self) -> None:
        self._newest = self._husk = None

    def close(self, grace: float | None = None) -> None:
        """Close persistent workers and wait. Batches you hold stay valid. Idempotent.

        `grace`: seconds for workers to finish the samples that they are at, as in
        `reader.DataLoader.close`; None: 5.
        """
        grace_s = as_grace(grace)
        last: Any = self._iterator
        if last is not None:
            last._shutdown_workers(grace_s)
            self._iterator = None

    def __enter__(self: _Self) -> _Self:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close(grace_of(exc[0] if exc else None))


def _as_option(name: str, value: Any, backend: Ray | None = None) -> Any:
    """Return what a loader keeps of an argument or attribute in _COUNTS, which PyTorch checks."""
    value = as_auto(name, value, backend if name == "num_workers" else None)
    if isinstance(value, int) or (value is None and name == "prefetch_factor"):
        return value
    return as_int(name, value, low=-sys.maxsize, remedy=_COUNTS[name])
