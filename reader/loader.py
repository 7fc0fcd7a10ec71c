"""DataLoader: the engine's own face, with Paddle's arguments and more.

Imports the engine, config and checks. It checks options and makes the samplers; a loader belongs to
the process that made it, and its iterators may live side by side.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from reader.checks import names_arguments, refuse_text
from reader.cluster.ray_backend import Ray
from reader.config import OPTIONS, PREFETCH_FACTOR, LoaderConfig, as_auto
from reader.data import BatchSampler, SequenceSampler
from reader.data.dataset import Indexed
from reader.data.iterable import is_iterable_dataset
from reader.data.shard_order import shuffled_sampler
from reader.engine.engine import Engine
from reader.engine.face import EngineFace
from reader.engine.worker_pool import WorkerPool
from reader.errors import shown
from reader.observe.face import ObservedFace
from reader.policy import Policy

__all__ = ["DataLoader"]

T_co = TypeVar("T_co", covariant=True)
if TYPE_CHECKING:
    import typing_extensions

    B_co = typing_extensions.TypeVar("B_co", covariant=True, default=Any)
else:  # a default needs Python 3.13: see `__class_getitem__`
    B_co = TypeVar("B_co", covariant=True)

# arguments of other libraries' loaders, and what to do here
_ELSEWHERE = {
    "pin_memory": 'pass places="gpu:0": batches are copied there from page-locked memory; or'
    ' places="gpu_pinned" for batches in such memory',
    "pin_memory_device": 'pass places=, such as "gpu:0"',
    "generator": "pass seed=, which makes order and augmentation repeatable, or a sampler that has"
    " the generator: sampler=",
    "multiprocessing_context": 'pass start_method="fork", "forkserver" or "spawn"',
    "mp_context": 'pass start_method="fork", "forkserver" or "spawn"',
    "device": 'pass places=, such as "gpu:0"',
    "place": "pass places=",
    "transform": "apply it in __getitem__ of the dataset",
    "random_state": "pass seed=",
    "rng": "pass seed=",
    **dict.fromkeys(("workers", "worker_count", "worker_num", "n_jobs"), "pass num_workers="),
    "num_parallel_calls": "pass num_workers=",
    "prefetch": "pass prefetch_factor=",
    "buffer_size": "pass prefetch_factor=, which counts batches of each worker",
    "last_batch": "pass drop_last=True to leave out a short last batch",
    "drop_remainder": "pass drop_last=True",
    "repeat": "iterate over the loader once for each epoch",
    "epochs": "iterate over the loader once for each epoch",
    "num_epochs": "iterate over the loader once for each epoch",
    "batchify_fn": "pass collate_fn=",
}


class DataLoader(EngineFace, ObservedFace, Generic[T_co, B_co]):
    """Feed a training step from a dataset at memory speed.

    Worker processes fetch samples and stack them in place in shared memory; the trainer gets views
    of that memory and copies nothing. A batch is yours for as long as you keep it.

    Args:
        dataset: an object with `__getitem__(index)` and `__len__()`; `__getitems__(indices)` is
            used where there is one. Or one with `__iter__()` and no index, such as an
            IterableDataset: each worker iterates its own copy, and the batches come from one worker
            after the other. Samples: arrays, tensors of paddle or torch on the CPU,
            numbers, strings, bytes, None, any picklable object, and dicts, lists, tuples,
            namedtuples and dataclasses of them. A batch of indexed samples that are all None is an
            error, as are masked arrays, unless `collate_fn` takes them.
        feed_list: variables (or names) of a static paddle program; see `return_list`.
        places: where batches land: None or "cpu", a device such as "gpu:0", a place of Paddle, a
            torch.device, a device or sharding of JAX, or a list of these. With N in the list each
            step yields N batches, in a list: batch k goes to place k modulo N. See docs/devices.md.
        return_list: False, with `feed_list` in static mode: yield `[{name: DenseTensor}]`.
        batch_sampler: an iterable of lists of indices, iterated anew each epoch; excludes
            `batch_size`, `shuffle`, `sampler` and `drop_last`.
        batch_size: samples per batch, 1 or more; None: each sample is delivered by itself.
        shuffle: a new random order each epoch, a function of (seed, epoch) with `seed`. For
            `reader.Shards` it is `ShardOrder`, which ranks of a launcher divide among them.
        drop_last: leave out the last batch when it is short.
        collate_fn: called in the worker with the list of samples; its result is the batch, which
            without workers is copied only where something else refers to it. None stacks arrays and
            numbers, keeps the containers, and lists strings and other objects. Type checkers use
            its return annotation as the type of a batch. Annotate Any where `framework` converts
            its arrays, or where several places make a step a list.
        num_workers: worker processes, or threads (`worker_type`); 0: the thread that iterates makes
            each batch when it asks for it, in its own context, and nothing ahead. For a thread
            ahead pass `num_workers=1, worker_type="thread"`. "auto": as many as pay off, found
            while training and changed when that changes; `loader.chosen` says how many.
        use_buffer_reader, reader_buffer_size: how many batches are copied to each device ahead of
            the loop; none if `use_buffer_reader` is False. On the CPU they have no effect.
        prefetch_factor: batches in flight per worker, or per place if those are more; 1 or more.
            "auto": as many as pay off. With `backend`, where it is left out or "auto": 2, and more
            where that hides the way of batches between machines: see docs/cluster.md.
        use_shared_memory: False copies each batch from shared memory to memory of this process;
            workers still write to shared memory.
        timeout: seconds to wait for one batch before LoadTimeout; 0: for ever. Without workers it
            is raised when the batch is made, and the next call returns that batch.
        worker_init_fn: called in each worker with its number, before its first batch.
        persistent_workers: keep the workers between epochs; a new epoch then costs a message.
        framework: "numpy", "torch", "paddle" or "jax": what the leaves of a batch are. In paddle's
            static mode they are DenseTensors.
        sampler: an iterable of indices, iterated anew each epoch; excludes `shuffle`.
        seed: makes every batch a function of (dataset, seed, epoch, number of the batch), random
            augmentation included, with any number of workers. None: fresh seeds. It reaches the
            global generators and `sample_rng`; generators of the dataset's own need `reseed`.
        reseed: called with the dataset and an int in [0, 2**63) before each batch, in the worker
            that makes it: seeds the dataset's other generators. The int is a function of
            (seed, epoch, number of the batch). Needs `seed`; threads then make one batch at a time,
            as with `seed_globals`.
        start_method: "fork", "forkserver" or "spawn"; None: Python's own default.
        pool: a WorkerPool, whose workers several loaders share, in the place of `num_workers`; they
            persist between epochs.
        backend: a `reader.Ray`: the workers run on the machines of a cluster, and persist between
            epochs. None: they run on this machine. See docs/cluster.md.
        worker_type: "process", or "thread": the workers run in this process, on this very dataset,
            and nothing is pickled. The dataset must allow calls from several threads. Threads pay
            off where it waits or releases the GIL (files, decoders, NumPy on large arrays).
        seed_globals: whether `seed` also seeds the global generators of random, numpy, torch and
            paddle. A process has these once: so threads then make one batch at a time, and only
            while the consumer waits for it. False leaves them alone: the order,
            `sample_rng` and `get_worker_info().rng` follow the seed, and threads run in parallel.
        drop_last_group: what happens to a last group of batches that is smaller than the number of
            places: False delivers it, True drops it, None drops it with a warning.
        prefetch_next_epoch: with persistent workers, begin the next epoch when the last batch of
            one is delivered, so that its first batches are made meanwhile. Changes to dataset or
            sampler other than by `set_epoch` then take effect one epoch late.
        worker_retries: how often a batch is retried when its worker process dies.
        max_bytes: limit of the shared memory for batches; None: what the machine has.
        pin_limit: the most bytes of that memory to page-lock for copies to devices; None: as much
            as the copies need; 0: none.
        in_order: False delivers batches as they are made, whatever their numbers.
        snapshot_every_n_steps: take the state of a dataset or sampler with `state_dict` once per so
            many batches; a resume draws again the batches since the last state. 0 or None: a resume
            draws all batches again.
        keep_states: how many batches back `state_dict(trained=)` can go, where the position of a
            batch does not follow from its number; 0: it cannot.
        on_error: what becomes of a sample whose fetching raises an exception: "raise": that is
            raised in the place of its batch; "skip": the batch goes without it; "replace": another
            sample of the batch takes its place, which follows from seed, epoch and index, so that
            all ranks take the same number of steps. See docs/bad-data.md.
        error_budget: how many samples of an epoch may fail, an int, or what share of them, a float;
            where more do, the epoch ends with a DatasetError that names them. None: 0.05.
        quarantine: a file to which each sample that failed is added as a line of JSON.
        warn_after: seconds; a sample that takes longer while the loop waits for it is logged once,
            with its index, its worker, and the line of code. None: never.
        hang_after: seconds; the worker process of a sample that takes longer is replaced, and the
            sample has failed: see `on_error`. None: no limit.

    Raises:
        ConfigError: an argument that cannot work, or two that contradict each other.

    While iterating: the user's own exceptions, with a note that names sample, batch and worker;
    DatasetError and CollateError; WorkerDied; ArenaFull; LoadTimeout; SamplerError.

    The arguments up to `persistent_workers` and their order are those of `paddle.io.DataLoader`
    3.3. To type checkers it is a `DataLoader[Sample, Batch]`, where Batch is Any unless a
    `collate_fn` or an annotation says more.

    >>> loader = DataLoader([(i, i * i) for i in range(6)], batch_size=3)
    >>> for numbers, squares in loader:
    ...     print(numbers, squares)
    [0 1 2] [0 1 4]
    [3 4 5] [ 9 16 25]
    """

    @names_arguments(_ELSEWHERE)
    def __init__(
        self,
        dataset: Indexed[T_co] | Iterable[T_co],
        feed_list: Any = None,
        places: Any = None,
        return_list: bool = True,
        batch_sampler: Any = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Any], B_co] | None = None,
        num_workers: int | Literal["auto"] = 0,
        use_buffer_reader: bool = True,
        reader_buffer_size: int = 2,
        prefetch_factor: int | Literal["auto"] = PREFETCH_FACTOR,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
        *,
        framework: Literal["jax", "numpy", "paddle", "torch"] = "numpy",
        sampler: Any = None,
        seed: int | None = None,
        reseed: Callable[[Any, int], Any] | None = None,
        start_method: Literal["fork", "forkserver", "spawn"] | None = None,
        pool: WorkerPool | None = None,
        backend: Ray | None = None,
        worker_type: Literal["process", "thread"] = "process",
        seed_globals: bool = True,
        drop_last_group: bool | None = False,
        prefetch_next_epoch: bool = False,
        worker_retries: int = 1,
        max_bytes: int | None = None,
        pin_limit: int | None = None,
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
        keep_states: int = 64,
        on_error: Literal["raise", "skip", "replace"] = "raise",
        error_budget: float | None = None,
        quarantine: str | os.PathLike[str] | None = None,
        warn_after: float | None = 30.0,
        hang_after: float | None = None,
    ) -> None:
        options = {name: value for name, value in locals().items() if name in OPTIONS}
        refuse_text("dataset must hold samples", dataset)
        is_iterable = is_iterable_dataset(dataset)
        config = LoaderConfig.build(dataset, is_iterable=is_iterable, **options)
        sampler, batch_sampler = make_samplers(config)
        self.config = config
        self.dataset = dataset
        self.batch_size = config.batch_size
        self.drop_last = config.drop_last
        self.num_workers = config.num_workers
        if config.auto[0]:
            self.num_workers = as_auto("num_workers", num_workers, backend)
        self._engine = Engine(config, Policy(), sampler, batch_sampler)
        self._engine.tells_undivided = True

    if TYPE_CHECKING:

        def __iter__(self) -> Iterator[B_co]: ...

        def __call__(self) -> Iterator[B_co]: ...  # noqa: D102

    else:

        def __iter__(self):
            return iter(self._engine)

        def __class_getitem__(cls, kinds):
            """Return the class for `DataLoader[Sample]` too, on a Python without defaults."""
            kinds = kinds if isinstance(kinds, tuple) else (kinds,)
            missing = len(cls.__parameters__) - len(kinds)
            return super().__class_getitem__((*kinds, *[Any] * missing))

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_engine" in self.__dict__:
            raise AttributeError(
                f"{name} of a DataLoader is fixed when it is made, and workers may have it already;"
                f" make another loader with {name}={shown(value)}"
            )
        object.__setattr__(self, name, value)

    def __repr__(self) -> str:
        return (
            f"DataLoader({type(self.dataset).__name__}, batch_size={self.batch_size},"
            f" num_workers={self.num_workers}, framework={self.config.framework!r})"
        )


def make_samplers(config: LoaderConfig) -> tuple[Any, Any]:
    """Return the sampler and the batch sampler of a loader."""
    sampler, batch_sampler = config.sampler, config.batch_sampler
    if batch_sampler is not None or config.is_iterable:
        return sampler, batch_sampler
    if sampler is None:
        if config.shuffle:
            sampler = shuffled_sampler(config.dataset, config.seed)
        else:
            sampler = SequenceSampler(config.dataset)
    if config.batch_size is not None:
        batch_sampler = BatchSampler(sampler, config.batch_size, config.drop_last)
    return sampler, batch_sampler


# Each epoch iterates the samplers anew; the workers already have everything else.
_FIXED = {field.name for field in dataclasses.fields(LoaderConfig) if field.init} | {"config"}
_FIXED -= {"sampler", "batch_sampler"}
