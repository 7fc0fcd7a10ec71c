"""What a framework does for one device: copies on a stream of its own, and events behind them.

Imports types alone. The engine's Copier calls it; the devices of torch and Paddle implement it.
"""

from __future__ import annotations

from typing import Any, Protocol

from reader._core.batch.tensor_array import LoDTensorArray
from reader.frameworks.page_locking import PageLocker

__all__ = ["Device"]


class Device(Protocol):
    """One device, with a stream for copies to it. All is called in the thread that iterates.

    Attributes:
        locker: what locks the pages that it copies from; None: nothing.
        frees_in_order: memory freed here is used again in the order of its stream; if False, a
            tensor must not be freed before its copy is done.
    """

    locker: PageLocker | None
    frees_in_order: bool

    def copy(self, batch: LoDTensorArray, event: Any, tensors: list[Any]) -> Any:
        """Issue the copies of a batch, and record an event behind them; wait for nothing.

        An interrupt may leave it anywhere.

        Args:
            batch: its slot is held until the event is done.
            event: of `make_event`.
            tensors: empty; gets each tensor that is copied to, as soon as there is one.

        Returns:
            The user's batch on the device.
        """

    def is_capturing(self) -> bool:
        """Whether a graph of the device is being captured now: it must be left alone meanwhile."""

    def make_event(self) -> Any:
        """Return an event that `copy` can record."""

    def record(self, event: Any) -> None:
        """Record an event behind all that the stream was given so far."""

    def is_done(self, event: Any) -> bool:
        """Whether the device has passed an event; waits for nothing."""

    def wait(self, event: Any) -> None:
        """Wait in this thread until the device has passed an event."""

    def await_in_consumer(self, event: Any | None, tensors: list[Any]) -> None:
        """Have the stream on which the user works wait for an event.

        Args:
            event: None: it is done.
            tensors: what the copies made; the user may drop them while that stream uses them.
        """
