"""DataLoader with Gluon's arguments, of MXNet 1.9 and 2.x, and its guarantees.

Imports the engine, config and policy. The face checks its arguments and maps them; it holds no
machinery. Source: mxnet.gluon.data of MXNet 1.9.1 and 2.0.0b1.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator
from typing import Any, Literal, cast

from reader import data
from reader._core.epoch.iterator import EpochIterator
from reader.cluster.ray_backend import Ray
from reader.compat.gluon.arrays import has_mxnet
from reader.compat.gluon.batch_sampler import BatchSampler
from reader.compat.gluon.collate import GluonRules
from reader.compat.gluon.errors import ArgumentError
from reader.compat.gluon.iterator import LazyIterator
from reader.compat.gluon.samplers import RandomSampler, SequentialSampler
from reader.config import AutoCount, LoaderConfig, as_auto, of_pool
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.engine.worker_pool import WorkerPool
from reader.errors import ConfigError
from reader.observe.face import ObservedFace
from reader.places import Place
from reader.policy import BatchPolicy, Policy, WorkerPolicy

__all__ = ["DataLoader", "DataLoaderV1"]

_TIMEOUT_S = 120


class DataLoader(EngineFace, ObservedFace):
    """Feed a Gluon program.

    Batches have the arrays of the library that is installed: mx.nd.NDArray on the memory that the
    worker wrote, or NumPy arrays without MXNet. A batch is yours for as long as you keep it.

    Args:
        dataset: anything with `__len__` and `__getitem__(int)`. Samples: mx.nd and NumPy arrays,
            numbers, tuples of these; beyond Gluon dicts and strings.
        batch_size: samples per batch; needed unless there is a `batch_sampler`.
        shuffle: a new random order each epoch, from `np.random`, or by `seed`.
        sampler: an iterable of indices; excludes `shuffle`.
        last_batch: "keep" (None) delivers a short last batch, "discard" leaves it out, "rollover"
            begins the next epoch with its samples.
        batch_sampler: an iterable of lists of indices; excludes `batch_size`, `shuffle`, `sampler`
            and `last_batch`.
        batchify_fn: called in the worker with a list of samples; its result is the batch. Functions
            of `batchify` write into shared memory in place. None: `default_batchify_fn`.
        num_workers: worker processes or threads, which live as long as the loader; 0 or less: the
            thread that iterates makes each batch. "auto": as many as pay off, found while training;
            `loader.chosen` has the number.
        pin_memory: copy the batches into page-locked memory, `mx.cpu_pinned(pin_device_id)`; in
            this thread, as Gluon does. Tuples in a batch become lists.
        pin_device_id: of the device for which memory is locked.
        prefetch: how many batches are made ahead; None: 2 for each worker; "auto": as many for
            each as pay off. Nothing is made ahead without workers.
        thread_pool: workers are threads.
        timeout: seconds to wait for a batch, more than 0; without workers nothing is waited for.
        auto_reload: begin an epoch when the loader is made, and the next one at the end of each, so
            that its first batches are ready early; see `refresh` and `clean`.
        try_nopython: taken, and has no effect: there is one engine.
        seed: makes every batch a function of (dataset, seed, epoch, number of the batch), with any
            number of workers, random augmentation included. None: orders come from `np.random`.
        reseed: called with the dataset and the seed of a batch before each; see
            `reader.DataLoader`. Needs `seed`.
        start_method: "fork", "forkserver" or "spawn"; None: Python's own default.
        framework: what the leaves of a batch are: "numpy", "torch", "paddle" or "jax"; None:
            MXNet's if it is installed, otherwise "numpy".
        places: where batches land, with `framework`; see `reader.DataLoader`. For MXNet the CPU.
        pool: a `reader.WorkerPool`, whose workers several loaders share, in the place of
            `num_workers`.
        backend: a `reader.Ray`: the workers are on the machines of a cluster. See docs/cluster.md.

    Raises:
        ConfigError: an argument is invalid (a ValueError); ArgumentError, an AssertionError too,
            for a timeout that is not positive.

    While iterating: TimedOut, which is a multiprocessing.TimeoutError, when a batch is late: the
    next step waits for it again; the dataset's own exceptions in the place of their batches, after
    which the epoch goes on; WorkerDied.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int | Literal["auto"] = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
        prefetch: int | Literal["auto"] | None = None,
        thread_pool: bool = False,
        timeout: float = _TIMEOUT_S,
        auto_reload: bool = False,
        *,
        try_nopython: bool | None = None,  # noqa: ARG002  a hint to MXNet's own loaders
        seed: int | None = None,
        reseed: Callable[[Any, int], Any] | None = None,
        start_method: str | None = None,
        framework: str | None = None,
        places: Any = None,
        pool: WorkerPool | None = None,
        backend: Ray | None = None,
    ) -> None:
        self.__class__ = _of_mxnet(type(self))
        if timeout <= 0:
            raise ArgumentError(
                f"timeout must be positive, given {timeout}. It is how many seconds to wait for a"
                f" batch; Gluon's default is {_TIMEOUT_S}"
            )
        asked: Any = num_workers
        asked, _ = of_pool(pool, asked if isinstance(asked, str) else max(0, asked), None)
        workers = as_auto("num_workers", asked, backend)
        factor = as_auto("prefetch_factor", prefetch)
        batch_sampler = self._as_steps(
            _batch_sampler_of(
                dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, seed
            )
        )
        ahead = _ahead(workers, factor, getattr(batch_sampler, "most_batches", 1))
        config = LoaderConfig.build(
            dataset,
            batch_sampler=batch_sampler,
            collate_fn=batchify_fn,
            num_workers=workers,
            timeout=timeout if workers else 0,
            persistent_workers=workers > 0,
            seed=seed,
            reseed=reseed,
            start_method=None if thread_pool else start_method,
            worker_type="thread" if thread_pool else "process",
            framework=framework or "numpy",
            places=places,
            pool=pool,
            backend=backend,
            **ahead,
        )
        policy = _policy(batchify_fn, framework, pin_device_id if pin_memory else None)
        self.dataset = dataset
        self.timeout = timeout
        self.thread_pool = thread_pool
        self.auto_reload = bool(auto_reload) and workers > 0
        self._engine = Engine(config, policy, None, batch_sampler)
        if self.auto_reload:
            self.refresh()

    def __reduce__(self) -> Any:
        """Return the class without MXNet, and the state."""
        cls = type(self)
        return (
            _made,
            (cls.__bases__[0] if "_worker_pool" in vars(cls) else cls,),
            self.__getstate__(),
        )

    def _as_steps(self, batch_sampler: Any) -> Any:
        """Return the batch sampler that the engine draws from."""
        return batch_sampler

    def __iter__(self) -> Iterator[Any]:
        """Return an iterator over an epoch, which begins with its first step."""
        return LazyIterator(self)

    def __len__(self) -> int:
        """Return the number of batches of the next epoch; with "rollover" it changes."""
        self._engine.set_orders()
        return super().__len__()

    def refresh(self) -> None:
        """Begin an epoch now, replacing one that was begun ahead; the next iterator takes it."""
        if self._engine.config.num_workers:
            self._engine.prefetch()

    def clean(self) -> None:
        """Drop the epoch that was begun ahead; the next one begins with its iterator."""
        self._engine.drop_prefetched()

    def begin(self) -> EpochIterator:
        """Begin an epoch, or take the one that was begun ahead; an iterator calls it."""
        return iter(self._engine)

    def reload(self) -> None:
        """Begin the next epoch with `auto_reload`, unless that is done; an iterator calls it."""
        if self.auto_reload and not self._engine.has_prefetched:
            self.refresh()

    def __repr__(self) -> str:
        config = self._engine.config
        return f"DataLoader({type(self.dataset).__name__}, num_workers={config.num_workers})"


