"""The iterator of a loader without workers: the caller makes each batch when it asks for it.

Imports torch's own iterator of that kind and derives from it; it raises where that one silently
loses samples. It belongs to the consumer, and makes no batch ahead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.utils.data import IterableDataset

from reader.compat.torch.inner import InlineBase, pin_memory, profile_name
from reader.data.failure import as_user_error
from reader.data.iterable import is_dead
from reader.errors import DatasetError

__all__ = ["InlineIterator"]


class InlineIterator(InlineBase):  # type: ignore[misc]
    """Makes batches in the trainer's own thread, with its random state, as PyTorch does.

    StopIteration from a dataset or a collate_fn is an error here and does not end the epoch. So is
    a generator that an exception has ended.

    Args:
        loader: the DataLoader.
    """

    def __init__(self, loader: Any) -> None:
        super().__init__(loader)
        self._profile_name = profile_name(0)
        order = loader.order
        if order is not loader._index_sampler:
            self._sampler_iter = iter(order)
        self._is_stream = isinstance(self._dataset, IterableDataset)
        self._dataset_fetcher.collate_fn = _guarded(self._dataset_fetcher.collate_fn)
        self._broken: BaseException | None = None  # what ended the dataset's generator

    def _next_data(self) -> Any:
        index = self._next_index()  # StopIteration of the sampler ends the epoch
        if self._broken is not None:
            self._raise_broken()
        try:
            data = self._dataset_fetcher.fetch(index)
        except StopIteration as error:
            if self._is_stream:
                raise
            raise as_user_error(error) from error
        except Exception as error:
            if self._is_stream and is_dead(self._dataset_fetcher.dataset_iter):
                self._broken = error
            raise
        return pin_memory(data, self._pin_memory_device) if self._pin_memory else data

    def _raise_broken(self) -> None:
        broken, self._broken = self._broken, None
        self._dataset_fetcher.ended = True
        self._dataset_fetcher.dataset_iter = iter(())
        raise DatasetError(
            f"the generator of {type(self._dataset).__name__} was ended by the exception before,"
            f" {broken!r}: its remaining samples of this epoch are lost. Catch the exception"
            " within the generator, or return an iterator object that can continue"
        ) from broken


def _guarded(collate: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return a collate_fn whose StopIteration does not end the epoch."""

    def guarded(samples: Any) -> Any:
        try:
            return collate(samples)
        except StopIteration as error:
            raise as_user_error(error) from error

    return guarded
