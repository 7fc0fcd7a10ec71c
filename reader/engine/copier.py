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
        is_issued: False: it is just being issued, or an interrupt came.
        held: tensors that must not be freed before it is done.
    """

    __slots__ = ("batch", "event", "held", "is_issued", "slot")

    def __init__(self, batch: LoDTensorArray, event: Any) -> None:
        self.batch: LoDTensorArray | None = batch
        self.event: Any = event
        self.slot: int | None = None
        self.is_issued = False
        self.held: list[Any] | None = None


class Copied:
    """The user's batch on a device, where it is as soon as its copy is done.

    Attributes:
        value: the batch.
        tensors: those in it.
        copy: what brings it there.
    """

    __slots__ = ("copy", "tensors", "value")

    def __init__(self, value: Any, tensors: list[Any], copy: Copy) -> None:
        self.value, self.tensors, self.copy = value, tensors, copy


class Copier(Finalized):
    """Issues copies of batches to one device, and lets go of their slots when they are done.

    Args:
        device: what the framework does there.
        registrar: locks slots.
        most: how many copies are under way at most.
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
        self._open: deque[Copy] = deque()  # in the order of the stream
        self._events: list[Any] = []  # that can be recorded again
        self._newest: Copy | None = None  # it may be under way, or an interrupt left it
        self._is_issuing = False
        self._lock = threading.RLock()  # iterators of one loader may be used in several threads
        self._pid = os.getpid()
        self.copies = 0
        self.late = 0  # copies that were not done when their batches were delivered
        self.wait_s = 0.0

    def issue(self, batch: LoDTensorArray) -> Copied:
        """Issue the copy of a batch; its tensors are there at once, their bytes are not.

        An interrupt may leave it anywhere: what was issued by then keeps its slot until it is done.
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
        """Return the user's batch; the stream on which the user works waits for its copy."""
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
        """Whether a copy can be issued now, without more of them under way than may be."""
        self.sweep()
        return len(self._open) < self._most

    def _await_space(self) -> None:
        """Poll until a copy can be issued: the link is slower than the user."""
        began = time.monotonic()
        while not self.has_space:
            time.sleep(_POLL_S)  # noqa: TID251  the device wakes nobody, and its copies end
        self.wait_s += time.monotonic() - began

    def sweep(self) -> None:
        """Let go of the slots whose copies are done. Waits for nothing; not while capturing."""
        if not self._open or not self._lock.acquire(blocking=False):
            return
        try:
            while self._open and self._is_done(self._open[0]):
                self._release_first()
        finally:
            self._lock.release()

    def wait(self) -> None:
        """Wait until all copies are done, and let go of their slots."""
        if os.getpid() != self._pid:
            return  # the parent's copies; a forked child has no device
        with self._lock:
            if not self._is_issuing:
                self._newest = None
            while self._open and self._open[0] is not self._newest:
                copy = self._open[0]
                if not self._is_done(copy):
                    self._device.wait(copy.event)
                self._release_first()

    def finalize(self) -> None:
        """Wait for the copies when the copier is dropped, before what they read is freed."""
        if "_open" in vars(self):
            self.wait()

    def _is_done(self, copy: Copy) -> bool:
        if not copy.is_issued:
            if copy is self._newest:
                return False
            self._device.record(copy.event)  # after the part of it that was issued
            copy.is_issued = True
        return self._device.is_done(copy.event)

    def _release_first(self) -> None:
        copy = self._open.popleft()
        if copy.batch is not None:
            copy.batch.note(COPIED, self._place)
        event, copy.event, copy.batch, copy.held = copy.event, None, None, None
        self.registrar.release(copy.slot)
        self._events.append(event)


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