class DataLoaderV1(DataLoader):
    """Gluon's first DataLoader, by its 10 arguments; see DataLoader for what they mean."""

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = None,
        shuffle: bool = False,
        sampler: Any = None,
        last_batch: str | None = None,
        batch_sampler: Any = None,
        batchify_fn: Callable[[list[Any]], Any] | None = None,
        num_workers: int = 0,
        pin_memory: bool = False,
        pin_device_id: int = 0,
    ) -> None:
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            last_batch,
            batch_sampler,
            batchify_fn,
            num_workers,
            pin_memory,
            pin_device_id,
        )


def _of_mxnet(cls: Any) -> type[DataLoader]:
    """Return a subclass that is MXNet's loader too, if mxnet is imported: its Estimator checks."""
    theirs = getattr(sys.modules.get("mxnet.gluon.data"), "DataLoader", None)
    is_known = theirs is None or issubclass(cls, theirs)
    return cast("type[DataLoader]", cls) if is_known else _joined(cls, theirs)


@functools.cache
def _joined(cls: Any, theirs: Any) -> type[DataLoader]:
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__, "__doc__": cls.__doc__}
    # MXNet's __del__ looks for `_worker_pool`
    made: Any = type(cls.__name__, (cls, theirs), {**names, "_worker_pool": None})
    return cast("type[DataLoader]", made)


