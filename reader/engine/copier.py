"""The copier issues copies of batches to one device ahead; the consumer's stream waits for them.

Imports no framework: a Device does the copies. It belongs to one loader, whose iterators share it,
and to the process that made it. A slot of the arena is held while a copy reads it.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from reader._core.batch.tensor_array import COPIED, ISSUED, LoDTensorArray
from reader._core.interpreter.signals import Finalized
from reader.engine.registrar import Registrar
from reader.frameworks.device import Device

__all__ = ["Copied", "Copier", "copier_stats", "drop_copies"]

_POLL_S = 50e-6


class Copy:
    """A copy under way.

    Attributes:
        batch: what it reads.
        event: recorded after the copy; None: it is done.
        slot: what `Registrar.release` takes.
        is_issued: False: `issue` has not returned, or an interrupt left it.
        held: tensors that must not be freed before it is done.
    """

    __slots__ = ("batch", "event", "held", "is_issued", "slot")

    def __init__(self, batch: LoDTensorArray, event: Any) -> None:
        self.batch: LoDTensorArray | None = batch
        self.event: Any = event
        self.slot: int | None = None
        self.is_issued = False
        self.held: list[Any] | None = None

    def note_issued(self) -> None:
        """Note that an interrupt left it: no more of it is issued."""
        self.is_issued = True

    def end(self, registrar: Registrar, place: int) -> Any:
        """Release what it reads, once it is done; returns its event, which is free again."""
        if self.batch is not None:
            self.batch.note(COPIED, place)
        event, self.event, self.batch, self.held = self.event, None, None, None
        registrar.release(self.slot)
        return event


class Copied:
    """The user's batch on a device; its bytes are there when its copy is done.

    Attributes:
        value: the batch.
        tensors: those in it.
        copy: the copy that fills it.
    """

    __slots__ = ("copy", "tensors", "value")

    def __init__(self, value: Any, tensors: list[Any], copy: Copy) -> None:
        self.value, self.tensors, self.copy = value, tensors, copy


class Copier(Finalized):
    """Issues copies of batches to one device, and releases the slots of finished copies.

    Args:
        device: issues copies by the framework.
        registrar: page-locks slots.
        most: the most copies that may be under way.
        plain_containers: containers of a batch become dicts and lists.
        place: the number of the device among the loader's places.
    """

    def __init__(
        self,
        device: Device,
        registrar: Registrar,
        most: int = 3,
        plain_containers: bool = False,
        place: int = 0,
    ) -> None:
        self._device = device
        self._place = place
        self.registrar = registrar
        self._most = most
        self._plain_containers = plain_containers
        self._open: deque[Copy] = deque()  # copies in the order of the device's stream
        self._events: list[Any] = []  # free events
        self._newest: Copy | None = None  # `issue` may be at it, or an interrupt left it
        self._is_issuing = False
        self._lock = threading.RLock()  # iterators of one loader may be used in several threads
        self._pid = os.getpid()
        self.copies = 0
        self.late = 0  # copies that were not done when their batches were delivered
        self.wait_s = 0.0

    def issue(self, batch: LoDTensorArray) -> Copied:
        """Issue the copy of a batch. The tensors exist at once, their bytes arrive later.

        An interrupt may leave it anywhere: a copy that was issued keeps its slot until it is done.
        """
        if self._plain_containers:
            batch = batch.plain_containers()
        if not self._is_issuing:
            self._newest = None
            if not self.has_space:
                self._await_space()
        with self._lock:
            before = self._is_issuing  # a signal's handler may call `issue` within this
            try:
                self._is_issuing = True
                return self._issue(batch)
            finally:
                self._is_issuing = before

    def _issue(self, batch: LoDTensorArray) -> Copied:
        device = self._device
        copy = Copy(batch, self._events.pop() if self._events else device.make_event())
        self._newest = copy
        self._open.append(copy)
        batch.note(ISSUED, self._place)
        copy.slot = self.registrar.acquire(batch)
        tensors: list[Any] = []
        if not device.frees_in_order:
            copy.held = tensors
        value = device.copy(batch, copy.event, tensors)
        copy.is_issued = True
        self.copies += 1
        return Copied(value, tensors, copy)

    def deliver(self, copied: Copied) -> Any:
        """Return the user's batch, and have the user's stream wait for its copy."""
        self.sweep()
        event = copied.copy.event
        self.late += event is not None
        self._device.await_in_consumer(event, copied.tensors)
        return copied.value

    @property
    def is_capturing(self) -> bool:
        """Whether a graph of the device is being captured, and no batch can be fetched."""
        return self._device.is_capturing()

    @property
    def has_space(self) -> bool:
        """Whether fewer copies are under way than the most."""
        self.sweep()
        return len(self._open) < self._most

    def _await_space(self) -> None:
        """Poll until a copy can be issued: the link is slower than the user."""
        began = time.monotonic()
        while not self.has_space:
            time.sleep(_POLL_S)  # noqa: TID251  the device wakes nobody, and its copies end
        self.wait_s += time.monotonic() - began

    def sweep(self) -> None:
        """Release the slots of finished copies, unless a graph is captured. Blocks on nothing."""
        if not self._open or not self._lock.acquire(blocking=False):
            return
        try:
            while self._open and self._is_done(self._open[0]):
                self._events.append(self._open.popleft().end(self.registrar, self._place))
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait until all copies are done, and release their slots."""
        if os.getpid() != self._pid:
            return  # the parent's copies; a forked child has no device
        with self._lock:
            if not self._is_issuing:
                self._newest = None
            while self._open and self._open[0] is not self._newest:
                copy = self._open[0]
                if not self._is_done(copy):
                    self._device.wait(copy.event)
                self._events.append(self._open.popleft().end(self.registrar, self._place))

    def finalize(self) -> None:
        """Wait for the copies when the copier is dropped, before what they read is freed."""
        if "_open" in vars(self):
            self.wait()

    def _is_done(self, copy: Copy) -> bool:
        if not copy.is_issued:
            if copy is self._newest:
                return False
            self._device.record(copy.event)  # records the end of the part that was issued
            copy.note_issued()
        return self._device.is_done(copy.event)


def drop_copies(copiers: list[Copier]) -> None:
    """Wait for all copies of a loader, and unlock its slots."""
    for copier in copiers:
        copier.wait()
    for copier in copiers[:1]:
        copier.registrar.close()


def copier_stats(copiers: Sequence[Copier]) -> dict[str, Any] | None:
    """Return counts of a loader's copies; None: it has no devices. See `DataLoader.stats`."""
    if not copiers:
        return None
    for copier in copiers:
        if not copier.is_capturing:
            copier.sweep()
    return {
        "copies": sum(copier.copies for copier in copiers),
        "late_copies": sum(copier.late for copier in copiers),
        "wait_s": sum(copier.wait_s for copier in copiers),
        **copiers[0].registrar.stats(),
    }
