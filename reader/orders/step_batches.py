"""Steps of several batches: yields the batches of a batch sampler's steps one at a time.

Imports `reader.data` and NumPy. It runs in the trainer alone and keeps nothing; the engine makes a
task of each batch, and delivers the batches of a step together.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, islice
from typing import Any

import numpy as np

from reader.checks import as_reiterable
from reader.data.batch_sampler import count_of
from reader.data.seekable import as_position
from reader.errors import ConfigTypeError
from reader.orders.base_sampler import is_seekable

__all__ = ["StepBatch", "StepBatches", "step_batches_of"]


class StepBatch(list[Any]):
    """The indices of one batch of a step.

    Attributes:
        part: its number in the step.
        parts: how many the step has.
    """

    __slots__ = ("part", "parts")

    def __init__(self, indices: Any, part: int, parts: int) -> None:
        super().__init__(indices)
        self.part = part
        self.parts = parts


class StepBatches:
    """Yields the batches of a batch sampler's steps, one after the other.

    A step is a list of batches if its first item is a list, tuple or array; else it is one batch.

    Args:
        batch_sampler: yields steps; iterated over anew for each epoch.
    """

    step_size: int | None = None  # how many batches each step has; None: it differs

    def __init__(self, batch_sampler: Any) -> None:
        self.batch_sampler = as_reiterable("batch_sampler", batch_sampler)

    def __iter__(self) -> Iterator[list[Any]]:
        return chain.from_iterable(map(_split, self.batch_sampler))

    def __len__(self) -> int:
        """Return the number of steps. ConfigTypeError: it is unknown."""
        return count_of(self.batch_sampler)

    @property
    def most_batches(self) -> int:
        """The most batches of a step; 1 where unknown."""
        steps = self.batch_sampler
        count = getattr(steps, "num_shards", 0)
        if isinstance(steps, (list, tuple)):
            count = max((len(_split(step)) for step in steps), default=1)
        return max(1, count if isinstance(count, int) else 1)

    def __getattr__(self, name: str) -> Any:
        """Find the state and the epoch methods of the batch sampler, if it has them."""
        if name in ("epoch", "load_state_dict", "set_epoch", "state_dict"):
            return getattr(self.batch_sampler, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")


class SeekableStepBatches(StepBatches):
    """Yields the batches of a seekable batch sampler whose steps all have `num_shards` batches."""

    @property
    def step_size(self) -> int:  # type: ignore[override]
        """How many batches each step has."""
        return int(self.batch_sampler.num_shards)

    def iter_from(self, position: int) -> Iterator[list[Any]]:
        """Iterate over the batches from `position` on, without drawing those before."""
        step, part = divmod(as_position(position), self.batch_sampler.num_shards)
        batches = chain.from_iterable(map(_split, self.batch_sampler.iter_from(step)))
        return islice(batches, part, None) if part else batches


def step_batches_of(batch_sampler: Any) -> StepBatches:
    """Return an iterable over the batches of a batch sampler's steps."""
    count = getattr(batch_sampler, "num_shards", 0)
    is_fixed = isinstance(count, int) and count > 0 and hasattr(batch_sampler, "iter_from")
    kind = SeekableStepBatches if is_fixed and is_seekable(batch_sampler, None) else StepBatches
    return kind(batch_sampler)


def _split(step: Any) -> list[Any]:
    """Return the batches of a step; a plain batch is one."""
    if not hasattr(step, "__len__"):
        step = list(step)
    if not len(step) or not _is_batch(step[0]):
        return [step]
    for place, each in enumerate(step):
        if not _is_batch(each):
            raise ConfigTypeError(
                f"a step of shards must be a list of lists of indices, got {each!r} as shard"
                f" {place} of {len(step)}. Yield lists, or one list of indices without shards"
            )
    parts = len(step)
    return [StepBatch(_plain(each), part, parts) for part, each in enumerate(step)]


def _is_batch(item: Any) -> bool:
    return isinstance(item, (list, tuple)) or (isinstance(item, np.ndarray) and item.ndim > 0)


def _plain(batch: Any) -> Any:
    return batch.tolist() if isinstance(batch, np.ndarray) else batch
