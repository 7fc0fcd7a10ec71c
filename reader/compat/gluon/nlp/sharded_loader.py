"""ShardedDataLoader with GluonNLP's arguments: a list of batches each step, one for each device.

Imports Gluon's face. Each shard is a task of its own, so that several workers make those of a step
at the same time. Source: gluonnlp.data of GluonNLP 0.10.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reader.compat.gluon.loader import DataLoader
from reader.config import MAX_TIMEOUT_S
from reader.orders.step_batches import step_batches_of

__all__ = ["ShardedDataLoader"]


class ShardedDataLoader(DataLoader):
    """Feed a program that trains on several devices: each step has a shard for each of them.

    Where the batch sampler yields a list of lists of indices, the step is a list of batches, in
    that order, each made by itself: padded to its own longest sample, by whatever worker is free.
    Where it yields a list of indices the step is that batch alone; both may come from one sampler.
    With `places`, shard k lands on place k.

    If a shard fails, its exception is raised in the place of the step.

    Args:
        dataset, batch_size, shuffle, sampler, last_batch, batch_sampler, batchify_fn, num_workers,
            pin_memory, prefetch, thread_pool: see `DataLoader`; `prefetch` counts steps.
        options: `timeout` (for ever, as in GluonNLP), and those of `DataLoader` after it.
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
        num_workers: int = 0,
        pin_memory: bool = False,
        prefetch: int | None = None,
        thread_pool: bool = False,
        **options: Any,
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
            prefetch=prefetch,
            thread_pool=thread_pool,
            **{"timeout": MAX_TIMEOUT_S, **options},
        )

    def _as_steps(self, batch_sampler: Any) -> Any:
        return step_batches_of(batch_sampler)

    @property
    def batch_sampler(self) -> Any:
        """What yields the steps; may be replaced between epochs."""
        return self._engine.batch_sampler.batch_sampler

    @batch_sampler.setter
    def batch_sampler(self, batch_sampler: Any) -> None:
        self._engine.use(batch_sampler=step_batches_of(batch_sampler))
