"""The base of datasets whose samples are a function of (seed, epoch).

Imports the checks and the worker's context. The epoch of a sample is that
of the loader that fetches it; the trainer's dataset has the one that its loader began last.
"""

from __future__ import annotations

import warnings
from typing import Any

from reader.checks import as_int
from reader.errors import ConfigError
from reader.random.seeds import as_seed
from reader.worker.context import loader_task

__all__ = ["SeededDataset"]


class SeededDataset:
    """Base class of map-style datasets that have other samples in each epoch, by a seed.

    A loader of this package counts the epochs, as it does for samplers with a seed. `set_epoch` is
    for other loaders, and for samples that are asked for without one.

    Args:
        seed: an int in [0, 2**64), or None: samples are the same in each epoch.
        without: what samples are without a seed, for errors.
    """

    def __init__(self, seed: int | None, without: str) -> None:
        self._seed = None if seed is None else as_seed(seed, f"None {without}.")
        self._epoch = 0  # chosen, or that of the loader that began one last
        self._followed = 0  # what such a loader chose

    @property
    def epoch_now(self) -> int:
        """The epoch whose samples it gives in this thread."""
        task = loader_task()
        return self._epoch if task is None else task[1]

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, from 0, where no loader of this package counts them."""
        self._epoch = as_int("epoch", epoch, low=0, remedy="Count epochs from 0.")

    def follow_epoch(self, epoch: int) -> None:
        """Take the epoch that a loader has chosen, or begins."""
        if self._seed is not None and self._epoch not in (epoch, self._followed):
            warnings.warn(
                f"set_epoch({self._epoch}) of {type(self).__name__} has no effect in this loader,"
                f" which begins epoch {epoch} and counts on: call set_epoch of the loader",
                stacklevel=2,
            )
        self._epoch = self._followed = epoch

    def __with_cache__(self, what: str | None, **options: Any) -> None:
        """Refuse a cache of samples that change with the epoch; see `reader.cache`."""
        if self._seed is not None:
            raise ConfigError(
                f"{type(self).__name__} with a seed has other samples in each epoch, and a cache"
                " keeps those of one: cache what they are made of, or pass no seed"
            )
