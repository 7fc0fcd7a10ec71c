"""The protocol of a device: a framework's copies on their own stream, and events behind them.

Imports types alone. The engine's Copier calls it; the devices of torch and Paddle implement it.
"""

from __future__ import annotations

from typing import Any, Protocol

from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.page_locking import PageLocker

__all__ = ["Device"]


class Device(Protocol):
    """One device, with a stream for copies to it. Only the thread that iterates calls it.

    Attributes:
        locker: locks the pages that it copies from; None: they are not locked.
        frees_in_order: whether freed memory is used again in the order of its stream. If False, a
            tensor must not be freed before its copy is done.
    """

    locker: PageLocker | None
    frees_in_order: bool

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch, and record an event behind them; does not wait.

        An interrupt may end it anywhere.

        Args:
            batch: its slot is held until the event is done.
            event: of `make_event`.
            tensors: empty; gets each target tensor as soon as it exists.

        Returns:
            The user's batch on the device.
        """

    def is_capturing(self) -> bool:
        """Whether a graph of the device is being captured now: then no work may be issued."""

    def make_event(self) -> Any:
        """Return an event that `copy` can record."""

    def record(self, event: Any) -> None:
        """Record an event behind all work of the stream so far."""

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed an event; waits for nothing."""

    def wait(self, event: Any) -> None:
        """Wait in this thread until the device has passed an event."""

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:
        """Make the user's stream wait for an event.

        Args:
            event: None: it is done.
            tensors: the targets of the copies; the user may drop them while that stream uses them.
        """
