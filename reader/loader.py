"""DataLoader: the face of the engine.

Imports every room before it and holds none of their work: it checks options, makes the sampler and
the pool, and hands out iterators. A loader belongs to the process that made it; its iterators may
live side by side.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

from reader.config import LoaderConfig
from reader.data import BatchSampler, NoBatching, RandomSampler, SequenceSampler, seeds
from reader.data.batch_sampler import count_of
from reader.feed.dispatcher import Dispatcher
from reader.feed.iterator import EpochIterator, EpochOptions, WaitStats
from reader.feed.keeper import PoolKeeper
from reader.frameworks import make_adapter
from reader.workers.loop import WorkerConfig
from reader.workers.pool import Pool

__all__ = ["DataLoader"]


class DataLoader:
    """Feed a training step from a map-style dataset at memory speed.

    Worker processes fetch samples and stack them in place in shared memory; the trainer gets views
    of that memory and copies nothing. A batch is yours for as long as you keep it.

    Args:
        dataset: an object with `__getitem__(index)` and `__len__()`; `__getitems__(indices)` is
            used where there is one. Samples: arrays, tensors of paddle or torch on the CPU,
            numbers, strings, bytes, None, any picklable object, and dicts, lists, tuples,
            namedtuples and dataclasses of them.
        feed_list: variables (or names) of a static paddle program; see `return_list`.
        places: None or "cpu".
        return_list: False, with `feed_list` in static mode: yield `[{name: DenseTensor}]`.
        batch_sampler: an iterable of lists of indices, iterated anew each epoch; excludes
            `batch_size`, `shuffle`, `sampler` and `drop_last`.
        batch_size: samples per batch, 1 or more; None: each sample is delivered by itself.
        shuffle: a new random order each epoch, a function of (seed, epoch) with `seed`.
        drop_last: leave out the last batch when it is short.
        collate_fn: called in the worker with the list of samples; its result is the batch. None
            stacks arrays and numbers, keeps the containers, and lists strings and other objects.
        num_workers: worker processes; 0: one thread in this process.
        prefetch_factor: batches in flight per worker, 1 or more.
        timeout: seconds to wait for one batch before LoadTimeout; 0: for ever.
        worker_init_fn: called in each worker process with its number, before the first batch.
        persistent_workers: keep the workers between epochs; a new epoch then costs a message.
        framework: "numpy", "torch" or "paddle": what the leaves of a batch are. In paddle's static
            mode they are DenseTensors.
        sampler: an iterable of indices, iterated anew each epoch; excludes `shuffle`.
        seed: makes every batch a function of (dataset, seed, epoch, number of the batch), random
            augmentation included, whatever the workers. None: fresh seeds.
        start_method: "fork", "forkserver" or "spawn"; None: Python's own default.
        worker_retries: how often a batch is tried again when its worker process died.
        max_bytes: most shared memory that batches may take; None: what the machine has.

    Raises:
        ConfigError: an argument that cannot work, or two that contradict each other.

    While iterating: the user's own exceptions, with a note that names sample, batch and worker;
    DatasetError and CollateError; WorkerDied; ArenaFull; LoadTimeout; SamplerError.

    The arguments and their order are those of `paddle.io.DataLoader` 3.3, as far as they are here.

    >>> loader = DataLoader([(i, i * i) for i in range(6)], batch_size=3)
    >>> for numbers, squares in loader:
    ...     print(numbers, squares)
    [0 1 2] [0 1 4]
    [3 4 5] [ 9 16 25]
    """

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
        prefetch_factor: int = 2,
        timeout: float = 0,
        worker_init_fn: Callable[[int], Any] | None = None,
        persistent_workers: bool = False,
        *,
        framework: str = "numpy",
        sampler: Any = None,
        seed: int | None = None,
        start_method: str | None = None,
        worker_retries: int = 1,
        max_bytes: int | None = None,
    ) -> None:
        config = LoaderConfig.build(
            dataset,
            feed_list=feed_list,
            places=places,
            return_list=return_list,
            batch_sampler=batch_sampler,
            batch_size=batch_size,
            shuffle=shuffle,
            drop_last=drop_last,
            collate_fn=collate_fn,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            persistent_workers=persistent_workers,
            framework=framework,
            sampler=sampler,
            seed=seed,
            start_method=start_method,
            worker_retries=worker_retries,
            max_bytes=max_bytes,
        )
        self.config = config
        self.dataset = dataset
        self.sampler = config.sampler
        self.batch_sampler = config.batch_sampler
        self.batch_size = config.batch_size
        self.drop_last = config.drop_last
        self.num_workers = config.num_workers
        base_seed = seeds.fresh_seed() if config.seed is None else config.seed
        if self.batch_sampler is None:
            if self.sampler is None:
                kind = functools.partial(RandomSampler, seed=config.seed)
                self.sampler = kind(dataset) if config.shuffle else SequenceSampler(dataset)
            if config.batch_size is None:
                self.batch_sampler = NoBatching(self.sampler)
            else:
                self.batch_sampler = BatchSampler(self.sampler, config.batch_size, config.drop_last)
        workers = WorkerConfig(
            dataset=dataset,
            collate_fn=config.collate_fn,
            worker_init_fn=config.worker_init_fn,
            num_workers=config.num_workers,
            seed=config.seed,
            base_seed=base_seed,
        )
        self._epoch = 0
        self._stats = WaitStats()
        self._keeper = PoolKeeper(
            functools.partial(
                Pool, workers, config.prefetch_factor, config.start_method, config.max_bytes
            ),
            config.persistent_workers,
        )
        self._finalizer = weakref.finalize(self, self._keeper.drop)
        self._finalizer.atexit = False  # pools end themselves at exit

    @property
    def epoch(self) -> int:
        """The number of the epoch that the next `iter()` begins, from 0."""
        return self._epoch

    def __iter__(self) -> Iterator[Any]:
        """Begin an epoch. Starts workers unless persistent ones wait; blocks on nothing else."""
        config = self.config
        convert = make_adapter(config.framework, config.feed_names, config.return_list)
        for sampler in (self.sampler, getattr(self.batch_sampler, "sampler", None)):
            if isinstance(sampler, RandomSampler):
                sampler.set_epoch(self._epoch)
        options = EpochOptions(
            epoch=self._epoch,
            timeout_s=config.timeout_s,
            worker_retries=config.worker_retries,
            # the global random state is swapped in while the consumer waits, and only then
            is_eager=config.num_workers > 0 or config.seed is None,
        )
        dispatcher = Dispatcher(self.batch_sampler, self.dataset, config.batch_size is not None)
        self._epoch += 1
        return EpochIterator(self._keeper, dispatcher, convert, options, self._stats)

    def __call__(self) -> Iterator[Any]:
        """The same as `iter(loader)`."""
        return iter(self)

    def __len__(self) -> int:
        """The number of batches in an epoch. TypeError when the sampler has no length."""
        return count_of(self.batch_sampler)

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
        self._keeper.close()

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
