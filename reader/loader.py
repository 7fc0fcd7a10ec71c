"""DataLoader: the face of the engine.

Imports every room before it and holds none of their work: it checks options, makes the sampler and
the pool, and hands out iterators. A loader belongs to the process that made it; its iterators may
live side by side.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, ClassVar

from reader.checks import as_int
from reader.config import LoaderConfig
from reader.data import BatchSampler, RandomSampler, SequenceSampler, seeds
from reader.data.batch_sampler import count_of
from reader.data.epochs import set_epochs
from reader.data.iterable import is_iterable_dataset
from reader.errors import ConfigTypeError, ReaderError, shown
from reader.feed.ahead import Ahead
from reader.feed.checkpoints import Checkpoints
from reader.feed.groups import PlaceGroups
from reader.feed.inline import InlineIterator
from reader.feed.iterator import EpochIterator
from reader.feed.keeper import make_keeper
from reader.feed.opener import EpochOpener
from reader.feed.wait_stats import WaitStats
from reader.frameworks import check_places
from reader.promises import Promises
from reader.workers.open_pools import leave_with_program

__all__ = ["DataLoader"]


class DataLoader:
    """Feed a training step from a dataset at memory speed.

    Worker processes fetch samples and stack them in place in shared memory; the trainer gets views
    of that memory and copies nothing. A batch is yours for as long as you keep it.

    Args:
        dataset: an object with `__getitem__(index)` and `__len__()`; `__getitems__(indices)` is
            used where there is one. Or one with `__iter__()` and no index, such as an
            IterableDataset: each worker iterates its own copy, and the batches come from one worker
            after the other. Samples: arrays, tensors of paddle or torch on the CPU,
            numbers, strings, bytes, None, any picklable object, and dicts, lists, tuples,
            namedtuples and dataclasses of them.
        feed_list: variables (or names) of a static paddle program; see `return_list`.
        places: where batches land: None or "cpu", a place of Paddle, or a list of these. With N in
            the list each step yields N batches, in a list: batch k goes to place k modulo N.
        return_list: False, with `feed_list` in static mode: yield `[{name: DenseTensor}]`.
        batch_sampler: an iterable of lists of indices, iterated anew each epoch; excludes
            `batch_size`, `shuffle`, `sampler` and `drop_last`.
        batch_size: samples per batch, 1 or more; None: each sample is delivered by itself.
        shuffle: a new random order each epoch, a function of (seed, epoch) with `seed`.
        drop_last: leave out the last batch when it is short.
        collate_fn: called in the worker with the list of samples; its result is the batch. None
            stacks arrays and numbers, keeps the containers, and lists strings and other objects.
        num_workers: worker processes, or threads (`worker_type`); 0: one thread in this process.
        use_buffer_reader: with `num_workers=0`, let `reader_buffer_size` batches more be made
        ahead. reader_buffer_size: batches staged for each place; less than 2 mean 2.
        prefetch_factor: batches in flight per worker, or per place if those are more; 1 or more.
        use_shared_memory: False: the batches you get lie in memory of this process alone, copied
            from what the workers wrote; shared memory is then only passed through.
        timeout: seconds to wait for one batch before LoadTimeout; 0: for ever.
        worker_init_fn: called in each worker with its number, before its first batch.
        persistent_workers: keep the workers between epochs; a new epoch then costs a message.
        framework: "numpy", "torch" or "paddle": what the leaves of a batch are. In paddle's static
            mode they are DenseTensors.
        sampler: an iterable of indices, iterated anew each epoch; excludes `shuffle`.
        seed: makes every batch a function of (dataset, seed, epoch, number of the batch), random
            augmentation included, whatever the workers. None: fresh seeds.
        start_method: "fork", "forkserver" or "spawn"; None: Python's own default.
        worker_type: "process", or "thread": the workers run in this process, on this very dataset,
            and nothing is pickled. It must bear being used by several threads at once, and gains by
            them where it waits or leaves the GIL (files, decoders, NumPy on large arrays).
        seed_globals: whether `seed` is for the global generators of random, numpy, torch and paddle
            as well. Threads then make one batch at a time, and only while it is waited for, since
            those generators are the process's own. False leaves them alone: the order of samples,
            `sample_rng` and `get_worker_info().rng` have the seed, and threads run side by side.
        drop_last_group: what becomes of a last group of batches that is smaller than the number of
            places: False: it is delivered; True: it is left out; None: left out with a warning.
        prefetch_next_epoch: with persistent workers, begin the next epoch when the last batch of
            one is delivered, so that its first batches are made meanwhile. Other changes to dataset
            or sampler than by `set_epoch` then come an epoch late.
        worker_retries: how often a batch is tried again when its worker process died.
        max_bytes: most shared memory that batches may take; None: what the machine has.
        in_order: False: batches are delivered as they are made, whatever their numbers.
        snapshot_every_n_steps: how many batches lie between two looks at the state of a dataset or
            sampler with `state_dict`; those behind the last look are drawn again on resuming. 0 or
            None: all are.

    Raises:
        ConfigError: an argument that cannot work, or two that contradict each other.

    While iterating: the user's own exceptions, with a note that names sample, batch and worker;
    DatasetError and CollateError; WorkerDied; ArenaFull; LoadTimeout; SamplerError.

    The arguments up to `persistent_workers` and their order are those of `paddle.io.DataLoader`
    3.3.

    >>> loader = DataLoader([(i, i * i) for i in range(6)], batch_size=3)
    >>> for numbers, squares in loader:
    ...     print(numbers, squares)
    [0 1 2] [0 1 4]
    [3 4 5] [ 9 16 25]
    """

    _promises: ClassVar[Promises] = Promises()

    def __init__(
        self,
        dataset: Any,
        feed_list: Any = None,
        places: Any = None,
        return_list: bool = True,
        batch_sampler: Any = None,
        batch_size: int | None = 1,
        shuffle: bool = False,
        drop_last: bool = False,
        collate_fn: Callable[[Any], Any] | None = None,
        num_workers: int = 0,
        use_buffer_reader: bool = True,
        reader_buffer_size: int = 2,
        prefetch_factor: int = 2,
        use_shared_memory: bool = True,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
        *,
        framework: str = "numpy",
        sampler: Any = None,
        seed: int | None = None,
        start_method: str | None = None,
        worker_type: str = "process",
        seed_globals: bool = True,
        drop_last_group: bool | None = False,
        prefetch_next_epoch: bool = False,
        worker_retries: int = 1,
        max_bytes: int | None = None,
        in_order: bool = True,
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        config = LoaderConfig.build(
            dataset,
            is_iterable=(self._promises.is_iterable or is_iterable_dataset)(dataset),
            feed_list=feed_list,
            places=places,
            return_list=return_list,
            batch_sampler=batch_sampler,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            collate_fn=collate_fn,
            num_workers=num_workers,
            use_buffer_reader=use_buffer_reader,
            reader_buffer_size=reader_buffer_size,
            prefetch_factor=prefetch_factor,
            use_shared_memory=use_shared_memory,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            persistent_workers=persistent_workers,
            framework=framework,
            sampler=sampler,
            seed=seed,
            start_method=start_method,
            worker_type=worker_type,
            seed_globals=seed_globals,
            drop_last_group=drop_last_group,
            prefetch_next_epoch=prefetch_next_epoch,
            worker_retries=worker_retries,
            max_bytes=max_bytes,
            in_order=in_order,
            snapshot_every_n_steps=snapshot_every_n_steps,
        )
        check_places(config.framework, config.places)
        self.config = config
        self.dataset = dataset
        self.sampler = config.sampler
        self.batch_sampler = config.batch_sampler
        self.batch_size = config.batch_size
        self.drop_last = config.drop_last
        self.num_workers = config.num_workers
        if self.batch_sampler is None and not config.is_iterable:
            self._make_samplers()
        self._epoch = 0
        self._base_seed = seeds.fresh_seed() if config.seed is None else config.seed
        self._set_up()

    def _set_up(self) -> None:
        """Make what belongs to this process alone."""
        config = self.config
        self._ahead: Ahead | None = None
        self._stats = WaitStats()
        self._keeper = make_keeper(config, self._promises, self.dataset, self._base_seed)
        self._opener = EpochOpener(
            config, self._promises, self._keeper, self._stats, self._base_seed
        )
        self._checkpoints = Checkpoints(config, self._promises.keeps_worker_rng, self._base_seed)
        self._finalizer = weakref.finalize(self, self._keeper.shelf.drop)
        self._finalizer.atexit = False  # pools end themselves at exit

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_finalizer" in self.__dict__:
            raise AttributeError(
                f"{name} of a DataLoader is fixed when it is made, and workers may have it already;"
                f" make another loader with {name}={shown(value)}"
            )
        object.__setattr__(self, name, value)

    def __getstate__(self) -> dict[str, Any]:
        """What a copy of the loader has: its options and epoch, and neither workers nor batches."""
        own = ("_ahead", "_stats", "_keeper", "_opener", "_checkpoints", "_finalizer")
        state = {name: value for name, value in self.__dict__.items() if name not in own}
        return {**state, "_epoch": self.epoch}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._set_up()

    def _make_samplers(self) -> None:
        config = self.config
        if self.sampler is None:
            kind = functools.partial(RandomSampler, seed=config.seed)
            self.sampler = kind(self.dataset) if config.shuffle else SequenceSampler(self.dataset)
        if config.batch_size is not None:
            self.batch_sampler = BatchSampler(self.sampler, config.batch_size, config.drop_last)

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` begins, from 0."""
        return self._epoch - (self._ahead is not None)

    def set_epoch(self, epoch: int) -> None:
        """Choose the number of the epoch that the next `iter()` begins.

        It is passed on to the dataset, the sampler and the batch sampler as far as they have
        `set_epoch`; the workers' copies of the dataset are told at the beginning of the epoch.
        """
        self._drop_ahead()
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")
        self._checkpoints.choose(self._epoch)
        set_epochs(self._epoch, self.dataset, self.sampler, self.batch_sampler)

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch. Starts workers unless persistent ones wait; blocks on nothing else."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            if ahead.take_over():
                batches: Iterator[Any] = ahead.batches
                self._checkpoints.begun(ahead.batches.progress)
                return batches
            ahead.batches.close()
            self._epoch -= 1
        begun = self._begin()
        self._checkpoints.begun(begun.progress)
        return begun

    def _begin(self) -> EpochIterator | PlaceGroups | InlineIterator:
        on_end = functools.partial(_make_ahead_of, weakref.ref(self))
        try:
            batches = self._opener.open(
                self._epoch,
                self.dataset,
                self.sampler,
                self.batch_sampler,
                on_end if self.config.prefetch_next_epoch else None,
                self._checkpoints.start(),
            )
        except ReaderError:
            leave_with_program()  # closed because the program ends: nobody is to hear of it
            raise
        self._epoch += 1
        return batches

    def _make_ahead(self) -> None:
        """The last batch of an epoch was delivered: begin the next one while it is used."""
        self._drop_ahead()
        self._ahead = Ahead(self._begin, self.dataset, self.batch_sampler, self.sampler)

    def _drop_ahead(self) -> None:
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            ahead.batches.close()
            self._epoch -= 1

    def state_dict(self) -> dict[str, Any]:
        """Return where the loader is: what `load_state_dict` of another one goes on from.

        That is behind the last batch that the loop over the newest iterator got, whatever was made
        ahead, and an exception in a batch's place counts as that batch; after the loop it is the
        beginning of the next epoch. JSON can hold it as far as it can hold the states of your own
        samplers and datasets. Its size and its cost do not depend on the position.
        """
        ahead = None if self._ahead is None else self._ahead.batches.progress
        return self._checkpoints.save(self.epoch, self.sampler, self.batch_sampler, ahead)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Let the next `iter()` go on where `state` was saved; an iterator that lives goes on.

        Samplers and datasets with `set_epoch` are told their epochs at once, their own states are
        loaded when the iterator begins. The number of workers may be another one: see the guide.

        Raises:
            StateError: the state is damaged, or that of another kind of loader. Nothing has changed
                then. While iterating: the sampler does not give the same order again.
        """
        epoch = self._checkpoints.load(state, self.sampler, self.batch_sampler)
        self._drop_ahead()
        self._epoch = epoch

    def __call__(self) -> Iterator[Any]:
        """The same as `iter(loader)`."""
        return iter(self)

    def __len__(self) -> int:
        """The number of batches in an epoch, not divided by the number of places.

        TypeError when the sampler has no length, and for an iterable dataset.
        """
        if self.config.is_iterable:
            raise ConfigTypeError(
                "the number of batches is not known: an IterableDataset yields until it ends. Count"
                " while iterating."
            )
        return count_of(self.sampler if self.batch_sampler is None else self.batch_sampler)

    @property
    def steps(self) -> int:
        """How often a loop over an epoch runs: the batches divided by the number of places."""
        places = len(self.config.places)
        if self.config.drop_last_group is False:
            return -(-len(self) // places)
        return len(self) // places

    def stats(self) -> dict[str, Any]:
        """Return what the loader did so far.

        `batches` delivered; `wait_s`: seconds the consumer waited for them, in all, and
        `last_wait_s` for the last one; `queued`: batches that wait now (0 again and again: the
        workers are the bottleneck); `arena`: memory and slots, None without workers.
        """
        pool = self._keeper.pool
        found: dict[str, Any] = {
            "batches": self._stats.batches,
            "wait_s": self._stats.wait_s,
            "last_wait_s": self._stats.last_wait_s,
            "queued": 0 if pool is None else pool.feeder.queued,
            "arena": None if pool is None or not pool.is_usable else pool.arena.stats(),
        }
        return found

    def close(self) -> None:
        """End the workers and wait for it, 0.7 s at most. Batches you hold stay valid. Idempotent.

        Iterating again starts new workers.
        """
        self._drop_ahead()
        self._keeper.shelf.close()

    def __enter__(self) -> DataLoader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return (
            f"DataLoader({type(self.dataset).__name__}, batch_size={self.batch_size},"
            f" num_workers={self.num_workers}, framework={self.config.framework!r})"
        )


# Samplers are asked anew for each epoch; all else has gone to the workers.
_FIXED = {field.name for field in dataclasses.fields(LoaderConfig)} | {"config"}
_FIXED -= {"sampler", "batch_sampler"}


def _make_ahead_of(loader: weakref.ref[DataLoader]) -> None:
    """Begin the next epoch of a loader that is still there; its trouble is told when asked for."""
    found = loader()
    if found is not None:
        with contextlib.suppress(Exception, SystemExit, GeneratorExit):
            found._make_ahead()