def _made(cls: type[DataLoader]) -> DataLoader:
    made = cls.__new__(cls)
    made.__class__ = _of_mxnet(cls)
    return made


def _batch_sampler_of(
    dataset: Any,
    batch_size: int | None,
    shuffle: bool,
    sampler: Any,
    last_batch: str | None,
    batch_sampler: Any,
    seed: int | None,
) -> Any:
    """Return the batch sampler. Refuses contradicting arguments, in Gluon's words."""
    if batch_sampler is not None:
        if batch_size is not None or shuffle or sampler is not None or last_batch is not None:
            raise ConfigError(
                "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler"
                " is specified."
            )
        return batch_sampler
    if batch_size is None:
        raise ConfigError("batch_size must be specified unless batch_sampler is specified")
    if sampler is not None and shuffle:
        raise ConfigError("shuffle must not be specified if sampler is specified")
    if sampler is None:
        count = len(dataset)
        sampler = RandomSampler(count, seed=seed) if shuffle else SequentialSampler(count)
    if last_batch in (None, "keep", "discard"):
        return data.BatchSampler(sampler, batch_size, last_batch == "discard")
    return BatchSampler(sampler, batch_size, last_batch)


def _ahead(workers: int, prefetch: Any, shards: int) -> dict[str, Any]:
    """Return how many batches are made ahead, as options of the engine; a step has `shards`."""
    is_auto = isinstance(workers, AutoCount) or isinstance(prefetch, AutoCount)
    if not is_auto:
        steps = 2 * workers if prefetch is None else max(0, int(prefetch))
        return {"most_ahead": shards * (1 + steps) - 1}
    if prefetch is not None and not isinstance(prefetch, AutoCount):
        raise ConfigError(
            f"prefetch={prefetch} is how many batches all workers make ahead, and"
            ' num_workers="auto" changes how many these are: leave it out, or pass prefetch="auto"'
        )
    if shards > 1:
        raise ConfigError(
            f"a step has up to {shards} batches here, one for each shard, and what is found for"
            ' "auto" may be fewer in flight: pass num_workers and prefetch as numbers'
        )
    return {"prefetch_factor": 2 if prefetch is None else prefetch}


def _policy(batchify_fn: Any, framework: str | None, pin_device_id: int | None) -> Policy:
    """Return the policy of a loader.

    Args:
        batchify_fn: the user's.
        framework: the user's.
        pin_device_id: of the device for whose page-locked memory batches are copied; None: no copy.
    """
    is_default = batchify_fn is None
    make_adapter = None
    if framework is None and has_mxnet():
        make_adapter = functools.partial(_mxnet_adapter, not is_default, pin_device_id)
    return Policy(
        worker=WorkerPolicy(rules=GluonRules(has_origins=not is_default), fetches_many=False),
        batch=BatchPolicy(
            has_plain_containers=is_default or pin_device_id is not None,
            is_as_collated=not is_default and framework is None and pin_device_id is None,
            make_adapter=make_adapter,
        ),
    )


def _mxnet_adapter(keeps_arrays: bool, pin_device_id: int | None, place: Place) -> Any:
    if place.kind != "cpu":
        raise ConfigError(
            f"places={str(place)!r} was given, and arrays of MXNet are made on the CPU. Move the"
            ' batches in the training step (as_in_context), or pass framework="torch", "paddle" or'
            ' "jax"'
        )
    from reader.frameworks.mxnet import to_mxnet

    return functools.partial(to_mxnet, keeps_arrays, pin_device_id)
