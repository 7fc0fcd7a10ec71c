"""A device that copies late: it reads host memory long after the copy was issued.

For tests of what the loader does around copies, without an accelerator. It holds no slot: memory
that is given back too early is read as whatever lies there by then.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from reader._core.batch.tensor_array import LoDTensorArray

__all__ = ["LateDevice"]

_LATE = 3  # how often an event must be queried before it is done


class Event:
    """An event after some copies.

    Attributes:
        copies: (array of the user, address of the bytes) still to be made.
        asked: how often it was asked for.
    """

    def __init__(self) -> None:
        self.copies: list[tuple[Any, int]] = []
        self.asked = 0

    def happen(self) -> None:
        """Make the copies: the device has come here. After an interrupt the next call goes on."""
        while self.copies:
            array, address = self.copies[-1]
            ctypes.memmove(array.ctypes.data, address, array.nbytes)
            del self.copies[-1]


class LateDevice:
    """Makes the batches of a place as NumPy arrays; see reader.frameworks.device.Device."""

    locker = None
    frees_in_order = False

    def is_capturing(self) -> bool:
        """It has no graphs."""
        return False

    def make_event(self) -> Event:
        """Return an event that has not happened."""
        return Event()

    def copy(self, batch: LoDTensorArray, event: Event, tensors: list[Any]) -> Any:
        """Note the copies of a batch."""
        event.asked = 0
        for field in batch.numpy_fields():
            tensors.append(np.full_like(field, 77))
            event.copies.append((tensors[-1], field.ctypes.data))
        return batch.place_fields(list(tensors))

    def record(self, event: Event) -> None:
        """Record an event after the copies so far."""
        event.asked = 0

    def is_done(self, event: Event) -> bool:
        """Whether the copies are made, which takes some queries."""
        event.asked += 1
        if event.asked > _LATE:
            event.happen()
        return not event.copies

    def wait(self, event: Event) -> None:
        """Make the copies."""
        event.happen()

    def await_in_consumer(self, event: Event | None, tensors: list[Any]) -> None:  # noqa: ARG002
        """Make the copies: the user reads them at once."""
        if event is not None:
            event.happen()
